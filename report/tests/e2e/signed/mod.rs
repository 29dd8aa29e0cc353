//! Signed reports: what verification proves, and that every change is found.

mod golden;
mod sample;
mod speed;
mod tampering;
mod trust;
