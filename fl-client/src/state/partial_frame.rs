//! `partial-frame`: the long frame that a fetch is receiving, so that the next fetch continues it after a broken connection or a
//! restart. One file, written in place of the one before. Optional: a missing or broken one is fetched from the start. Not synced
//! to the medium: the frame's digest is checked before it is used.
//!
//! ```text
//! "FLPF" | major u8 | minor u8 | digest 32 | the first bytes of the frame
//! ```

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use fl_compress::Digest;
use fl_compress::wire::{Reader, Writer};
use fl_proto::{Assembler, CHUNK, PartialFrame};

use super::run_state::RunState;
use crate::error::Error;

const MAGIC: &[u8; 4] = b"FLPF";
const VERSION: [u8; 2] = [1, 0];
const HEAD: usize = 4 + 2 + 32;
const FILE: &str = "partial-frame";
/// Shorter frames are not kept while they are received: the connection is quick to bring them again.
pub(crate) const KEPT_FROM: u64 = 2 * CHUNK as u64;
/// Bytes that are read from the file at once.
const PIECE: usize = 1 << 20;

/// The file of a frame that is being received. It only grows.
#[derive(Debug)]
pub(crate) struct PartialFile {
    file: File,
    path: PathBuf,
}

impl PartialFile {
    /// Adds the next bytes of the frame. If they cannot be written, the file is removed and the fetch goes on without it.
    pub(crate) fn append(mut self, bytes: &[u8]) -> Option<Self> {
        match self.file.write_all(bytes) {
            Ok(()) => Some(self),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the download is not kept: if the connection breaks, it starts over");
                let _ = std::fs::remove_file(&self.path);
                None
            }
        }
    }
}

impl RunState {
    /// What an interrupted fetch has left of a frame.
    pub(crate) fn partial_frame(&self) -> Option<PartialFrame> {
        let path = self.path(FILE);
        // Opening a pipe would wait for a writer.
        if !path.symlink_metadata().is_ok_and(|found| found.is_file()) {
            return None;
        }
        let (head, len) = self.disk.read_front(&path, HEAD as u64).ok()??;
        match digest(&head) {
            Ok(digest) => {
                let held = len - HEAD as u64;
                (held > 0).then_some(PartialFrame { digest, held })
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a download cannot be resumed and starts over");
                self.drop_partial_frame();
                None
            }
        }
    }

    /// Begins the file of another frame. `None` if it cannot be written; the frame is received without it.
    pub(crate) fn begin_partial_frame(&self, digest: &Digest) -> Option<PartialFile> {
        let path = self.path(FILE);
        let mut head = Vec::with_capacity(HEAD);
        let mut writer = Writer::new(&mut head);
        writer.head(MAGIC, VERSION);
        writer.value(digest);
        self.drop_partial_frame();
        match fl_proto::make_private_file(&path) {
            Ok(file) => PartialFile { file, path }.append(&head),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the download is not kept: if the connection breaks, it starts over");
                None
            }
        }
    }

    /// Gives what the file has of the frame to `frame`, and the file to be continued. On an error, the file is removed.
    pub(crate) fn resume_partial_frame(
        &self,
        partial: PartialFrame,
        frame: &mut Assembler,
    ) -> Result<PartialFile, Error> {
        let path = self.path(FILE);
        let read = if self.partial_frame() == Some(partial) && partial.held <= frame.missing() as u64 {
            read_into(frame, &path, partial.held).map_err(|e| e.to_string())
        } else {
            Err("it has changed".to_owned())
        };
        read.map(|file| PartialFile {
            file,
            path: path.clone(),
        })
        .map_err(|why| {
            self.drop_partial_frame();
            Error::Protocol(format!(
                "{} cannot be resumed: {why}; the download starts over",
                path.display()
            ))
        })
    }

    pub(crate) fn drop_partial_frame(&self) {
        // One that stays is refused by its digest.
        let _ = std::fs::remove_file(self.path(FILE));
    }
}

