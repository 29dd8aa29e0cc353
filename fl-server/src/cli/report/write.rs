//! Where an answer goes: standard output, a file that is replaced as a whole, or a file of a folder.

use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::{Context, ensure};

use crate::cli::out;

/// Whether `-o` stands for standard output.
pub(super) fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether a person would see what is written to standard output.
pub(super) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Writes to `output`, or to `file` in the folder `output`.
pub(super) fn write(output: Option<&Path>, file: Option<&str>, bytes: &[u8]) -> anyhow::Result<()> {
    match (output.filter(|path| !is_stdout(path)), file) {
        (None, _) => out::bytes(bytes),
        (Some(path), None) => replace(path, bytes),
        (Some(folder), Some(file)) => {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
            replace(&folder.join(file), bytes)
        }
    }
}

/// Writes a file beside `path` and renames it, so that `path` is never half-written.
pub(in crate::cli) fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    ensure!(
        !special,
        "{} is not a regular file and will not be replaced",
        path.display()
    );
    let side = path.with_extension(format!("tmp-{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        std::fs::write(&side, bytes)?;
        std::fs::rename(&side, path)
    };
    write()
        .inspect_err(|_| drop(std::fs::remove_file(&side)))
        .with_context(|| format!("cannot write {}", path.display()))
}
