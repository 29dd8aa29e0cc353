//! The encoder's state as a file: residual and pending frame, so that both survive a crash.

use std::sync::Arc;

use crate::encoder::{Encoder, Pending, Stages};
use crate::seal::{seal, unseal};
use crate::section::all_finite;
use crate::wire::{Reader, Writer};
use crate::{Digest, Error, Frame, Layout, Spec};

const MAGIC: &[u8; 4] = b"FLCS";
const MAJOR: u8 = 1;
const MINOR: u8 = 0;
const HAS_RESIDUAL: u8 = 1;
const HAS_PENDING: u8 = 2;

impl Encoder {
    /// Appends memory and pending frame to `out`: magic, version, layout fingerprint, residual, frame, checksum.
    /// `pending` is the frame that this encoder has pending; any other is left out. Without it, nothing is pending for who
    /// loads the state, as after [`crate::Verdict::Dropped`].
    pub fn save(&self, pending: Option<&Pending>, out: &mut Vec<u8>) {
        let start = out.len();
        let pending = pending.filter(|pending| self.is_pending(pending));
        let residual = self.residual();
        let mut writer = Writer(out);
        writer.bytes(MAGIC);
        writer.u8(MAJOR);
        writer.u8(MINOR);
        writer.u8(residual.map_or(0, |_| HAS_RESIDUAL) | pending.map_or(0, |_| HAS_PENDING));
        writer.u8(0);
        writer.u64(self.layout().fingerprint());
        writer.f32s(residual.unwrap_or_default());
        if let Some(Pending { frame, stages, .. }) = pending {
            let counts = [
                stages.fp32,
                stages.reduced,
                stages.quantized,
                stages.coded,
                stages.bound.to_bits(),
            ];
            counts.into_iter().for_each(|count| writer.u64(count));
            writer.u64(frame.len() as u64);
            writer.bytes(frame);
        }
        seal(start, out);
    }

    /// Reads what [`Encoder::save`] wrote. A residual stays under another spec, unless that keeps no memory.
    ///
    /// # Errors
    /// `Truncated`, `Corrupt`, `NotFinite`; `Mismatch` for another layout or version; `Usage` as [`Encoder::new`].
    pub fn load(layout: Arc<Layout>, spec: &Spec, bytes: &[u8]) -> Result<(Self, Option<Pending>), Error> {
        let mut reader = unseal(bytes, MAGIC, MAJOR)?;
        let flags = reader.u8("flags")?;
        if flags > HAS_RESIDUAL | HAS_PENDING || reader.u8("reserved byte")? != 0 {
            return Err(reader.corrupt("flags"));
        }
        if reader.u64("layout fingerprint")? != layout.fingerprint() {
            return Err(Error::Mismatch("the state is for another layout".to_owned()));
        }
        let mut encoder = Self::new(layout, spec)?;
        if flags & HAS_RESIDUAL != 0 {
            let bytes = reader.take(encoder.layout().len() * 4, "residual")?;
            if let Some(values) = encoder.residual_mut() {
                let words = bytes.as_chunks().0;
                values
                    .iter_mut()
                    .zip(words)
                    .for_each(|(value, word)| *value = f32::from_le_bytes(*word));
                if !all_finite(values) {
                    return Err(Error::NotFinite("residual".to_owned()));
                }
            }
        }
        let pending = match flags & HAS_PENDING {
            0 => None,
            _ => Some(read_pending(&mut reader, encoder.layout())?),
        };
        reader.finish("bytes after the state")?;
        encoder.restore_pending(pending.as_ref());
        Ok((encoder, pending))
    }
}

fn read_pending(reader: &mut Reader<'_>, layout: &Layout) -> Result<Pending, Error> {
    let mut count = || reader.u64("stages");
    let mut stages = Stages {
        fp32: count()?,
        reduced: count()?,
        quantized: count()?,
        coded: count()?,
        bound: f64::from_bits(count()?),
        framed: 0,
    };
    stages.framed = reader.u64("frame length")?;
    let len = usize::try_from(stages.framed).map_err(|_| reader.corrupt("frame length"))?;
    let bytes = reader.take(len, "pending frame")?;
    let frame = Frame::parse(bytes, layout)?;
    frame.verify()?;
    Ok(Pending {
        header: frame.header(),
        frame: bytes.to_vec(),
        digest: Digest::of(bytes),
        stages,
    })
}
