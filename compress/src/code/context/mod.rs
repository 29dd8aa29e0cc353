//! Context-adaptive binary arithmetic coding. The probability of each decision is learned from earlier decisions in the
//! same context, so the stream has no frequency tables, and the correlation of neighbors, rows and columns costs no
//! bits.
//!
//! [`coder`] is the arithmetic coder, [`chance`] the adaptive probability. [`flags`] codes which values of a matrix are
//! nonzero, [`levels`] adds signs and magnitudes, [`support`] is flags alone, [`symbols`] codes planes of symbols. The
//! scheme follows CABAC (Marpe, Schwarz and Wiegand 2003) and DeepCABAC (Wiedemann et al. 2020); the context models are
//! our own.

pub(crate) mod chance;
pub(crate) mod coder;
pub(crate) mod columns;
pub(crate) mod flags;
pub(crate) mod levels;
pub(crate) mod row;
pub(crate) mod signs;
pub(crate) mod spread;
pub(crate) mod support;
pub(crate) mod symbols;
