//! A run for commands that have no server: roles as on the server where run.toml says nothing.

use std::sync::Arc;

use fl_compress::{Digest, Layout, Role, TensorSpec};

use super::message::Hello;
use crate::learner::RunTensors;

/// A run of one round with the trainer's own tensors. Only those that are `travelling` travel: the others belong to a base model.
pub(crate) fn own_run(task: &str, hello: &Hello, travelling: impl Fn(&str) -> bool) -> anyhow::Result<RunTensors> {
    let tensors = hello.tensors.iter().cloned().map(|tensor| {
        let role = if travelling(&tensor.name) {
            Role::by_default(&tensor, hello.kinds.get(&tensor.name).copied(), false)
        } else {
            Role::Frozen
        };
        TensorSpec { role, ..tensor }
    });
    let (travels, aside): (Vec<_>, Vec<_>) = tensors.partition(|tensor| tensor.role.travels());
    Ok(RunTensors {
        run: "local".parse()?,
        instance: Digest::of(task.as_bytes()),
        client: "local".parse()?,
        rounds: 1,
        seed: 42,
        layout: Arc::new(Layout::of(travels)?),
        aside,
        base: None,
        base_file: None,
        space: None,
    })
}
