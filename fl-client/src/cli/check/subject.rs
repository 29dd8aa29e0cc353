//! What the checks without the server look at.

use std::path::Path;

use time::OffsetDateTime;

use crate::client_file::ClientFile;

/// What is checked.
pub(super) struct Subject<'a> {
    pub(super) file: &'a ClientFile,
    pub(super) path: &'a Path,
    pub(super) now: OffsetDateTime,
    /// Steps of a dry run of each task.
    pub(super) steps: Option<u32>,
}
