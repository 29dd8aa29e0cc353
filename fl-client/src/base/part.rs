//! A base that is being received: a file that only grows, until it is whole.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use fl_compress::Digest;

use super::wanted::RunBase;
use crate::error::Error;
use crate::state::Disk;

/// The bytes of a base that have arrived.
#[derive(Debug)]
pub(crate) struct Part {
    path: PathBuf,
    /// The file's name when it is whole.
    whole: PathBuf,
    file: File,
    digest: Digest,
    len: u64,
    /// Bytes of the base.
    of: u64,
    disk: Disk,
}

/// A base of which every byte has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is the base, and durable in this file.
    Base(PathBuf),
    /// It is not: it has this digest. The file is deleted.
    Other(Digest),
}

impl Part {
    /// Opens what has arrived before; nothing if that is longer than the base.
    pub(super) fn open(folder: &Path, wanted: &RunBase, whole: PathBuf, disk: Disk) -> Result<Self, Error> {
        let path = folder.join(format!("{}.part", wanted.digest));
        let failed = |e| Error::io(&path, "open", &e);
        let mut options = OpenOptions::new();
        let file = options
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        let mut len = file.metadata().map_err(failed)?.len();
        let of = wanted.len();
        if len > of {
            tracing::warn!(path = %path.display(), len, of, "is longer than the base: it is deleted and fetched again");
            file.set_len(0).map_err(failed)?;
            len = 0;
        }
        if let Ok(found) = rustix::fs::fstatvfs(&file) {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            // A device such as /dev/full says 0 of 0.
            if found.f_blocks > 0 && free < of - len {
                let why = format!(
                    "the rest of the base needs {} bytes and the disk has {free}; free some space and start the client again, \
                     nothing is lost",
                    of - len
                );
                return Err(Error::state(&path, why));
            }
        }
        Ok(Self {
            path,
            whole,
            file,
            digest: wanted.digest,
            len,
            of,
            disk,
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn missing(&self) -> u64 {
        self.of - self.len
    }

    /// Adds the next bytes. On an error, what was added before stays.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() as u64 > self.missing() {
            return Err(Error::Protocol(format!(
                "the server sent more than the {} bytes of the base",
                self.of
            )));
        }
        let written = self.file.write_all(bytes);
        written.map_err(|e| Error::io(&self.path, "write", &e))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Makes the whole file durable, checks its bytes on the disk and gives it its name.
    pub(crate) fn finish(self) -> Result<Arrival, Error> {
        let path = &self.path;
        if self.disk.sync {
            self.file.sync_all().map_err(|e| Error::io(path, "write", &e))?;
        }
        let found = File::open(path).and_then(Digest::of_reader);
        let found = found.map_err(|e| Error::io(path, "read", &e))?;
        if found != self.digest {
            std::fs::remove_file(path).map_err(|e| Error::io(path, "delete", &e))?;
            return Ok(Arrival::Other(found));
        }
        std::fs::rename(path, &self.whole).map_err(|e| Error::io(path, "rename", &e))?;
        if let Some(folder) = self.whole.parent().filter(|_| self.disk.sync) {
            let synced = File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(|e| Error::io(path, "rename", &e))?;
        }
        Ok(Arrival::Base(self.whole))
    }
}

#[cfg(test)]
mod tests {
    use fl_compress::weights::BasePlan;
    use fl_compress::{Dtype, Role, TensorSpec};
    use proptest::prelude::*;

    use super::*;

    fn base() -> (RunBase, Vec<u8>) {
        let plan = BasePlan::of(&[TensorSpec::new("w", &[50], Dtype::F32, Role::Frozen)]);
        let plan = plan.unwrap().unwrap();
        let bytes = plan.file(&[(0..200).collect::<Vec<u8>>()]).unwrap();
        let digest = Digest::of(&bytes);
        (RunBase { digest, plan }, bytes)
    }

    fn open(folder: &Path, wanted: &RunBase) -> Part {
        Part::open(folder, wanted, folder.join("whole"), Disk { sync: false }).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        /// However the base is cut into calls and chunks, and wherever the client dies, what has arrived is a beginning of the
        /// base, no byte is asked for twice, and the whole is the base.
        #[test]
        fn any_sequence_of_cuts_ends_with_the_base(calls in prop::collection::vec(prop::collection::vec(0_usize..90, 0..4), 0..12)) {
            let dir = tempfile::tempdir().unwrap();
            let (wanted, bytes) = base();
            let mut arrived = 0;
            for chunks in calls {
                // A new process opens what the one before it left.
                let mut part = open(dir.path(), &wanted);
                prop_assert_eq!(part.len(), arrived as u64);
                for chunk in chunks {
                    let end = bytes.len().min(arrived + chunk);
                    part.append(&bytes[arrived..end]).unwrap();
                    arrived = end;
                }
                prop_assert_eq!(part.missing(), (bytes.len() - arrived) as u64);
            }
            let mut part = open(dir.path(), &wanted);
            part.append(&bytes[arrived..]).unwrap();
            let Arrival::Base(path) = part.finish().unwrap() else { panic!("another digest") };
            prop_assert_eq!(std::fs::read(&path).unwrap(), bytes);
            let part = dir.path().join(format!("{}.part", wanted.digest));
            prop_assert!(!part.exists());
        }

        /// A part with a wrong byte is never a base, and the next one begins with nothing.
        #[test]
        fn a_wrong_byte_deletes_the_part(at in 0_usize..200, by in 1_u8..) {
            let dir = tempfile::tempdir().unwrap();
            let (wanted, mut bytes) = base();
            let at = bytes.len() - 1 - at;
            bytes[at] ^= by;
            let mut part = open(dir.path(), &wanted);
            part.append(&bytes).unwrap();
            prop_assert_eq!(part.finish().unwrap(), Arrival::Other(Digest::of(&bytes)));
            prop_assert!(!dir.path().join("whole").exists());
            prop_assert_eq!(open(dir.path(), &wanted).len(), 0);
        }
    }

    #[test]
    fn more_than_the_base_is_refused_before_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (wanted, bytes) = base();
        let mut part = open(dir.path(), &wanted);
        part.append(&bytes[1..]).unwrap();
        let why = part.append(&bytes[..2]).unwrap_err();
        assert!(matches!(why, Error::Protocol(_)), "{why}");
        assert_eq!(part.missing(), 1);
        std::fs::write(&part.path, [&bytes[..], b"x"].concat()).unwrap();
        assert_eq!(open(dir.path(), &wanted).len(), 0, "longer than the base");
    }
}
