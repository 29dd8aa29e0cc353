//! The global model and all that is remembered with it, as bytes: what a restart begins from.
//!
//! Magic, major and minor version, layout fingerprint, seed, version, values, the strategy's part and the encoder's
//! part with their lengths, in minor version 1 the digest of the last step's frame (32 bytes), CRC-32C of everything
//! before it. Little-endian. Minor version 1 is written only where clients encode against that step.
//!
//! Minor version 2 has, in place of that digest, a byte that says whether it is there, the digest if it is, and the reference
//! norm of the last round (f64). It is written once a round was closed under limits.

use std::sync::Arc;

use fl_compress::{Digest, Encoder, Layout};

use super::error::ModelError;
use super::global_model::GlobalModel;
use crate::config::plan::RunPlan;

const MAGIC: &[u8; 4] = b"FLGC";
const MAJOR: u8 = 1;
const MINOR: u8 = 2;
/// Bytes before the values.
const HEAD: usize = 4 + 2 + 8 + 8 + 8;

impl GlobalModel {
    /// The bytes of a checkpoint. Needs as much memory again as model and residual.
    pub fn save(&self) -> Vec<u8> {
        let values = self.model.len() + self.encoder.residual().map_or(0, <[f32]>::len);
        let mut out = Vec::with_capacity(4 * values + 4_096);
        out.extend_from_slice(MAGIC);
        let minor = if self.reference.is_some() {
            2
        } else {
            u8::from(self.step.is_some())
        };
        out.extend_from_slice(&[MAJOR, minor]);
        out.extend_from_slice(&self.layout.fingerprint().to_le_bytes());
        out.extend_from_slice(&self.seed.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        self.model
            .iter()
            .for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        part(&mut out, |out| self.strategy.save(out));
        part(&mut out, |out| self.encoder.save(None, out));
        if minor == 2 {
            out.push(u8::from(self.step.is_some()));
        }
        if let Some(step) = &self.step {
            out.extend_from_slice(&step.0);
        }
        if let Some(reference) = self.reference {
            out.extend_from_slice(&reference.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads what [`GlobalModel::save`] wrote.
    ///
    /// # Errors
    /// `Start`, saying what is wrong: cut short, damaged, of a newer version, of another model or run.
    pub fn load(layout: Arc<Layout>, plan: &RunPlan, bytes: &[u8]) -> Result<Self, ModelError> {
        Self::read(layout, plan, bytes).map_err(|why| ModelError::Start(format!("checkpoint: {why}")))
    }

    fn read(layout: Arc<Layout>, plan: &RunPlan, bytes: &[u8]) -> Result<Self, String> {
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or("it is cut short")?;
        let (head, rest) = body.split_at_checked(HEAD).ok_or("it is cut short")?;
        let (magic, head) = head.split_at(MAGIC.len());
        let (format, head) = head.split_at(2);
        let (major, minor) = (format[0], format[1]);
        if magic != MAGIC {
            return Err("it is none".to_owned());
        }
        if major != MAJOR || minor > MINOR {
            return Err(format!("format {major}.{minor}, this program reads {MAJOR}.{MINOR}"));
        }
        if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
            return Err("its checksum is wrong".to_owned());
        }
        let mut numbers = head.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number));
        let mut number = || numbers.next().ok_or("it is cut short");
        let (fingerprint, seed, version) = (number()?, number()?, number()?);
        if fingerprint != layout.fingerprint() || seed != plan.seed {
            return Err("it is of another model or run".to_owned());
        }
        let (values, rest) = rest.split_at_checked(4 * layout.len()).ok_or("it is cut short")?;
        let (strategy, rest) = taken(rest)?;
        let (encoder, rest) = taken(rest)?;
        let (has_step, rest) = match (minor, rest.split_first()) {
            (2, Some((flag @ 0..=1, rest))) => (*flag == 1, rest),
            (2, _) => return Err("it does not say whether it has a step".to_owned()),
            (minor, _) => (minor == 1, rest),
        };
        let (step, rest) = match has_step {
            false => (None, rest),
            true => {
                let (step, rest) = rest.split_first_chunk().ok_or("it is cut short")?;
                (Some(Digest(*step)), rest)
            }
        };
        let (reference, rest) = match minor {
            2 => {
                let (reference, rest) = rest.split_first_chunk().ok_or("it is cut short")?;
                let reference = f64::from_le_bytes(*reference);
                if !(reference > 0.0 && reference.is_finite()) {
                    return Err(format!("its reference norm is {reference}"));
                }
                (Some(reference), rest)
            }
            _ => (None, rest),
        };
        if !rest.is_empty() {
            return Err("it has bytes left over".to_owned());
        }
        let model: Vec<f32> = values
            .as_chunks()
            .0
            .iter()
            .map(|value| f32::from_le_bytes(*value))
            .collect();
        let mut global = Self::initial(Arc::clone(&layout), model, plan).map_err(|e| e.to_string())?;
        global.strategy.load(strategy)?;
        let (encoder, pending) = Encoder::load(layout, &plan.downlink, encoder).map_err(|e| e.to_string())?;
        if pending.is_some() {
            return Err("a frame is pending in it".to_owned());
        }
        (global.encoder, global.version) = (encoder, version);
        (global.step, global.reference) = (step, reference);
        debug_assert_eq!(global.digest, Digest::of_f32(&global.model));
        Ok(global)
    }
}

/// Appends a part after its length.
fn part(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 8]);
    write(out);
    let len = (out.len() - at - 8) as u64;
    out[at..at + 8].copy_from_slice(&len.to_le_bytes());
}

fn taken(bytes: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let (len, rest) = bytes.split_first_chunk::<8>().ok_or("it is cut short")?;
    let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| "a length is absurd")?;
    rest.split_at_checked(len).ok_or("it is cut short")
}
