//! The drivers of the fuzz targets, shared with the tests of fl-compress.

#[path = "../../tests/fuzz/drivers/mod.rs"]
mod drivers;

pub use drivers::*;
