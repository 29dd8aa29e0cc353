//! Reads a data file that may be compressed, never beyond its expected size.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use fl_compress::text::unmarked;
use fl_proto::caught;

use super::error::Error;

/// Bytes that are read and converted at once. A multiple of the size of every number.
const PIECE: u64 = 1 << 18;

/// A data file, decompressed as it is read.
pub(super) struct DataFile {
    /// The path with the suffix that was found.
    pub(super) path: PathBuf,
    reader: Box<dyn Read>,
    /// Bytes of a file that is not compressed.
    plain: Option<u64>,
}

impl DataFile {
    /// Opens `path`, or else `path` with the suffix `.gz` or `.xz`.
    pub(super) fn open(path: &Path, hint: &str) -> Result<Self, Error> {
        for ending in ["", ".gz", ".xz"] {
            let mut name = path.as_os_str().to_owned();
            name.push(ending);
            let path = PathBuf::from(name);
            match File::open(&path) {
                Ok(file) => {
                    let found = file.metadata().map_err(|error| Error::io(&path, &error))?;
                    if found.is_dir() {
                        return Err(Error::malformed(&path, "is a folder, not a file"));
                    }
                    return Ok(Self {
                        reader: decoder(&path, BufReader::new(file))?,
                        plain: Some(found.len()).filter(|_| ending.is_empty() && found.is_file()),
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

    /// The next `len` bytes, which are the file's `what`. Allocates as bytes arrive.
    pub(super) fn take(&mut self, len: u64, what: &'static str) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        match self.reader.by_ref().take(len).read_to_end(&mut bytes) {
            Ok(_) => {}
            // A truncated compressed file is reported by the bytes that it yielded.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(Error::unread(&self.path, &error)),
        }
        match bytes.len() as u64 {
            found if found == len => Ok(bytes),
            found => Err(Error::size(&self.path, what, len, found)),
        }
    }

    /// Everything up to the file's end, and the path that was found. Allocates as bytes arrive.
    pub(super) fn all(self, most: u64) -> Result<(Vec<u8>, PathBuf), Error> {
        let path = self.path;
        let mut bytes = Vec::new();
        match self.reader.take(most.saturating_add(1)).read_to_end(&mut bytes) {
            Ok(_) if bytes.len() as u64 <= most => Ok((bytes, path)),
            Ok(_) => Err(Error::malformed(
                &path,
                format!("has more than {most} bytes, the most that are read; split the file"),
            )),
            Err(error) => Err(Error::unread(&path, &error)),
        }
    }

    /// As [`DataFile::all`], without a byte order mark.
    pub(super) fn text(self, most: u64) -> Result<(Vec<u8>, PathBuf), Error> {
        let (bytes, path) = self.all(most)?;
        match unmarked(bytes) {
            Ok(text) => Ok((text, path)),
            Err(why) => Err(Error::malformed(&path, why)),
        }
    }

    /// The next `len` bytes in pieces, which `each` converts; all but the last are [`PIECE`] long. Refuses a file that is not
    /// compressed and too short before the first piece.
    pub(super) fn pieces(
        &mut self,
        len: u64,
        what: &'static str,
        mut each: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut short = self.plain.filter(|&found| found < len);
        let mut read = 0;
        while short.is_none() && read < len {
            let want = (len - read).min(PIECE);
            match self.take(want, what) {
                Ok(bytes) => each(&bytes)?,
                Err(Error::Size { found, .. }) => short = Some(read + found),
                Err(error) => return Err(error),
            }
            read += want;
        }
        match short {
            None => Ok(()),
            Some(found) => Err(Error::size(&self.path, what, len, found)),
        }
    }

    /// How many items of `bytes` each to reserve memory for, if `count` are declared: no more than the file can hold.
    pub(super) fn reservable(&self, count: u64, bytes: usize) -> usize {
        let most = self.plain.unwrap_or(0) / bytes.max(1) as u64;
        usize::try_from(count.min(most)).unwrap_or(0)
    }

    /// Checks that the file ends after the `expected` bytes of `what`.
    pub(super) fn finish(mut self, expected: u64, what: &'static str) -> Result<(), Error> {
        match self.reader.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(Error::size(&self.path, what, expected, expected + 1)),
            // All values are there, but the checksum at the end of the compressed file is not.
            Err(error) => Err(Error::malformed(
                &self.path,
                format!("is cut short or damaged at its end ({error})"),
            )),
        }
    }
}

impl Read for DataFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.reader.read(out)
    }
}

/// A decompressor, whose panic on a damaged file is an error.
struct PanicGuard<R>(R);

impl<R: Read> Read for PanicGuard<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        caught(|| self.0.read(out)).unwrap_or_else(|why| Err(io::Error::new(io::ErrorKind::InvalidData, why)))
    }
}

fn decoder(path: &Path, file: BufReader<File>) -> Result<Box<dyn Read>, Error> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("gz") => Ok(Box::new(PanicGuard(flate2::bufread::GzDecoder::new(file)))),
        Some("xz") => xz(path, file),
        _ => Ok(Box::new(file)),
    }
}

#[cfg(feature = "xz")]
fn xz(_: &Path, file: BufReader<File>) -> Result<Box<dyn Read>, Error> {
    Ok(Box::new(PanicGuard(lzma_rust2::XzReader::new(file, false))))
}

#[cfg(not(feature = "xz"))]
fn xz(path: &Path, _: BufReader<File>) -> Result<Box<dyn Read>, Error> {
    let why = "this program was built without xz; build it with `--features xz`, or unpack the file with `xz -d`";
    Err(Error::malformed(path, why))
}
