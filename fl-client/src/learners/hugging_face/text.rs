//! Small text files of a model's folder.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, ensure};

/// The text of a file of at most `limit` bytes.
pub(super) fn read_text(path: &Path, limit: u64) -> anyhow::Result<String> {
    let context = || path.display().to_string();
    let file = fl_proto::open_regular(File::options().read(true), path).with_context(context)?;
    let mut text = String::new();
    file.take(limit + 1).read_to_string(&mut text).with_context(context)?;
    ensure!(
        text.len() as u64 <= limit,
        "{}: more than the {limit} bytes that such a file can have",
        path.display()
    );
    Ok(text)
}
