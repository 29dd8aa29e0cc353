//! The stored frames whose sum is a version of a run's model.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use fl_compress::{Average, Digest, Frame, Layout, TensorSpec};
use fl_proto::RunName;
use serde::{Deserialize, Serialize};

use crate::model::persistence_error::PersistenceError;
use crate::model::space::StoredSpace;
use crate::model::stored_layout::{self, StoredTensor};
use crate::storage::blobs;
use crate::storage::disk::open_file;

/// The frames whose sum is a model: one snapshot, then model updates.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ModelFrames {
    pub(crate) run: String,
    pub(crate) version: u64,
    /// Digest of the model.
    pub(crate) model: String,
    pub(crate) layout: Vec<StoredTensor>,
    /// The tensors that do not travel.
    pub(crate) aside: Vec<StoredTensor>,
    /// Digest of the blob with the frozen ones.
    pub(crate) base: Option<String>,
    /// Where z is what travels.
    pub(crate) space: Option<StoredSpace>,
    /// Digests of the frames, in order.
    pub(crate) frames: Vec<String>,
}

/// A version of a run's model.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) layout: Layout,
    /// Shapes: `[layout.len()]`.
    pub(crate) values: Vec<f32>,
    /// The safetensors file of the frozen tensors, if the model has any.
    pub(crate) base: Option<Vec<u8>>,
}

/// Adds up the frames and checks the digest of the sum, which then becomes the mean of the last versions that `averaged` names.
/// Reads blobs below `data`; a server may be running there.
///
/// # Errors
/// `Stored`, naming the blob that is missing, damaged or of another model; `OtherModel`.
pub(crate) fn assemble(
    data: &Path,
    parts: &ModelFrames,
    averaged: Option<Average>,
) -> Result<Assembled, PersistenceError> {
    let stored = |what: &str, why: String| PersistenceError::stored(what, why);
    let layout = stored_layout::layout(&parts.layout).map_err(|e| stored("stored layout", e.to_string()))?;
    let run = parts
        .run
        .parse()
        .map_err(|e| stored("name of the run", format!("{e}")))?;
    let recorded: Digest = parts
        .model
        .parse()
        .map_err(|e| stored("digest of the model", format!("{e}")))?;
    let mut model = vec![0.0; layout.len()];
    for name in &parts.frames {
        let (path, bytes) = blob(data, &run, name)?;
        let frame = Frame::parse(&bytes, &layout).map_err(|e| unusable(&path, &e))?;
        frame.apply(&mut model).map_err(|e| unusable(&path, &e))?;
    }
    let found = Digest::of_f32(&model);
    if found != recorded {
        return Err(PersistenceError::OtherModel {
            version: parts.version,
            found,
            recorded,
        });
    }
    if let Some(average) = averaged {
        // The first frame is version 0, and the rest lead from one version to the next, also around a rollback.
        let versions = parts.frames.len().saturating_sub(1) as u64;
        let updates = parts.frames.iter().rev().take(average.updates(versions));
        let updates = updates.map(|name| Ok(blob(data, &run, name)?.1));
        let updates = updates.collect::<Result<Vec<_>, PersistenceError>>()?;
        let applied = average.apply(&layout, &updates, &mut model);
        applied.map_err(|e| stored("a model update", e.to_string()))?;
    }
    let base = parts.base.as_ref().map(|base| blob(data, &run, base));
    let base = base.transpose()?.map(|(_, bytes)| bytes);
    let (Some(space), Some(w0)) = (parts.space, &base) else {
        return Ok(Assembled {
            layout,
            values: model,
            base,
        });
    };
    let aside: Vec<TensorSpec> = parts.aside.iter().map(|tensor| tensor.0.clone()).collect();
    let expanded = space.expand(&layout, &aside, w0, &model);
    let (layout, values) = expanded.map_err(|e| stored("space of the run", e.to_string()))?;
    Ok(Assembled {
        layout,
        values,
        base: None,
    })
}

/// The bytes of the blob of this digest, and its file.
fn blob(data: &Path, run: &RunName, digest: &str) -> Result<(PathBuf, Vec<u8>), PersistenceError> {
    let digest: Digest = digest
        .parse()
        .map_err(|e| PersistenceError::stored("digest of a blob", format!("{e}")))?;
    let path = blobs::find(data, run, &digest);
    let mut bytes = Vec::new();
    open_file(&path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|e| unusable(&path, &e))?;
    if Digest::of(&bytes) != digest {
        return Err(unusable(&path, &"it is damaged: its bytes have another digest"));
    }
    Ok((path, bytes))
}

fn unusable(blob: &Path, why: &dyn std::fmt::Display) -> PersistenceError {
    PersistenceError::stored(format_args!("blob {}", blob.display()), why)
}
