//! Snapshots: a whole model in one frame.

use crate::error::Error;
use crate::finite::all_finite;
use crate::frame::groups::tensor_groups;
use crate::frame::header::{Extras, FrameHeader, FrameKind, OVERHEAD};
use crate::layout::Layout;
use crate::recipe::Recipe;
use crate::wire::{Writer, seal};

/// The snapshot of model `version` with all its `values`, which [`crate::Frame::decode`] restores bit for bit. Shapes:
/// `values: [layout.len()]`.
///
/// # Errors
/// `Usage` if `values` has another length, `NotFinite` if it holds NaN or infinity.
pub fn snapshot(layout: &Layout, values: &[f32], version: u64) -> Result<Vec<u8>, Error> {
    if values.len() != layout.len() {
        return Err(Error::Usage(format!(
            "{} values for a layout of {}",
            values.len(),
            layout.len()
        )));
    }
    if !all_finite(values) {
        return Err(Error::NotFinite("value of the model".to_owned()));
    }
    let groups = tensor_groups(layout, 0);
    let mut frame = Vec::with_capacity(OVERHEAD + groups.len() + values.len() * 4);
    FrameHeader {
        kind: FrameKind::Snapshot,
        round: version,
        seed: 0,
    }
    .write(layout, groups.len(), Extras::default(), &mut frame);
    for group in groups {
        let mut writer = Writer::new(&mut frame);
        Recipe::EXACT.write(&mut writer);
        group.slices(values).for_each(|values| writer.f32s(values));
    }
    seal(0, &mut frame);
    Ok(frame)
}
