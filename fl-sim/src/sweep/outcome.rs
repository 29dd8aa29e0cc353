//! What a sweep found.

use serde::Serialize;

use super::choice;
use super::file::Sweep;
use super::phase::Phase;
use super::summary::{Group, Summary};
use crate::statistics::{Quality, front};
use crate::wire::Wire;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Outcome {
    /// Whether it is the file's `[quick]` form: too short for a figure to be cited.
    pub(crate) quick: bool,
    /// Programs that ran the trials, by digest; results of several builds may differ.
    pub(crate) builds: Vec<String>,
    pub(crate) phases: Vec<PhaseOutcome>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PhaseOutcome {
    pub(crate) phase: Phase,
    pub(crate) seeds: Vec<u64>,
    pub(crate) baseline: String,
    /// Share of the training examples in the validation part; `None` with the test set.
    pub(crate) validation: Option<f64>,
    pub(crate) max_loss: Option<f64>,
    pub(crate) reach: f64,
    pub(crate) quality: Option<Quality>,
    pub(crate) quick: bool,
    pub(crate) wire: Wire,
    pub(crate) rows: Vec<Summary>,
}

impl PhaseOutcome {
    /// The table of `groups`. In the phase `choose`, the best point of each variant is marked; otherwise all are.
    pub(super) fn of(sweep: &Sweep, phase: Phase, groups: &[Group]) -> Self {
        let scores = groups
            .iter()
            .flat_map(|group| &group.records)
            .map(|record| &record.score);
        let quality = Quality::of(&scores);
        let plain: Vec<Summary> = groups.iter().map(|group| group.summary(quality, None, 0.0)).collect();
        let base = match quality {
            Some(quality) => choice::best(&plain, &sweep.baseline, quality, None),
            None => groups.iter().position(|group| group.variant == sweep.baseline),
        };
        let base = base.map(|at| &groups[at]);
        let mut rows: Vec<Summary> = groups
            .iter()
            .map(|group| group.summary(quality, base, sweep.reach))
            .collect();
        if let (Phase::Choose, Some(quality)) = (phase, quality) {
            for variant in &sweep.variants {
                let loss = sweep.max_loss.filter(|_| variant.name != sweep.baseline);
                if let Some(at) = choice::best(&rows, &variant.name, quality, loss) {
                    rows[at].chosen = true;
                }
            }
        } else {
            rows.iter_mut().for_each(|row| row.chosen = true);
        }
        if let Some(quality) = quality {
            let points = rows.iter().map(|row| {
                let goodness = row.tail.map_or(f64::NAN, |tail| quality.goodness(tail.mean));
                (row.bytes_up + row.bytes_down, goodness)
            });
            for at in front(&points.collect::<Vec<_>>()) {
                rows[at].front = true;
            }
        }
        Self {
            phase,
            seeds: sweep.seeds(phase).to_vec(),
            baseline: sweep.baseline.clone(),
            validation: (phase == Phase::Choose).then_some(sweep.validation),
            max_loss: sweep.max_loss,
            reach: sweep.reach,
            quality,
            quick: sweep.quick,
            wire: sweep.wire(),
            rows,
        }
    }

    /// The point of `variant` that is marked.
    pub(super) fn chosen(&self, variant: &str) -> Option<usize> {
        let found = self.rows.iter().find(|row| row.chosen && row.variant == variant);
        found.map(|row| row.point)
    }

    /// What the table shows, on a line.
    pub(super) fn heading(&self) -> String {
        let quick = if self.quick {
            "quick form, too short to cite; "
        } else {
            ""
        };
        format!("{}: {quick}{}", self.phase, self.about("*"))
    }

    /// Seeds, data and rule of the table. `mark`: how the chosen row of each variant is marked.
    pub(super) fn about(&self, mark: &str) -> String {
        let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        let seeds = seeds.join(", ");
        let on = match self.validation {
            Some(share) => format!("validation part, {} % of the training examples", 100.0 * share),
            None => "test set".to_owned(),
        };
        let judged = if self.has_average() {
            "averaged model"
        } else {
            "last 3 rounds"
        };
        let rule = match (self.phase, self.max_loss) {
            (Phase::Report, _) => String::new(),
            (Phase::Choose, None) => format!("; {mark} best by the {judged}"),
            (Phase::Choose, Some(most)) => {
                let unit = self.quality.map_or("", Quality::unit);
                format!("; {mark} fewest bytes that lose at most {most} {unit} in the {judged}")
            }
        };
        format!(
            "seeds {seeds}; {on}; wire {}; ± deviation, differences to {} with 95 % intervals{rule}",
            self.wire, self.baseline
        )
    }

    /// Whether a run averages its last versions.
    pub(super) fn has_average(&self) -> bool {
        self.rows.iter().any(|row| row.averaged.is_some())
    }

    /// The heading of the bytes to reach the baseline's quality.
    pub(super) fn reach_heading(&self) -> String {
        format!("to {} - {}", self.baseline, self.reach)
    }
}
