//! A report that proves itself: JSON lines, each sealed with all lines before it, signed by the server at the end.
//!
//! [`write()`] makes one; [`verify()`] reads one without any network and finds every changed byte, and where. The format
//! is in `docs/reference/report-columns.md`.
//!
//! Nothing here reads a clock or a file: certificates and keys are texts, the time is an argument. Nothing in a file is
//! believed before its seals hold, and no bytes whatsoever make it panic.

mod chain;
mod consistency;
mod lines;
mod place;
mod rows;
mod signature;
mod verify;
mod write;

pub use consistency::Differences;
pub use place::{Change, Place};
pub use signature::{SignError, Signer};
pub use verify::{Verified, VerifyError, verify};
pub use write::write;

/// Name of the format, in the first line.
const FORMAT: &str = "fl-report-signed";
/// Version of the format. A file of a newer one is refused.
const VERSION: u32 = 1;
/// What every signed report begins with; its version follows.
const BEGINNING: &str = r#"{"kind":"header","format":"fl-report-signed","version":"#;
