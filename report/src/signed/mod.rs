//! Signed reports: JSON lines, each sealed together with all lines before it, and a signature of the server at the end.
//!
//! [`write()`] makes one. [`verify()`] needs no network and finds every changed byte, and where it is. The format is
//! documented in `docs/reference/report-columns.md`.
//!
//! Nothing here reads a clock or a file: certificates and keys are texts, the time is an argument. No byte of a file is trusted
//! before its seals hold, and no file makes this module panic.

mod certificate;
mod chain;
mod consistency;
mod differences;
mod error;
mod format;
mod hex;
mod lines;
mod place;
mod rows;
mod seals;
mod signer;
mod verify;
mod write;

pub use differences::Differences;
pub use error::VerifyError;
pub use place::{Change, Place};
pub use signer::{SignError, Signer};
pub use verify::{Verified, verify};
pub use write::write;
