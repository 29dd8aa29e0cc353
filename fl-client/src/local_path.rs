//! Where learners keep what outlives the client and stays on this device.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::learner::RunTensors;

/// The path of what a learner keeps for one run in the state folder, such as local tensors. Its folder is created.
///
/// # Errors
/// If its folder cannot be created.
pub fn local_path(state: &Path, run: &RunTensors, extension: &str) -> anyhow::Result<PathBuf> {
    let folder = std::path::absolute(state)?.join("local");
    fl_proto::make_private_folder(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder.join(format!("{}-{}.{extension}", run.run, run.instance)))
}
