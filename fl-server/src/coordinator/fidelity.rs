//! The fidelity of frames, by tensor: sums over the updates of open rounds, gauges of the newest closed round, and a
//! warning when almost nothing of a tensor is sent for several rounds.
//!
//! The figures of updates are their clients' claims: they appear in reports, metrics and warnings, and decide nothing.

use crate::telemetry::status::TensorGauge;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fl_compress::Layout;
use fl_proto::SectionFidelity;

use crate::accounting::ledger::{Direction, Fidelity, Row, Section, add_all, share};

/// Rounds in a row after which a starved tensor is reported.
const ROUNDS: u32 = 3;

/// Sums and gauges of a run that is being served.
#[derive(Debug)]
pub(crate) struct Watch {
    layout: Arc<Layout>,
    /// Figures of the updates accepted in rounds that are not closed.
    open: BTreeMap<u64, Vec<Fidelity>>,
    starved: BTreeMap<(Direction, u32), Starvation>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Starvation {
    rounds: u32,
    nonzeros: u64,
    values: u64,
    cosines: f64,
    /// Rounds of which a cosine is known.
    known: u32,
}

#[derive(Debug, Default)]
pub(crate) struct RoundFidelity {
    pub(crate) gauges: Vec<TensorGauge>,
    /// One sentence for each section that has been starved for [`ROUNDS`] rounds.
    pub(crate) warnings: Vec<String>,
}

impl Watch {
    pub(crate) fn new(layout: Arc<Layout>) -> Self {
        Self {
            layout,
            open: BTreeMap::new(),
            starved: BTreeMap::new(),
        }
    }

    /// Adds the figures of an update accepted in `round`: for each section, its first tensor and its figures.
    pub(crate) fn accepted(&mut self, round: u64, figures: &[(u32, SectionFidelity)]) {
        if figures.is_empty() {
            return;
        }
        let mut sections: Vec<_> = figures
            .iter()
            .map(|(first, section)| Fidelity::of(*first, section))
            .collect();
        sections.sort_by_key(|section| section.first);
        add_all(self.open.entry(round).or_default(), &sections);
    }

    /// Takes the figures that are in no ledger row yet, as rows: when a round closes or the server stops.
    pub(crate) fn rows(&mut self) -> Vec<Row> {
        let open = std::mem::take(&mut self.open).into_iter();
        open.map(|(round, sections)| row(round, Direction::Up, sections))
            .collect()
    }

    /// Adds a closed round: the sections of its frames, up and down, their figures where known, and the entropies of
    /// tensors, by their places.
    pub(crate) fn closed(
        &mut self,
        sections: &[(Direction, Vec<Section>)],
        rows: &[Row],
        entropies: &[(Direction, Vec<(u32, f64)>)],
    ) -> RoundFidelity {
        let mut seen = RoundFidelity::default();
        for (direction, sections) in sections {
            let direction = *direction;
            let figures = rows.iter().find_map(|row| match row {
                Row::Fidelity {
                    direction: of,
                    sections,
                    ..
                } if *of == direction => Some(sections.as_slice()),
                _ => None,
            });
            let entropies = entropies.iter().find(|(of, _)| *of == direction);
            let entropies = entropies.map_or(&[][..], |(_, entropies)| entropies);
            for section in sections {
                let figures = figures.unwrap_or_default();
                let at = figures.binary_search_by_key(&section.first, |figures| figures.first);
                let entropy = entropies.binary_search_by_key(&section.first, |(first, _)| *first);
                let entropy = entropy.ok().map(|at| entropies[at].1);
                self.section(direction, section, (at.ok().map(|at| figures[at]), entropy), &mut seen);
            }
            let firsts: BTreeSet<u32> = sections.iter().map(|section| section.first).collect();
            self.starved
                .retain(|(of, first), _| *of != direction || firsts.contains(first));
        }
        seen
    }

