//! Signed reports: the guarantees of verification, and the detection of every change.

mod golden;
mod sample;
mod speed;
mod tampering;
mod trust;
