//! The soak test: a federation of real processes on loopback, for minutes, under attack by strangers, a malicious client and a
//! broken client, with kills and a clock that jumps. At the end the test checks every invariant that can be checked from
//! outside.
//!
//! Server and honest clients are separate processes, so that SIGKILL can kill them. All events are bounded in number and drawn
//! from the seed; only loopback is used.

mod command;
mod hostile;
mod outcome;
mod server;
mod stage;

pub(crate) use command::Soak;
pub(crate) use server::SoakServer;
