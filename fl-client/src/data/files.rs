//! Reading a data file that may be compressed, never beyond the size that is expected.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::error::Error;

/// A data file, decompressed as it is read.
pub(super) struct DataFile {
    /// The file as it was found, with its ending.
    pub(super) path: PathBuf,
    reader: Box<dyn Read>,
}

impl DataFile {
    /// Opens `path`, or else `path` with `.gz` or `.xz` at its end.
    ///
    /// # Errors
    /// `Missing` with `hint` if there is none of the three, `Io` if one cannot be opened, `Malformed` if this program cannot
    /// decompress it.
    pub(super) fn open(path: &Path, hint: &str) -> Result<Self, Error> {
        for ending in ["", ".gz", ".xz"] {
            let mut name = path.as_os_str().to_owned();
            name.push(ending);
            let path = PathBuf::from(name);
            match File::open(&path) {
                Ok(file) => {
                    return Ok(Self {
                        reader: decoder(&path, BufReader::new(file))?,
                        path,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io(&path, &error)),
            }
        }
        Err(Error::Missing {
            path: path.to_owned(),
            hint: hint.to_owned(),
        })
    }

    /// The next `len` bytes, which are the file's `what`. Memory grows with the bytes that are there.
    ///
    /// # Errors
    /// `Size` if the file ends before, `Malformed` if it cannot be decompressed, `Io` if it cannot be read.
    pub(super) fn take(&mut self, len: u64, what: &'static str) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        match self.reader.by_ref().take(len).read_to_end(&mut bytes) {
            Ok(_) => {}
            // A compressed file that stops half way: report it by what could be had of it.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => {
                return Err(Error::malformed(
                    &self.path,
                    format!("cannot be decompressed ({error}); fetch it again"),
                ));
            }
            Err(error) => return Err(Error::io(&self.path, &error)),
        }
        let found = bytes.len() as u64;
        if found == len {
            return Ok(bytes);
        }
        Err(Error::Size {
            path: self.path.clone(),
            what,
            expected: len,
            found,
        })
    }

    /// Makes sure that nothing follows the `expected` bytes of `what` that were taken.
    ///
    /// # Errors
    /// `Size` if something does, `Malformed` if a compressed file's own checksum is missing or wrong.
    pub(super) fn finish(mut self, expected: u64, what: &'static str) -> Result<(), Error> {
        match self.reader.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(Error::Size {
                path: self.path,
                what,
                expected,
                found: expected + 1,
            }),
            // All values are there, but not the checksum that a compressed file ends with.
            Err(error) => Err(Error::malformed(
                &self.path,
                format!("is cut short or damaged at its end ({error})"),
            )),
        }
    }
}

fn decoder(path: &Path, file: BufReader<File>) -> Result<Box<dyn Read>, Error> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("gz") => Ok(Box::new(flate2::bufread::GzDecoder::new(file))),
        Some("xz") => xz(path, file),
        _ => Ok(Box::new(file)),
    }
}

#[cfg(feature = "xz")]
fn xz(_: &Path, file: BufReader<File>) -> Result<Box<dyn Read>, Error> {
    Ok(Box::new(lzma_rust2::XzReader::new(file, false)))
}

#[cfg(not(feature = "xz"))]
fn xz(path: &Path, _: BufReader<File>) -> Result<Box<dyn Read>, Error> {
    let why = "this program was built without xz; build it with `--features xz`, or unpack the file with `xz -d`";
    Err(Error::malformed(path, why))
}
