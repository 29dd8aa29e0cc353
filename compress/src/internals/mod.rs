//! Doors to private code, for this crate's own benches and fuzz drivers. Nothing here is part of the API.

pub mod bench;
pub mod planes;
