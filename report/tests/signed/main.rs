//! Signed reports: what holds of them, and what becomes of one that was changed in any way.

mod golden;
mod sample;
mod speed;
mod tampering;
mod trust;
