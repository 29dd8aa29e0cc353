//! Writes outputs: files atomically, and text to stdout.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fl_compress::Layout;
use fl_compress::weights::{Envelope, IntegerTensor, Notes};

use crate::failure::Failure;

/// Refuses an `output` that is the same file as `input`, which would be overwritten.
pub(crate) fn apart(input: &Path, output: &Path) -> Result<(), Failure> {
    if let (Ok(found), Ok(other)) = (std::fs::metadata(input), std::fs::metadata(output))
        && found.is_file()
        && (found.dev(), found.ino()) == (other.dev(), other.ino())
    {
        return Err(Failure::Usage(format!(
            "{} is the input and would be overwritten: name another output file",
            output.display()
        )));
    }
    Ok(())
}

/// Writes `bytes` to `path` as [`stream`] does.
pub(crate) fn file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    stream(path, |out| out.bytes(bytes))
}

/// Writes `values` of `layout` and `integers` as safetensors to `path`.
pub(crate) fn values(
    path: &Path,
    layout: &Layout,
    values: &[f32],
    integers: &[IntegerTensor<'_>],
) -> Result<(), Failure> {
    let around = Envelope::new(layout, integers, &Notes::new()).map_err(|why| Failure::output(path, why))?;
    stream(path, |out| {
        out.bytes(&around.head)?;
        out.values(values)?;
        out.bytes(&around.tail)
    })
}

/// Writes the output of `make` to `path`: to a side file, synced to disk, then renamed over the target. Writes directly
/// to special files (a pipe, `/dev/null`).
pub(crate) fn stream(path: &Path, make: impl FnOnce(&mut Output<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
    let special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    if special {
        let open = File::options().write(true).open(path);
        let mut out = Output::new(path, open.map_err(|why| Failure::output(path, why))?, true);
        make(&mut out)?;
        out.end().map(drop)
    } else {
        replace(path, make)
    }
}

/// An open output file.
pub(crate) struct Output<'p> {
    path: &'p Path,
    file: BufWriter<File>,
    /// May be a pipe: a broken pipe is not an error.
    is_special: bool,
}

impl<'p> Output<'p> {
    fn new(path: &'p Path, file: File, is_special: bool) -> Self {
        let file = BufWriter::new(file);
        Self { path, file, is_special }
    }

    /// Writes `bytes`.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.file.write_all(bytes);
        self.judge(written)
    }

    /// Writes `values`, four bytes each, little-endian.
    pub(crate) fn values(&mut self, values: &[f32]) -> Result<(), Failure> {
        let mut buffer = [0; 16 * 1024];
        for block in values.chunks(buffer.len() / 4) {
            for (bytes, value) in buffer.as_chunks_mut().0.iter_mut().zip(block) {
                *bytes = value.to_le_bytes();
            }
            self.bytes(&buffer[..4 * block.len()])?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<File, Failure> {
        let flushed = self.file.flush();
        self.judge(flushed)?;
        Ok(self.file.into_parts().0)
    }

    fn judge(&self, written: io::Result<()>) -> Result<(), Failure> {
        match written {
            Err(why) if self.is_special && why.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|why| Failure::output(self.path, why)),
        }
    }
}

/// Prints `text`. A broken pipe is not an error.
pub(crate) fn stdout(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Output(format!("cannot write to stdout: {why}")))
        }
        _ => Ok(()),
    }
}

/// Prints a warning on stderr. Ignores a closed stderr.
pub(crate) fn warning(text: &str) {
    let _ = writeln!(io::stderr(), "fl-compress: warning: {text}");
}

/// `report` as indented JSON.
pub(crate) fn json(report: &impl serde::Serialize) -> String {
    let text = serde_json::to_string_pretty(report).expect("reports hold strings, numbers and lists");
    text + "\n"
}

fn replace(asked: &Path, make: impl FnOnce(&mut Output<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
    let failed = |why: io::Error| Failure::output(asked, why);
    // Replaces the target of a symbolic link, not the link.
    let path = std::fs::canonicalize(asked).unwrap_or_else(|_| asked.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).to_owned();
    let side = side_of(&path);
    let write = || {
        let mut out = Output::new(asked, File::create(&side).map_err(failed)?, false);
        make(&mut out)?;
        out.end()?.sync_all().map_err(failed)?;
        std::fs::rename(&side, &path).map_err(failed)?;
        File::open(&folder).and_then(|folder| folder.sync_all()).map_err(failed)
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&side)))
}

/// In the folder of `path`, so that the rename stays within one file system; unique to this process.
fn side_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}
