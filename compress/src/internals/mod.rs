//! Access to private code for the benches and fuzz drivers of this crate. Not part of the API.

pub mod bench;
pub mod planes;
