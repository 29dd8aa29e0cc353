//! The session of a client: connect, join, act on the state of the run, and reconnect after every failure.

mod connection;
mod fetch_base;
mod fetch_model;
mod guest;
mod pause;
mod reload;
mod renewal;
mod round_watch;
mod run;
mod serve;
mod session_state;
mod stop_on_drop;
mod traffic_log;
mod training;
mod unavailable;
mod upload;

pub use run::{Outcome, run};
