//! What an aggregator is.

use std::fmt::Debug;

use crate::config::plan::{MethodInfo, MethodSpec};
use crate::model::error::ModelError;
use crate::model::updates::Updates;

/// Makes one update of the updates of a round. Deterministic: a function of the updates and of what each of them counts
/// for. [`Updates`] are in the order of the clients' names, whatever the order of their arrival; an aggregator adds them up in
/// that order.
///
/// Memory: the updates lie in files and are decoded one at a time. An aggregator allocates a multiple of the model that does
/// not grow with the number of updates.
pub trait Aggregator: Debug + Send {
    /// Writes the aggregate to `out`, which holds zeros. The method's [`bound`](MethodInfo::bound) holds for the result.
    /// May be called twice for a round: the second time with what the limits leave of the updates. Shapes: `out: [len]`, the
    /// length of the model.
    ///
    /// # Errors
    /// Those of [`Updates`].
    fn aggregate(&self, updates: &mut Updates<'_>, out: &mut [f32]) -> Result<(), ModelError>;
}

/// A registered aggregator: in [`METHODS`](super::METHODS), or by
/// [`Methods::with_aggregator`](crate::model::Methods::with_aggregator).
#[derive(Debug)]
pub struct AggregatorMethod {
    /// Name, keys, bound, and the codecs of updates that the method works on.
    pub info: MethodInfo,
    /// Makes the aggregator.
    pub build: fn(spec: &MethodSpec) -> Box<dyn Aggregator>,
}

/// The aggregator of a plan.
///
/// # Errors
/// `Start` if the plan's method is not an aggregator: cannot happen, the plan was read with a list of aggregators.
pub(crate) fn build(spec: &MethodSpec) -> Result<Box<dyn Aggregator>, ModelError> {
    let method = spec.method::<AggregatorMethod>();
    let method = method.ok_or_else(|| ModelError::Start(format!("`{}` is not an aggregator", spec.name())))?;
    Ok((method.build)(spec))
}
