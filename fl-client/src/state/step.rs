//! `step`: the frame that made a model version. It is kept where updates are encoded against it, so that a restart encodes the
//! same. Optional: without it, an update is encoded against nothing.
//!
//! ```text
//! "FLST" | major u8 | minor u8 | digest of the model that it made, 32 | the frame | CRC-32C of all before it u32
//! ```
//!
//! The kept model is another file, because it is as long as the model and written every few versions; a step is short and
//! written at each version.

use fl_compress::wire::{CHECKSUM_BYTES, unseal};
use fl_compress::{Digest, Frame, Layout};
use fl_proto::max_frame;

use super::disk::Disk;
use super::run_state::RunState;
use super::sealed::sealed;
use crate::error::Error;

const MAGIC: &[u8; 4] = b"FLST";
const VERSION: [u8; 2] = [1, 0];
const HEAD: usize = 4 + 2 + 32;

impl RunState {
    /// The frame that made `model`, if it is the one kept and is complete.
    pub(crate) fn load_step(&self, layout: &Layout, model: Digest) -> Option<Vec<u8>> {
        let max = (HEAD + CHECKSUM_BYTES) as u64 + max_frame(layout.len(), layout.tensors().len());
        let consequence = "kept step is unusable, the next update is encoded without it";
        self.optional(&self.path("step"), max, consequence, |bytes| {
            parse(&bytes, layout, model)
        })
    }

    /// Keeps the frame that made `model`. Not synced to the medium.
    pub(crate) fn save_step(&self, model: Digest, frame: &[u8]) -> Result<(), Error> {
        Disk { sync: false }.replace_in_turn(&self.path("step"), &[&sealed(MAGIC, VERSION, &model, frame)])
    }
}

/// The frame; `None` if it made another model.
fn parse(bytes: &[u8], layout: &Layout, model: Digest) -> Result<Option<Vec<u8>>, fl_compress::Error> {
    let mut reader = unseal(bytes, MAGIC, VERSION)?;
    if reader.value::<Digest>("digest")? != model {
        return Ok(None);
    }
    let frame = reader.take(reader.left(), "frame")?;
    Frame::parse(frame, layout)?;
    Ok(Some(frame.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fl_compress::{Encoder, FrameHeader, FrameKind, Spec};

    use super::*;

    #[test]
    fn a_step_survives_the_disk_and_every_flipped_bit_of_it_is_noticed() {
        let layout = Arc::new(Layout::new([("a", vec![3])]).unwrap());
        let header = FrameHeader {
            kind: FrameKind::ModelUpdate,
            round: 4,
            seed: 1,
        };
        let mut encoder = Encoder::new(Arc::clone(&layout), &Spec::exact()).unwrap();
        let frame = encoder.encode(&mut [1.0, 2.0, 3.0], header).unwrap().frame;
        let model = Digest([7; 32]);
        let bytes = sealed(MAGIC, VERSION, &model, &frame);
        assert_eq!(bytes[..HEAD], [b"FLST\x01\x00".as_slice(), &[7; 32]].concat());
        assert_eq!(parse(&bytes, &layout, model), Ok(Some(frame)));
        assert_eq!(parse(&bytes, &layout, Digest([8; 32])), Ok(None), "of another model");
        for len in 0..bytes.len() {
            assert!(parse(&bytes[..len], &layout, model).is_err(), "{len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&broken, &layout, model).is_err(), "{bit}");
        }
    }
}
