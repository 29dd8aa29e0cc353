//! The wire of an experiment: the whole federation over TLS, or the same federation in memory with the bytes that the wire would
//! take.
//!
//! `engine` reads the table of the file; `model` carries the messages of a federation in memory, `work` has the clients
//! do theirs, `traffic` counts the bytes and `costs` holds what each takes on a socket; `links` is the virtual clock.

mod costs;
mod engine;
mod links;
mod model;
mod traffic;
mod work;

pub use engine::{Engine, Wire};
pub use model::run;
