//! A federated-learning client: trains where the data is and sends only what matters.

pub mod data;
pub mod learner;
pub mod learners;
pub mod ops;
pub mod weights;

pub use learner::{Evaluation, Fit, FitPlan, Learner, Progress};
