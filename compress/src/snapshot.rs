//! Snapshots: a whole model in one frame.

use crate::code::method::CodeSpec;
use crate::error::Error;
use crate::finite::all_finite;
use crate::frame::groups::{TensorGroup, tensor_groups};
use crate::frame::header::{Extras, FrameHeader, FrameKind, OVERHEAD};
use crate::layout::{Layout, Role};
use crate::quantize::QuantizeSpec;
use crate::quantize::dead_zone::DeadZone;
use crate::recipe::Recipe;
use crate::reduce::keep;
use crate::reduce::method::TensorValues;
use crate::rng::KeyedRng;
use crate::rounded::grid;
use crate::section::decode::Section;
use crate::section::encode::encode;
use crate::section::input::Input;
use crate::section::sinks::Set;
use crate::threads;
use crate::wire::{Reader, Writer, seal};

/// The snapshot of model `version` with all its `values`, which [`crate::Frame::decode`] restores bit for bit. Shapes:
/// `values: [layout.len()]`.
///
/// # Errors
/// `Usage` if `values` has another length, `NotFinite` if it holds NaN or infinity.
pub fn snapshot(layout: &Layout, values: &[f32], version: u64) -> Result<Vec<u8>, Error> {
    let groups = tensor_groups(layout, 0);
    let sections = groups.iter().map(|_| None).collect();
    write(layout, values, version, &groups, sections)
}

/// As [`snapshot`], and as exact, but a tensor that was rounded (see [`crate::ModelRounding`]) takes the coded levels of its
/// grid. Uses up to `threads` threads, with the same bytes.
///
/// # Errors
/// As [`snapshot`].
pub fn rounded_snapshot(layout: &Layout, values: &[f32], version: u64, threads: usize) -> Result<Vec<u8>, Error> {
    let groups = tensor_groups(layout, 0);
    if values.len() != layout.len() || !all_finite(values) {
        return snapshot(layout, values, version);
    }
    let jobs = groups.iter().enumerate().collect();
    let sections = threads::map(jobs, threads, |(at, group): (usize, &TensorGroup)| {
        levels(group, KeyedRng::new(0, at), group.only(values)?)
    });
    write(layout, values, version, &groups, sections)
}

/// The section with the levels of the values of one tensor, if it decodes to their bits and is shorter than they.
fn levels(group: &TensorGroup, rng: KeyedRng, values: &[f32]) -> Option<Vec<u8>> {
    if group.role != Role::Trained || values.is_empty() {
        return None;
    }
    let is_zero = values.iter().all(|value| value.to_bits() == 0);
    // Zeros are a section without a step.
    let step = if is_zero { 1.0 } else { grid(values)? };
    let input = Input {
        tensor: TensorValues {
            values,
            squared_gradients: None,
            residual: None,
            shape: group.shape,
            places: group.places,
            quantize: QuantizeSpec::DeadZone(DeadZone::nearest(1.0, 0.5).ok()?.with_step(step)),
            rng,
            unbiased: false,
            threads: 1,
        },
        chosen: keep::all(),
        leading: None,
        code: CodeSpec::Auto,
    };
    let encoded = encode(&input, &mut None).ok()?;
    let mut decoded = vec![0.0; values.len()];
    let mut reader = Reader::new(&encoded.bytes);
    let section = Section::read(&mut reader, group.shape, rng).ok()?;
    section.decode(&mut Set(&mut decoded)).ok()?;
    let is_equal = values.iter().zip(&decoded).all(|(a, b)| a.to_bits() == b.to_bits());
    (is_equal && section.recipe().is_multiples() && encoded.bytes.len() <= 4 * values.len()).then_some(encoded.bytes)
}

/// `sections`: of each group, or `None` for its exact values.
fn write(
    layout: &Layout,
    values: &[f32],
    version: u64,
    groups: &[TensorGroup],
    sections: Vec<Option<Vec<u8>>>,
) -> Result<Vec<u8>, Error> {
    layout.expect_len(values)?;
    if !all_finite(values) {
        return Err(Error::NotFinite("value of the model".to_owned()));
    }
    let coded = groups.iter().zip(&sections).map(|(group, section)| match section {
        Some(section) => section.len(),
        None => 1 + 4 * group.shape.len(),
    });
    let mut frame = Vec::with_capacity(OVERHEAD + coded.sum::<usize>());
    FrameHeader {
        kind: FrameKind::Snapshot,
        round: version,
        seed: 0,
    }
    .write(layout, groups.len(), Extras::default(), &mut frame);
    for (group, section) in groups.iter().zip(sections) {
        if let Some(section) = section {
            frame.extend_from_slice(&section);
            continue;
        }
        let mut writer = Writer::new(&mut frame);
        Recipe::EXACT.write(&mut writer);
        group.slices(values).for_each(|values| writer.f32s(values));
    }
    seal(0, &mut frame);
    Ok(frame)
}
