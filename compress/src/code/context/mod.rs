//! Adaptive binary arithmetic coding: every decision has a probability learnt from like decisions before it, so nothing is
//! sent beside the decisions, and what neighbours, rows and columns have in common is never sent twice.
//!
//! [`coder`] turns decisions into bytes, [`chance`] learns, [`flags`] says which values of a matrix are not zero,
//! [`levels`] adds their signs and magnitudes, [`support`] is flags alone, [`symbols`] is for planes of symbols. The
//! family is that of CABAC (Marpe, Schwarz and Wiegand 2003) and DeepCABAC (Wiedemann et al. 2020); the contexts are ours.

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
