//! The global model and the server's state, as bytes: what a restart begins from.
//!
//! Magic, major and minor version, layout fingerprint, seed, version, values, the optimizer's state and the encoder's state,
//! each after its length, the digest of the last model update's frame if clients encode against it, the reference norms of
//! trained values and buffers, CRC-32C of everything before it. Fields as in records.

use std::sync::Arc;

use fl_compress::wire::{Writer, seal, unseal};
use fl_compress::{Digest, Encoder, Layout};

use super::aggregate::References;
use super::error::ModelError;
use super::global_model::GlobalModel;
use crate::config::plan::RunPlan;

const MAGIC: &[u8; 4] = b"FLGC";
const VERSION: [u8; 2] = [1, 0];

impl GlobalModel {
    /// The bytes of a checkpoint. Needs as much memory again as model, residual and optimizer state.
    pub fn save(&self) -> Vec<u8> {
        let values = self.model.len() + self.encoder.residual().map_or(0, <[f32]>::len);
        let mut out = Vec::with_capacity(4 * values + 4_096);
        let mut writer = Writer::new(&mut out);
        writer.head(MAGIC, VERSION);
        writer.u64(self.layout.fingerprint());
        writer.u64(self.seed);
        writer.u64(self.version);
        writer.f32s(&self.model);
        writer.block(|out| self.optimizer.save(out));
        writer.block(|out| self.encoder.save(None, out));
        let References { trained, buffers } = self.references;
        writer.value(&(self.predictor, trained, buffers));
        seal(0, &mut out);
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
        if !bytes.starts_with(MAGIC) {
            return Err("not a checkpoint file (bad magic)".to_owned());
        }
        let text = |e: fl_compress::Error| e.to_string();
        let mut reader = unseal(bytes, MAGIC, VERSION).map_err(text)?;
        let fingerprint = reader.u64("layout").map_err(text)?;
        let seed = reader.u64("seed").map_err(text)?;
        let version = reader.u64("model version").map_err(text)?;
        if fingerprint != layout.fingerprint() || seed != plan.seed {
            return Err("the checkpoint is of another model or run".to_owned());
        }
        let model: Vec<f32> = reader.f32s(layout.len(), "model").map_err(text)?.collect();
        let optimizer = reader.block("optimizer state").map_err(text)?;
        let encoder = reader.block("encoder state").map_err(text)?;
        let (predictor, trained, buffers): (Option<Digest>, Option<f64>, Option<f64>) =
            reader.value("predictor and reference norms").map_err(text)?;
        reader.finish("bytes after the reference norms").map_err(text)?;
        for norm in [trained, buffers].into_iter().flatten() {
            if !(norm > 0.0 && norm.is_finite()) {
                return Err(format!("the reference norm is {norm}"));
            }
        }
        let references = References { trained, buffers };
        let mut global = Self::initial(Arc::clone(&layout), model, plan).map_err(|e| e.to_string())?;
        global.optimizer.load(optimizer)?;
        let (encoder, pending) = Encoder::load(layout, &plan.downlink, encoder).map_err(text)?;
        if pending.is_some() {
            return Err("a frame is pending in the encoder's state".to_owned());
        }
        global.encoder = encoder;
        global.version = version;
        global.predictor = predictor;
        global.references = references;
        debug_assert_eq!(global.digest, Digest::of_f32(&global.model));
        Ok(global)
    }
}
