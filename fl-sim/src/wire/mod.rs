//! The wire of an experiment: the whole federation over TLS, or the same federation in memory with the bytes that the wire would
//! take.
//!
//! `engine` reads the table of the file; `model` carries the messages of a federation in memory, `traffic` counts their
//! bytes and `costs` holds what each takes on a socket.

mod costs;
mod engine;
mod model;
mod traffic;

pub use engine::{Engine, Wire};
pub use model::run;
