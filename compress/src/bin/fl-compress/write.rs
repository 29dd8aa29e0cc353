//! Outputs: files that are there whole or not at all, and text on stdout.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use fl_compress::{Layout, weights};

use crate::failure::Failure;

/// Writes `bytes` to `path`: to a side file, to the disk, and only then in the place of what was there. What is no regular
/// file (a pipe, `/dev/null`) is written as it stands.
pub(crate) fn file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    let written = if special {
        append(path, bytes)
    } else {
        replace(path, bytes)
    };
    written.map_err(|why| Failure::output(path, why))
}

/// Writes `values` of `layout` as safetensors to `path`.
pub(crate) fn values(path: &Path, layout: &Layout, values: &[f32]) -> Result<(), Failure> {
    let bytes = weights::to_safetensors(layout, values).map_err(|why| Failure::output(path, why))?;
    file(path, &bytes)
}

/// Prints `text`, which ends its lines itself. That nobody reads on is no error.
pub(crate) fn stdout(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Output(format!("cannot write to stdout: {why}")))
        }
        _ => Ok(()),
    }
}

/// `report` as JSON that people can read too.
pub(crate) fn json(report: &impl serde::Serialize) -> String {
    let text = serde_json::to_string_pretty(report).expect("reports hold strings, numbers and lists");
    text + "\n"
}

fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match File::options().write(true).open(path)?.write_all(bytes) {
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Where a link leads is replaced, not the link.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).to_owned();
    let side = side_of(&path);
    let write = || {
        let mut file = File::create(&side)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&side, &path)?;
        File::open(&folder)?.sync_all()
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&side)))
}

/// Beside `path`, so that a rename does not cross file systems; of this process alone.
fn side_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}
