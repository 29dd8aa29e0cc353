//! Where the bytes of a round's frames went: by section, added up while the frames are decoded anyway.

use std::collections::BTreeMap;

use fl_compress::{Frame, Layout, Role, SectionInfo, energy_entropy, math};
use fl_proto::SectionFidelity;

use crate::accounting::ledger::{Fidelity, Section};

/// Sections of any number of frames of one layout, added up by the first of their tensors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sections(BTreeMap<u32, Section>);

impl Sections {
    /// Adds the sections of a frame.
    pub(super) fn add(&mut self, sections: &[Section]) {
        for section in sections {
            let known = self.0.entry(section.first).or_insert(Section {
                first: section.first,
                tensors: section.tensors,
                parameters: section.parameters,
                ..Section::default()
            });
            known.add(section);
        }
    }

    /// In the order of the layout.
    pub(super) fn into_vec(self) -> Vec<Section> {
        self.0.into_values().collect()
    }
}

/// The sections of one frame, in its order. `nonzeros`: of the values of each.
pub(super) fn sections(frame: &Frame<'_>, nonzeros: &[u64]) -> Vec<Section> {
    let pairs = frame.sections().zip(nonzeros);
    pairs.map(|(info, nonzeros)| section(&info, *nonzeros)).collect()
}

/// The figures of a frame's sections, in the order of their first tensors. `figures`: in the order of the frame.
pub(super) fn fidelity(frame: &Frame<'_>, figures: &[fl_compress::Fidelity]) -> Vec<Fidelity> {
    let figures = SectionFidelity::of(figures);
    let sections = frame.sections().zip(&figures);
    let mut out: Vec<_> = sections
        .map(|(info, figures)| Fidelity::of(first(&info), figures))
        .collect();
    out.sort_by_key(|section| section.first);
    out
}

/// Most values of a tensor from which its entropy is estimated: a logarithm for each is work that a round waits for.
const SAMPLE: usize = 65_536;

/// Entropy of the energy of the values in nats, for each trained tensor with a section of its own, by its place in the
/// layout. Zeros have none. Of a tensor with more than [`SAMPLE`] values, one of every n counts for n: good where many
/// values carry the energy, and too large where a few do. `value`: that at a place of the layout.
pub(super) fn entropies(layout: &Layout, sections: &Sections, value: impl Fn(usize) -> f32) -> Vec<(u32, f64)> {
    sections
        .0
        .values()
        .filter_map(|section| {
            let tensor = layout.tensors().get(section.first as usize)?;
            if section.tensors != 1 || tensor.role != Role::Trained {
                return None;
            }
            let stride = tensor.len.div_ceil(SAMPLE).max(1);
            let sample: Vec<f32> = (0..tensor.len / stride)
                .map(|at| value(tensor.offset + at * stride + within(at, stride)))
                .collect();
            let scale = tensor.len as f64 / sample.len() as f64;
            Some((section.first, energy_entropy(&sample)? + math::ln(scale)))
        })
        .collect()
}

/// A place below `stride` that varies with `at`, so that the sample does not follow the columns of a matrix whose rows are a
/// multiple of the stride (multiplicative hashing: Knuth 1973, section 6.4).
fn within(at: usize, stride: usize) -> usize {
    let hash = (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (hash % stride as u64) as usize
}

/// Place of its first tensor in the layout.
fn first(info: &SectionInfo<'_>) -> u32 {
    info.places.first().map_or(0, |at| *at as u32)
}

/// A section of one frame. `nonzeros`: of its values.
fn section(info: &SectionInfo<'_>, nonzeros: u64) -> Section {
    let rank = info.recipe.reduce.rank();
    Section {
        first: first(info),
        tensors: info.tensors.len() as u32,
        parameters: info.tensors.iter().map(|tensor| tensor.len as u64).sum(),
        frames: 1,
        recipe: info.bytes.recipe as u64,
        indices: info.bytes.indices as u64,
        scales: info.bytes.scales as u64,
        values: info.bytes.values as u64,
        nonzeros,
        ranked: u64::from(rank.is_some()),
        ranks: rank.unwrap_or(0).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropies_are_of_trained_tensors_with_sections_of_their_own() {
        let layout = Layout::new([("a", vec![4]), ("b", vec![2]), ("c", vec![2]), ("d", vec![3])]).unwrap();
        let section = |first, tensors| Section {
            first,
            tensors,
            ..Section::default()
        };
        let mut sections = Sections::default();
        sections.add(&[section(0, 1), section(1, 2), section(3, 1)]);
        // Four equal magnitudes have an entropy of ln 4, zeros have none, and two small tensors share a section.
        let values = [1.0, -1.0, 1.0, -1.0, 5.0, 5.0, 5.0, 5.0, 0.0, 0.0, 0.0];
        let found = entropies(&layout, &sections, |at| values[at]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0 == 0 && (found[0].1 - 4f64.ln()).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn the_entropy_of_a_large_tensor_is_estimated_from_a_part_of_its_values() {
        let len = 5 * SAMPLE + 17;
        let layout = Layout::new([("large", vec![len])]).unwrap();
        let mut sections = Sections::default();
        sections.add(&[Section {
            tensors: 1,
            ..Section::default()
        }]);
        // A quarter of the values carry the energy, in no step with the sample.
        let asked = std::cell::Cell::new(0);
        let value = |at: usize| {
            asked.set(asked.get() + 1);
            f32::from(at.wrapping_mul(0x9E37_79B9) >> 7 & 3 == 0)
        };
        let found = entropies(&layout, &sections, value);
        let exact = (len as f64 / 4.0).ln();
        assert!((found[0].1 - exact).abs() < 0.02, "{found:?} for {exact}");
        assert!(asked.get() <= SAMPLE);
    }

    /// Every n-th value alone would be of the same few columns.
    #[test]
    fn the_entropy_of_a_matrix_is_not_that_of_a_few_columns() {
        let (rows, cols) = (2048, 1024);
        let layout = Layout::new([("large", vec![rows, cols])]).unwrap();
        let mut sections = Sections::default();
        sections.add(&[Section {
            tensors: 1,
            ..Section::default()
        }]);
        for first in [0, 1] {
            // Every other column carries the energy.
            let found = entropies(&layout, &sections, |at| f32::from(at % 2 == first));
            let exact = ((rows * cols / 2) as f64).ln();
            assert!((found[0].1 - exact).abs() < 0.02, "{found:?} for {exact}");
        }
    }
}
