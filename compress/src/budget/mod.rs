//! A frame that takes no more bytes than it may, and little less.
//!
//! Each unit with a knob (the step of its dead zone, or the density of its top-k) has a rate-distortion curve, read off a
//! histogram of its magnitudes ([`curve`]). One Lagrange multiplier for the frame chooses a point on each, the one of least
//! `error + lambda * bits` (Shoham and Gersho 1988), and a common factor of all knobs makes the sum of the bits what it is
//! to be. Nothing is coded for that.
//!
//! Coders do better than the entropy that the curves tell, or a little worse, and not for all units alike. So the frame is
//! coded, and what each unit took per bit foretold corrects its curve; the quotients are remembered from frame to frame, and
//! then one try is often enough.

pub(crate) mod allot;
pub(crate) mod curve;
pub(crate) mod estimate;
pub(crate) mod rate_controller;
pub(crate) mod watch;
