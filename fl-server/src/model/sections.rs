//! Where the bytes of a round's frames went: by section, added up while the frames are decoded anyway.

use std::collections::BTreeMap;

use fl_compress::{Frame, SectionInfo};
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
