//! Server optimizers: from the aggregate of a round's updates to the model update. One file each; a new one is a file here
//! and a line in [`METHODS`].

mod adaptive;
mod fedadagrad;
mod fedadam;
mod fedavg;
mod fedavgm;
mod fedyogi;
mod method;
mod nesterov;
mod state;

pub(super) use method::build;
pub use method::{OptimizerMethod, ServerOptimizer};
pub use state::{load_vectors, save_vectors};

/// Every optimizer of this program. The first is the default.
pub static METHODS: &[&OptimizerMethod] = &[
    &fedavg::METHOD,
    &fedavgm::METHOD,
    &fedadam::METHOD,
    &fedyogi::METHOD,
    &fedadagrad::METHOD,
    &nesterov::METHOD,
];
