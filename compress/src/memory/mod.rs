//! Memory: the state that an encoder carries from one update to the next.
//!
//! | memory | encoded | kept |
//! |---|---|---|
//! | none | `delta` | nothing |
//! | error feedback (EF14) | `delta + decay * residual` | the residual: the part that the frame does not carry |
//! | CAFe (arXiv 2512.22623) | `delta - predictor` | nothing: the predictor is the last model update, which both sides have |
//! | EF21 (Richtarik et al. 2021, algorithm 2) | `delta - shadow` | the shadow: the sum of all accepted frames, which the receiver has too |
//! | DGC (Lin et al. 2018) | the sum of momenta | that sum, and the momentum |
//!
//! All are two-phase: encoding yields a pending state, and the acknowledgement commits it or rolls it back.

pub(crate) mod memory_state;
pub(crate) mod momentum;
pub(crate) mod residual;