/// Gives the first `held` bytes of the frame in a file to `frame`.
fn read_into(frame: &mut Assembler, path: &Path, held: u64) -> std::io::Result<File> {
    let mut file = File::options().read(true).append(true).open(path)?;
    file.read_exact(&mut [0; HEAD])?;
    let mut left = held;
    while left > 0 {
        let mut piece = vec![0; left.min(PIECE as u64) as usize];
        file.read_exact(&mut piece)?;
        left -= piece.len() as u64;
        frame.push(Bytes::from(piece));
    }
    Ok(file)
}

fn digest(head: &[u8]) -> Result<Digest, fl_compress::Error> {
    let mut reader = Reader::new(head);
    reader.head(MAGIC, VERSION)?;
    reader.value("digest")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::Disk;

    fn state(folder: &Path) -> RunState {
        RunState {
            folder: folder.to_owned(),
            disk: Disk { sync: false },
        }
    }

    fn frame(len: usize) -> (Vec<u8>, Digest) {
        let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let digest = Digest::of(&bytes);
        (bytes, digest)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        /// However the frame is cut into calls and pieces, and wherever the client dies, no byte is asked for twice and the whole
        /// is the frame.
        #[test]
        fn any_sequence_of_cuts_ends_with_the_frame(calls in prop::collection::vec(prop::collection::vec(0_usize..300, 0..4), 0..12)) {
            let dir = tempfile::tempdir().unwrap();
            let (bytes, digest) = frame(2_000);
            let mut held = 0;
            for pieces in calls.into_iter().chain([vec![2_000]]) {
                let state = state(dir.path());
                let partial = state.partial_frame();
                prop_assert_eq!(partial, (held > 0).then_some(PartialFrame { digest, held: held as u64 }));
                let mut whole = Assembler::new(2_000, 2_000, digest).unwrap();
                let mut file = match partial {
                    Some(partial) => state.resume_partial_frame(partial, &mut whole).unwrap(),
                    None => state.begin_partial_frame(&digest).unwrap(),
                };
                prop_assert_eq!(whole.missing(), bytes.len() - held);
                for piece in pieces {
                    let next = &bytes[held..bytes.len().min(held + piece)];
                    whole.push(Bytes::copy_from_slice(next));
                    file = file.append(next).unwrap();
                    held += next.len();
                }
                if held == bytes.len() {
                    prop_assert_eq!(&whole.finish().unwrap(), &bytes);
                }
            }
            prop_assert_eq!(held, bytes.len());
        }
    }

    #[test]
    fn another_frame_takes_the_place_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let state = state(dir.path());
        let (first, second) = (Digest::of(b"first"), Digest::of(b"second"));
        state.begin_partial_frame(&first).unwrap().append(b"abc").unwrap();
        state.begin_partial_frame(&second).unwrap().append(b"de").unwrap();
        let partial = PartialFrame {
            digest: second,
            held: 2,
        };
        assert_eq!(state.partial_frame(), Some(partial));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        state.drop_partial_frame();
        assert_eq!(state.partial_frame(), None);
    }

    #[test]
    fn a_broken_file_is_removed_and_one_that_is_too_long_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let state = state(dir.path());
        let path = dir.path().join(FILE);
        for bytes in [&b""[..], b"FLPF", b"FLPX\x01\x00", &[7; 60]] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(state.partial_frame(), None);
            assert!(!path.exists());
        }
        let digest = Digest::of(b"frame");
        state.begin_partial_frame(&digest).unwrap().append(b"frames").unwrap();
        let mut short = Assembler::new(5, 5, digest).unwrap();
        let partial = PartialFrame { digest, held: 6 };
        let why = state.resume_partial_frame(partial, &mut short).unwrap_err();
        assert!(why.to_string().contains("starts over"), "{why}");
    }

    #[test]
    fn a_full_disk_costs_the_file_and_not_the_download() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("full");
        std::fs::write(&path, b"").unwrap();
        let file = File::options().write(true).open("/dev/full").unwrap();
        assert!(
            PartialFile {
                file,
                path: path.clone()
            }
            .append(b"x")
            .is_none()
        );
        assert!(!path.exists());
    }
}
