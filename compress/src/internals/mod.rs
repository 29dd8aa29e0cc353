//! Doors to private code, for this crate's own benches and fuzz targets. Nothing here is part of the API.

pub mod bench;
pub mod fuzz;
