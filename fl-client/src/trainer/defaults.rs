//! The roles of a model's tensors where no run says otherwise, as on the server.

use std::sync::Arc;

use fl_compress::{Digest, Layout, Role, TensorSpec};

use super::message::Hello;
use crate::learner::RunTensors;

/// A run of one round with the trainer's own tensors, for commands that have no server.
///
/// # Errors
/// If the tensors that travel are no layout.
pub(crate) fn own_run(task: &str, hello: &Hello) -> anyhow::Result<RunTensors> {
    let tensors = hello.tensors.iter().cloned().map(|tensor| TensorSpec {
        role: role_of(&tensor),
        ..tensor
    });
    of(task, tensors)
}

/// As [`own_run`], where only the tensors called `travelling` travel: the others belong to a base model.
pub(crate) fn run_with(task: &str, hello: &Hello, travelling: &dyn Fn(&str) -> bool) -> anyhow::Result<RunTensors> {
    let tensors = hello.tensors.iter().cloned().map(|tensor| {
        let role = match role_of(&tensor) {
            role if travelling(&tensor.name) => role,
            _ => Role::Frozen,
        };
        TensorSpec { role, ..tensor }
    });
    of(task, tensors)
}

fn of(task: &str, tensors: impl Iterator<Item = TensorSpec>) -> anyhow::Result<RunTensors> {
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
    })
}

/// BatchNorm's names are known; other floating-point tensors are trained and other integers are not.
fn role_of(tensor: &TensorSpec) -> Role {
    let name = tensor.name.as_str();
    if tensor.dtype.is_float() {
        let running = name.ends_with("running_mean") || name.ends_with("running_var");
        if running { Role::Buffer } else { Role::Trained }
    } else if name.ends_with("num_batches_tracked") {
        Role::Counter
    } else {
        Role::Frozen
    }
}
