//! Allots the bytes of a frame to its sections, without encoding.
//!
//! Each section with a knob (the step of its dead zone, or the density of its top-k) has a rate-distortion curve, read off a
//! histogram of its magnitudes ([`curve`]). [`allot`] picks the knobs that spend the bits with the least total error (Shoham
//! and Gersho 1988).
//!
//! Coders deviate from the entropy that the curves estimate, and not equally for all sections. So the encoder codes the frame
//! and corrects each curve by the observed ratio (actual bits / estimated bits), which it keeps for the next frame; one
//! attempt per frame is then usually enough.

pub(crate) mod allot;
pub(crate) mod bound;
pub(crate) mod curve;
pub(crate) mod estimate;
pub(crate) mod rate_controller;
pub(crate) mod watch;
