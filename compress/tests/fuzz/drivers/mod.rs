//! What fuzz targets call: each takes any bytes, and panics if something that is promised of them does not hold.
//!
//! Checksums and fingerprints are made right, so that what is behind them is reached. Sizes stay small: a target is to run
//! a few thousand times a second.

#![allow(unreachable_pub, reason = "the crate of the fuzz targets exports the drivers")]

mod choices;
mod planes;
mod seeds;
mod whole;

pub use planes::{index_plane, levels, section, symbols};
pub use seeds::seeds;
pub use whole::{archive, frame, spec, state};

/// A target: any bytes.
pub type Target = fn(&[u8]);

/// Every target by name.
pub const TARGETS: [(&str, Target); 8] = [
    ("frame", frame),
    ("section", section),
    ("index_plane", index_plane),
    ("symbols", symbols),
    ("levels", levels),
    ("state", state),
    ("spec", spec),
    ("archive", archive),
];
