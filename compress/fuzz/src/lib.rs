//! The drivers of the fuzz targets, which the tests of fl-compress replay.

#[path = "../../tests/fuzz/drivers/mod.rs"]
mod drivers;

pub use drivers::*;
