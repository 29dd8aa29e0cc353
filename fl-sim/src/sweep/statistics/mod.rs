//! What trials say together: means, paired differences, the Pareto front.

mod interval;
mod pareto;
mod quality;
mod student;

pub use interval::{Estimate, Spread};
pub(super) use pareto::front;
pub use quality::Quality;
