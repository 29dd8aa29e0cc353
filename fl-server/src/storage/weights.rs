//! Models as safetensors files: initial weights and exports.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use fl_compress::weights::{self, Notes, Weights};
use fl_compress::{Error, Layout};

use crate::storage::disk::open_file;

/// Initial weights of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FirstWeights {
    pub(crate) layout: Layout,
    /// `[layout.len()]`
    pub(crate) values: Vec<f32>,
    pub(crate) origin: Origin,
}

/// The notes of a weights file about its origin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Origin {
    /// Seed of `fl-client init`.
    pub(crate) seed: Option<u64>,
    /// Learner of `fl-client init`.
    pub(crate) learner: Option<String>,
}

impl Origin {
    fn of(notes: &Notes) -> Self {
        // A larger number cannot be written in a run.toml.
        let seed = notes.get(weights::SEED).and_then(|seed| seed.parse().ok());
        Self {
            seed: seed.filter(|&seed| i64::try_from(seed).is_ok()),
            learner: notes.get(weights::LEARNER).cloned(),
        }
    }
}

/// A file of first weights cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// There is no such file.
    #[error("model {} is not there; make it with `fl-client init --learner NAME -o {}`", .0.display(), .0.display())]
    Missing(PathBuf),
    /// The file cannot be read.
    #[error("model {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The message of the operating system.
        why: io::Error,
    },
    /// The file is no safetensors file, or holds a tensor of integers or a value that is not finite.
    #[error("model {}: {why}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong, and with which tensor.
        why: Error,
    },
}

/// Reads the file at `path`. F16 and BF16 become F32.
///
/// # Errors
/// If the file cannot be read, is not a safetensors file, or has a tensor of integers or a value that is not finite; the text
/// names the file and the tensor.
pub(crate) fn read(path: &Path) -> Result<FirstWeights, WeightsError> {
    let read = || {
        let mut bytes = Vec::new();
        open_file(path)?.read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = read().map_err(|why| unreadable(path, why))?;
    from_bytes(&bytes).map_err(|why| invalid(path, why))
}

/// Reads the notes of the file at `path`, from its header only.
///
/// # Errors
/// As [`read`], for the header.
pub(crate) fn origin(path: &Path) -> Result<Origin, WeightsError> {
    let file = open_file(path).map_err(|why| unreadable(path, why))?;
    let notes = weights::read_notes(io::BufReader::new(file));
    let notes = notes.map_err(|why| invalid(path, why))?;
    Ok(Origin::of(&notes))
}

fn unreadable(path: &Path, why: io::Error) -> WeightsError {
    let path = path.to_owned();
    match why.kind() {
        io::ErrorKind::NotFound => WeightsError::Missing(path),
        _ => WeightsError::Unreadable { path, why },
    }
}

fn invalid(path: &Path, why: Error) -> WeightsError {
    let path = path.to_owned();
    WeightsError::Invalid { path, why }
}

fn from_bytes(bytes: &[u8]) -> Result<FirstWeights, Error> {
    let weights = Weights::parse(bytes)?;
    weights.expect_floats()?;
    Ok(FirstWeights {
        layout: weights.layout().clone(),
        values: weights.values()?,
        origin: Origin::of(weights.notes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_two_readers_would_read_differently_is_refused() {
        let header = br#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"w":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes(), &header[..], &[0; 24]].concat();
        let why = from_bytes(&bytes).unwrap_err().to_string();
        assert!(why.contains("tensor `w` occurs twice"), "{why}");
    }

    #[test]
    fn what_cannot_be_trained_is_named() {
        let header = br#"{"seen":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes(), &header[..], &[0; 8]].concat();
        assert!(from_bytes(&bytes).unwrap_err().to_string().contains("`seen` is I64"));
    }

    #[test]
    fn the_origin_is_what_the_notes_say_and_nothing_if_they_say_no_number() {
        let layout = Layout::new([("w", vec![2])]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("init.safetensors");
        for (text, seed) in [
            ("42", Some(42)),
            ("9223372036854775807", Some(i64::MAX as u64)),
            ("9223372036854775808", None),
            ("-1", None),
            ("x", None),
        ] {
            let notes = Notes::from([(weights::SEED.to_owned(), text.to_owned())]);
            let bytes = weights::to_safetensors_with(&layout, &[1.0, 2.0], &[], &notes).unwrap();
            std::fs::write(&path, &bytes).unwrap();
            let origin = origin(&path).unwrap();
            assert_eq!((origin.seed, &origin.learner), (seed, &None), "{text}");
            assert_eq!(read(&path).unwrap().origin, origin);
        }
        std::fs::write(&path, weights::to_safetensors(&layout, &[1.0, 2.0]).unwrap()).unwrap();
        assert_eq!(origin(&path).unwrap(), Origin::default());
        for broken in [&b""[..], b"\xff\xff\xff\xff\xff\xff\xff\xff{}", b"\x09\0\0\0\0\0\0\0{}"] {
            std::fs::write(&path, broken).unwrap();
            assert!(
                origin(&path).unwrap_err().to_string().contains("safetensors"),
                "{broken:?}"
            );
        }
        let missing = origin(&dir.path().join("none.safetensors")).unwrap_err().to_string();
        assert!(
            missing.contains("none.safetensors is not there; make it with `fl-client init"),
            "{missing}"
        );
    }
}
