//! A whole federation in one process: real server, real clients, mutual TLS over loopback sockets.
//!
//! The demo, the experiments and the load generator call [`federation::run`], and so do the end-to-end tests. Only the distance
//! between the machines is simulated.

pub mod bench_train;
mod changes;
pub mod cli;
pub mod demo;
mod dice;
pub mod display;
pub mod experiment;
pub mod federation;
pub mod fleet;
mod ground;
pub mod hostile;
mod json;
pub mod keep;
pub mod load;
mod presets;
mod process;
pub mod ready;
pub mod score;
mod settings;
pub mod soak;
pub mod sweep;
mod update;
pub mod wire;
pub mod workload;