    fn section(
        &mut self,
        direction: Direction,
        section: &Section,
        (fidelity, entropy): (Option<Fidelity>, Option<f64>),
        seen: &mut RoundFidelity,
    ) {
        let Some(density) = section.density() else {
            return;
        };
        let cosine = fidelity.and_then(|fidelity| fidelity.mean_cosine());
        let key = (direction, section.first);
        let starved = if is_starved(density, cosine) {
            let starved = self.starved.entry(key).or_default();
            starved.rounds = starved.rounds.saturating_add(1);
            starved.nonzeros = starved.nonzeros.saturating_add(section.nonzeros);
            starved.values = starved.values.saturating_add(section.coded());
            starved.cosines += cosine.unwrap_or(0.0);
            starved.known += u32::from(cosine.is_some());
            *starved
        } else {
            self.starved.remove(&key);
            Starvation::default()
        };
        let tensor = section.name(|at| self.layout.tensors().get(at).map(|tensor| tensor.name.as_str()));
        if starved.rounds == ROUNDS {
            seen.warnings.push(starved.warning(direction, &tensor));
        }
        seen.gauges.push(TensorGauge {
            direction,
            tensor,
            density,
            bits: section.bits().unwrap_or(0.0),
            rank: section.mean_rank(),
            entropy,
            fidelity,
            starved: starved.rounds,
        });
    }
}

pub(crate) fn row(round: u64, direction: Direction, sections: Vec<Fidelity>) -> Row {
    Row::Fidelity {
        round,
        direction,
        sections,
    }
}

/// Whether almost nothing of a section was sent: almost all values are zero, and the decoded update hardly points in
/// the direction of the raw one. Both, because a spec may ask for few values on purpose, and a dense update may be
/// noise.
fn is_starved(density: f64, cosine: Option<f64>) -> bool {
    /// Share of nonzero values. The sparsest published methods send 0.1 %.
    const DENSITY: f64 = 0.001;
    /// Cosine of decoded and raw update.
    const COSINE: f64 = 0.1;
    density < DENSITY && cosine.is_none_or(|cosine| cosine < COSINE)
}

impl Starvation {
    fn warning(&self, direction: Direction, tensor: &str) -> String {
        let percent = 100.0 * share(self.nonzeros, self.values).unwrap_or(0.0);
        let cosine = match self.known {
            0 => String::new(),
            known => format!(" (cosine {:.2})", self.cosines / f64::from(known)),
        };
        let (of, table) = match direction {
            Direction::Up => ("the updates", "compression.uplink"),
            Direction::Down => ("the server's steps", "compression.downlink"),
        };
        format!(
            "tensor `{tensor}` of {of}: {percent:.2} % of its values sent in the last {} rounds{cosine}: raise `budget` in \
             [{table}], or the tensor's density or step if it has no budget",
            self.rounds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        let layout = Layout::new([("a", vec![1000]), ("b", vec![10]), ("c", vec![10])]);
        Watch::new(Arc::new(layout.unwrap()))
    }

    fn sections(nonzeros: u64) -> Vec<Section> {
        let whole = Section {
            parameters: 1000,
            tensors: 1,
            frames: 4,
            nonzeros,
            ..Section::default()
        };
        let small = Section {
            first: 1,
            tensors: 2,
            parameters: 20,
            nonzeros: 80,
            ..whole
        };
        vec![whole, small]
    }

    fn figures(first: u32, cosine: f32) -> (u32, SectionFidelity) {
        let section = fl_compress::Fidelity {
            cosine,
            kept: 0.5,
            nonzeros: 0,
            age: 2,
        };
        (first, SectionFidelity::from(&section))
    }

    fn close(watch: &mut Watch, nonzeros: u64) -> RoundFidelity {
        let rows = watch.rows();
        watch.closed(
            &[(Direction::Up, sections(nonzeros))],
            &rows,
            &[(Direction::Down, vec![(0, 9.0)]), (Direction::Up, vec![(0, 2.5)])],
        )
    }

    #[test]
    fn a_tensor_sent_at_next_to_nothing_for_three_rounds_is_reported_once() {
        let mut watch = watch();
        let mut warnings = Vec::new();
        for round in 1..=5 {
            for client in 0..4 {
                watch.accepted(round, &[figures(0, 0.01 * client as f32), figures(1, 0.9)]);
            }
            let seen = close(&mut watch, 1);
            assert_eq!(seen.gauges[0].starved, round as u32);
            assert_eq!(
                (seen.gauges[1].starved, seen.gauges[1].tensor.as_str()),
                (0, "2 small tensors")
            );
            let figures = seen.gauges[0].fidelity.unwrap();
            assert_eq!(
                (figures.frames, figures.least_cosine, figures.mean_cosine()),
                (4, 0, Some(0.015))
            );
            warnings.push(seen.warnings);
        }
        let expected = "tensor `a` of the updates: 0.03 % of its values sent in the last 3 rounds (cosine 0.01): raise \
                        `budget` in [compression.uplink], or the tensor's density or step if it has no budget";
        assert_eq!(warnings.concat(), [expected]);
        assert_eq!(warnings[2].len(), 1);
        // It recovers, and is reported again when it starves again; without figures the density alone counts.
        assert_eq!(close(&mut watch, 2000).gauges[0].starved, 0);
        let again: Vec<_> = (0..3).flat_map(|_| close(&mut watch, 0).warnings).collect();
        assert_eq!(again.len(), 1);
        assert!(
            again[0].starts_with("tensor `a` of the updates: 0.00 % of its values sent in the last 3 rounds: raise")
        );
    }

    #[test]
    fn gauges_have_the_bits_the_rank_and_the_entropy_of_a_tensor() {
        let section = Section {
            parameters: 1000,
            tensors: 1,
            frames: 4,
            recipe: 20,
            indices: 100,
            scales: 30,
            values: 350,
            nonzeros: 400,
            ranked: 2,
            ranks: 7,
            ..Section::default()
        };
        let other = Section {
            first: 1,
            ranked: 0,
            ranks: 0,
            ..section
        };
        let seen = watch().closed(
            &[(Direction::Up, vec![section, other])],
            &[],
            &[(Direction::Up, vec![(0, 2.5)])],
        );
        let [gauge, other] = &seen.gauges[..] else {
            panic!("two gauges")
        };
        // 500 bytes of four frames of 1,000 values.
        assert_eq!((gauge.bits, gauge.rank, gauge.entropy), (1.0, Some(3.5), Some(2.5)));
        assert_eq!((other.bits, other.rank, other.entropy), (1.0, None, None));
    }

    #[test]
    fn few_values_that_carry_the_update_are_not_starved() {
        let mut watch = watch();
        for round in 1..=4 {
            watch.accepted(round, &[figures(0, 0.6), figures(1, 1.0)]);
            assert_eq!(close(&mut watch, 1).gauges[0].starved, 0);
        }
        // Noise that is sent whole.
        for round in 5..=8 {
            watch.accepted(round, &[figures(0, 0.01), figures(1, 1.0)]);
            assert!(close(&mut watch, 4000).warnings.is_empty());
        }
    }

    #[test]
    fn figures_of_each_round_are_booked_once() {
        let mut watch = watch();
        watch.accepted(1, &[figures(1, 0.5), figures(0, 0.25)]);
        watch.accepted(2, &[]);
        let rows = watch.rows();
        assert!(
            matches!(&rows[..], [Row::Fidelity { round: 1, direction: Direction::Up, sections }]
            if sections.iter().map(|section| section.first).eq([0, 1]))
        );
        assert!(watch.rows().is_empty());
    }
}
