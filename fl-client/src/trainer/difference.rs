//! Compares the tensors of a trainer's `hello` with those of a run.

use std::collections::BTreeMap;

use fl_compress::TensorSpec;

use super::message::Hello;
use crate::learner::RunTensors;

/// The first difference of a trainer's model from the run's; `None` if there is none.
pub(super) fn difference(run: &RunTensors, hello: &Hello) -> Option<String> {
    let travels = run.layout.tensors().iter().map(TensorSpec::from);
    let wanted: BTreeMap<String, TensorSpec> = travels
        .chain(run.aside.iter().cloned())
        .map(|tensor| (tensor.name.clone(), tensor))
        .collect();
    let mut found = hello.tensors.iter().peekable();
    for (name, wanted) in &wanted {
        if let Some(other) = found.peek().filter(|tensor| tensor.name < *name) {
            return Some(not_expected(&other.name));
        }
        let Some(tensor) = found.next_if(|tensor| tensor.name == *name) else {
            // The Python package leaves out what has no values.
            if wanted.values() == Some(0) {
                continue;
            }
            return Some(format!(
                "the trainer's model has no tensor `{name}`, which the run has; start the run with this model's weights \
                 (`fl-client init --config client.toml`)"
            ));
        };
        if (tensor.dtype, &tensor.shape) != (wanted.dtype, &wanted.shape) {
            return Some(format!(
                "tensor `{name}` of the trainer's model is {} {:?}, but {} {:?} in the run",
                tensor.dtype.name(),
                tensor.shape,
                wanted.dtype.name(),
                wanted.shape
            ));
        }
    }
    found.next().map(|other| not_expected(&other.name))
}

fn not_expected(name: &str) -> String {
    format!(
        "the trainer's model has a tensor `{name}`, which the run does not have; start the run with this model's weights \
         (`fl-client init --config client.toml`)"
    )
}
