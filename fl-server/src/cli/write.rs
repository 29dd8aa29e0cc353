//! Results in files, which are replaced atomically, or on stdout.

use std::io::{IsTerminal, stdout};
use std::path::Path;

use anyhow::{Context, ensure};
use fl_cli::out;

/// Whether `-o` names the standard output.
pub(super) fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

pub(super) fn is_terminal() -> bool {
    stdout().is_terminal()
}

/// Writes to `output`, or to `file` in the folder `output`.
pub(super) fn write_to(output: Option<&Path>, file: Option<&str>, bytes: &[u8]) -> anyhow::Result<()> {
    match (output.filter(|path| !is_stdout(path)), file) {
        (None, _) => out::bytes(bytes),
        (Some(path), None) => replace(path, bytes),
        (Some(folder), Some(file)) => {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create the folder {}", folder.display()))?;
            replace(&folder.join(file), bytes)
        }
    }
}

/// Writes a file beside `path` and renames it, so that `path` is complete at any moment.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    ensure!(!special, "{} is not a regular file and is not replaced", path.display());
    let side = path.with_extension(format!("tmp-{}", std::process::id()));
    std::fs::write(&side, bytes)
        .and_then(|()| std::fs::rename(&side, path))
        .inspect_err(|_| drop(std::fs::remove_file(&side)))
        .with_context(|| format!("cannot write {}", path.display()))
}
