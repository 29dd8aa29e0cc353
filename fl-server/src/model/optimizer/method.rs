//! What a server optimizer is.

use std::fmt::Debug;

use crate::config::plan::{Key, MethodInfo, MethodSpec, Range};
use crate::model::error::ModelError;

/// Turns the aggregate of each round into the model update. Deterministic: the same aggregates in the same order give the
/// same bits, on every machine, so that a restart and an audit can repeat the rounds. No clock, no randomness, no threads
/// that change the order of a sum.
pub trait ServerOptimizer: Debug + Send {
    /// Turns the aggregate of `round` into the model update, in place. The method's [`bound`](MethodInfo::bound) holds for
    /// the result. Shapes: `aggregate: [len]`, the length that the optimizer was built for.
    fn update(&mut self, round: u64, aggregate: &mut [f32]);

    /// Appends the state that the next round needs to `out`; nothing if there is none. A checkpoint holds these bytes.
    fn save(&self, out: &mut Vec<u8>);

    /// Restores the state that [`ServerOptimizer::save`] wrote.
    ///
    /// # Errors
    /// A text that says what is wrong with `bytes`; the state is unspecified then.
    fn load(&mut self, bytes: &[u8]) -> Result<(), String>;
}

/// A registered optimizer: in [`METHODS`](super::METHODS), or by
/// [`Methods::with_optimizer`](crate::model::Methods::with_optimizer).
#[derive(Debug)]
pub struct OptimizerMethod {
    /// Name, keys and bound.
    pub info: MethodInfo,
    /// Creates the optimizer in its state before round 1, for a model of `len` values.
    pub build: fn(spec: &MethodSpec, len: usize) -> Box<dyn ServerOptimizer>,
}

/// The key of a learning rate. `about`: what it does.
pub(super) const fn learning_rate(default: f32, about: &'static str) -> Key {
    Key {
        name: "learning_rate",
        default,
        range: Range::Positive,
        about,
    }
}

/// The optimizer of a plan, for a model of `len` values.
///
/// # Errors
/// `Start` if the plan's method is not an optimizer: cannot happen, the plan was read with a list of optimizers.
pub(crate) fn build(spec: &MethodSpec, len: usize) -> Result<Box<dyn ServerOptimizer>, ModelError> {
    let method = spec.method::<OptimizerMethod>();
    let method = method.ok_or_else(|| ModelError::Start(format!("`{}` is not an optimizer", spec.name())))?;
    Ok((method.build)(spec, len))
}
