//! The client against a scripted server on a real socket: the whole protocol, and its failure modes.
#![allow(clippy::unwrap_used)]

mod another_run;
mod averaged;
mod conditions;
mod crashes;
mod impostors;
mod kept_state;
mod models;
mod predicted;
#[cfg(unix)]
mod reload;
mod rounds;
mod stream;
mod support;
mod traffic;
mod trust;
mod waiting;
