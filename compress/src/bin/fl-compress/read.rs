//! Reads safetensors files and archives. Errors name the file, the tensor and the offset.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use fl_compress::weights::{self, IntegerTensor, Weights};
use fl_compress::{Archive, Error, Frame, Layout};

use crate::failure::Failure;
use crate::limit::Limit;

pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let found = std::fs::metadata(path).map_err(|why| Failure::input(path, why))?;
    if found.file_type().is_char_device() {
        // `/dev/zero` never ends.
        return Err(Failure::input(path, "a device, not a file"));
    }
    std::fs::read(path).map_err(|why| Failure::input(path, why))
}

/// Parses the safetensors file `bytes`, read from `path`.
pub(crate) fn weights<'a>(path: &Path, bytes: &'a [u8]) -> Result<Weights<'a>, Failure> {
    Weights::parse(bytes).map_err(|why| Failure::input(path, why))
}

/// The values of `weights`, read from `path`.
pub(crate) fn values(path: &Path, weights: &Weights<'_>) -> Result<Vec<f32>, Failure> {
    weights.values().map_err(|why| Failure::input(path, why))
}

/// Pairs up the integer tensors of two files, the second of which was read from `path`.
///
/// # Errors
/// `Input` if a tensor is in only one of the files.
pub(crate) fn pairs<'t, 'a>(
    path: &Path,
    one: &'t [IntegerTensor<'a>],
    two: &'t [IntegerTensor<'a>],
) -> Result<Vec<(&'t IntegerTensor<'a>, &'t IntegerTensor<'a>)>, Failure> {
    for (tensors, others, how) in [(one, two, "missing"), (two, one, "not expected")] {
        for IntegerTensor { name, .. } in tensors {
            if others.iter().all(|other| other.name != *name) {
                let why = format!("does not match: tensor `{name}` is {how}");
                return Err(Failure::input(path, why));
            }
        }
    }
    Ok(one.iter().zip(two).collect())
}

/// Succeeds if the layout `have`, read from `path`, equals `want`.
pub(crate) fn same(path: &Path, have: &Layout, want: &Layout) -> Result<(), Failure> {
    weights::expect_same(have, want).map_err(|why| Failure::input(path, why))
}

/// Succeeds if `values`, computed with the file at `path`, are finite.
pub(crate) fn all_finite(path: &Path, layout: &Layout, values: &[f32]) -> Result<(), Failure> {
    layout.tensors().iter().try_for_each(|tensor| {
        let finite = weights::expect_finite(tensor, &values[tensor.offset..tensor.offset + tensor.len]);
        finite.map_err(|why| Failure::input(path, format!("the result is {why}")))
    })
}

pub(crate) fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(Archive::MAGIC)
}

/// Parses the archive `bytes`, read from `path`, and checks `limit`.
pub(crate) fn archive<'a>(path: &Path, bytes: &'a [u8], limit: &Limit) -> Result<Archive<'a>, Failure> {
    let cut = bytes.len() < Archive::MAGIC.len() && Archive::MAGIC.starts_with(bytes);
    if !is_archive(bytes) && (!cut || bytes.is_empty()) {
        return Err(Failure::input(path, "not an fl-compress archive (.flz)"));
    }
    let archive = Archive::parse(bytes).map_err(|why| Failure::payload(path, &why))?;
    limit.check(path, &archive)?;
    Ok(archive)
}

/// Parses the frame of `archive`, read from `path`.
pub(crate) fn frame<'a>(path: &Path, archive: &'a Archive<'a>) -> Result<Frame<'a>, Failure> {
    Frame::parse(archive.frame, &archive.layout).map_err(|why| payload(path, archive, None, why))
}

/// Why decoding into a file stopped.
pub(crate) enum StopReason {
    /// The archive is invalid.
    Input(Error),
    /// The file could not be written.
    Output(Failure),
}

impl From<Error> for StopReason {
    fn from(why: Error) -> Self {
        Self::Input(why)
    }
}

/// The error `why` of a frame, with the offset converted to an offset in the file, and the tensor at that offset.
pub(crate) fn payload(path: &Path, archive: &Archive<'_>, frame: Option<&Frame<'_>>, why: Error) -> Failure {
    let (Error::Corrupt { offset, .. } | Error::Truncated { offset, .. }) = &why else {
        return Failure::payload(path, &why);
    };
    let tensor = frame.and_then(|frame| tensor_at(frame, archive.frame.len(), *offset));
    let tensor = tensor.map_or(String::new(), |name| format!("tensor `{name}`: "));
    let before = archive.frame_offset;
    let why = match why {
        Error::Corrupt { what, offset } => Error::Corrupt {
            what,
            offset: offset + before,
        },
        Error::Truncated { what, offset } => Error::Truncated {
            what,
            offset: offset + before,
        },
        other => other,
    };
    Failure::corrupt(path, format!("{tensor}{why}"))
}

/// The tensor whose section contains byte `offset` of a frame of `len` bytes.
fn tensor_at<'f>(frame: &'f Frame<'_>, len: usize, offset: usize) -> Option<&'f str> {
    let sections: usize = frame.sections().map(|section| section.bytes.total()).sum();
    // Only the checksum (4 bytes) follows the sections.
    let mut end = len.checked_sub(4 + sections)?;
    let found = frame.sections().find(|section| {
        end += section.bytes.total();
        offset <= end
    });
    let found = found.map(|section| section.tensors);
    found.and_then(|tensors| tensors.first().map(|tensor| tensor.name.as_str()))
}
