//! The drivers of the fuzz targets. Each takes arbitrary bytes and panics if an invariant does not hold.
//!
//! Drivers fix checksums and fingerprints, so that inputs reach the code behind them. Sizes stay small, for a few
//! thousand runs per second.

#![allow(unreachable_pub, reason = "the crate of the fuzz targets exports the drivers")]

mod choices;
mod planes;
mod seeds;
mod whole;

pub use planes::{index_plane, levels, section, symbols};
pub use seeds::seeds;
pub use whole::{archive, frame, spec, state};

/// A fuzz target, which takes arbitrary bytes.
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
