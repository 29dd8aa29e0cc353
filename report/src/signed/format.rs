//! Names and versions of the format; docs/reference/report-columns.md describes it.

/// The name of the format, in the first line.
pub(super) const FORMAT: &str = "fl-report-signed";
/// The version of the format. A file of a newer version is refused.
pub(super) const VERSION: u32 = 1;
/// How every signed report begins, up to its version.
pub(super) const BEGINNING: &str = r#"{"kind":"header","format":"fl-report-signed","version":"#;
/// Lines after the tables: authority, certificate, signature.
pub(super) const LAST: usize = 3;

/// The kinds of the lines of tables.
pub(super) const ROUND: &str = "round";
pub(super) const CLIENT: &str = "client";
pub(super) const PARTICIPATION: &str = "participation";
pub(super) const TENSOR: &str = "tensor";
