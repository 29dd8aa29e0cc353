//! A whole federation in one process: real server, real clients, mutual TLS over loopback sockets.
//!
//! The demo, the experiments and the load generator are programs on top of [`federation::run`]; the end-to-end tests
//! use the same function. Nothing is simulated but the distance between the machines.

pub mod cli;
pub mod demo;
pub mod display;
pub mod experiment;
pub mod federation;
pub mod load;
pub mod ready;
pub mod score;
pub mod soak;
mod update;
pub mod workload;
