//! Adaptive binary arithmetic coding: every decision has a probability learnt from like decisions before it, so nothing is
//! sent beside the decisions, and what neighbours, rows and columns have in common is never sent twice.
//!
//! [`coder`] turns decisions into bytes, [`chance`] learns, [`flags`] says which values of a matrix are not zero,
//! [`levels`] adds their signs and magnitudes, [`support`] is flags alone, [`symbols`] is for planes of symbols. The
//! family is that of CABAC (Marpe, Schwarz and Wiegand 2003) and DeepCABAC (Wiedemann et al. 2020); the contexts are ours.

mod chance;
mod coder;
mod columns;
mod flags;
mod levels;
mod row;
mod signs;
mod spread;
mod support;
mod symbols;

pub(crate) use levels::{LevelsDecoder, encode_levels};
pub(super) use support::{Decoder as SupportDecoder, encode as encode_support};
pub(super) use symbols::{Decoder as SymbolsDecoder, encode as encode_symbols};
