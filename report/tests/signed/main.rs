//! Signed reports: what holds of them, and what becomes of one that was changed in any way.

// Helpers are tests too: clippy.toml allows unwrap only inside functions marked as such.
#![allow(clippy::unwrap_used)]

mod golden;
mod sample;
mod speed;
mod tampering;
mod trust;
