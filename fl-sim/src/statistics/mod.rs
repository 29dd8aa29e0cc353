//! Figures over several trials: means, paired differences, the Pareto front.

mod interval;
mod pareto;
mod quality;
mod student;

pub(crate) use interval::{Estimate, Spread};
pub(crate) use pareto::front;
pub(crate) use quality::Quality;
