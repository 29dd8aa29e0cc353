//! A whole federation in one process: real server, real clients, mutual TLS over loopback sockets.
//!
//! The demo, the experiments and the load generator call [`federation::run`], and so do the end-to-end tests. Only the distance
//! between the machines is simulated.

mod bench_train;
mod changes;
pub mod cli;
mod demo;
mod dice;
mod display;
pub mod experiment;
pub mod federation;
mod fleet;
mod ground;
mod hostile;
mod json;
mod keep;
mod load;
mod presets;
mod process;
mod promises;
pub mod ready;
pub mod score;
mod settings;
mod soak;
mod statistics;
mod sweep;
mod update;
pub mod wire;
pub mod workload;
mod wrong;
