//! `verdict`: the server's acknowledgement of the frame in `memory`. A separate file, so that `memory` is written once
//! per round.
//!
//! ```text
//! "FLVD" | major u8 | minor u8 | digest 32 | verdict u8, 0 accepted, 1 rejected, 2 dropped | CRC-32C u32
//! ```

use fl_compress::wire::{CHECKSUM_BYTES, unseal};
use fl_compress::{Ack, Digest};

use super::disk::Disk;
use super::run_state::RunState;
use super::sealed::sealed;
use crate::error::Error;

const MAGIC: &[u8; 4] = b"FLVD";
const VERSION: [u8; 2] = [1, 0];
const LEN: u64 = (4 + 2 + 32 + 1 + CHECKSUM_BYTES) as u64;

impl RunState {
    /// The answer to the frame with this digest, if it is known. A broken file has none: the server is asked again.
    pub(crate) fn ack(&self, digest: Digest) -> Result<Option<Ack>, Error> {
        let path = self.path("verdict");
        let Some(bytes) = self.disk.read(&path, LEN)? else {
            return Ok(None);
        };
        match read(&bytes) {
            Ok((of, verdict)) => Ok((of == digest).then_some(verdict)),
            Err(what) => {
                tracing::warn!(path = %path.display(), %what, "the file is broken: the server is asked again");
                Ok(None)
            }
        }
    }

    /// Writes the answer to the frame with this digest. Not synced to the medium: after a power loss the server is asked
    /// again.
    pub(crate) fn save_ack(&self, digest: Digest, verdict: Ack) -> Result<(), Error> {
        Disk { sync: false }.replace_in_turn(&self.path("verdict"), &[&write(digest, verdict)])
    }
}

fn write(digest: Digest, verdict: Ack) -> Vec<u8> {
    sealed(MAGIC, VERSION, &(digest, verdict), &[])
}

fn read(bytes: &[u8]) -> Result<(Digest, Ack), fl_compress::Error> {
    let mut reader = unseal(bytes, MAGIC, VERSION)?;
    let answer = reader.value("digest and verdict")?;
    reader.finish("bytes after the verdict")?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_answer_counts_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let state = RunState {
            folder: dir.path().to_owned(),
            disk: Disk { sync: true },
        };
        let frame = Digest::of(b"f");
        state.save_ack(Digest::of(b"before"), Ack::Rejected).unwrap();
        assert_eq!(state.ack(frame), Ok(None));
        state.save_ack(frame, Ack::Accepted).unwrap();
        assert_eq!(state.ack(frame), Ok(Some(Ack::Accepted)));
        for broken in [&[0; LEN as usize][..], &write(frame, Ack::Accepted)[..7], b""] {
            std::fs::write(state.path("verdict"), broken).unwrap();
            assert_eq!(state.ack(frame), Ok(None));
        }
    }

    #[test]
    fn verdicts_survive_the_disk_and_damage_is_noticed() {
        for verdict in [Ack::Accepted, Ack::Rejected, Ack::Dropped] {
            let bytes = write(Digest::of(b"f"), verdict);
            assert_eq!(bytes.len() as u64, LEN);
            assert_eq!(read(&bytes), Ok((Digest::of(b"f"), verdict)));
            for bit in 0..bytes.len() * 8 {
                let mut broken = bytes.clone();
                broken[bit / 8] ^= 1 << (bit % 8);
                assert!(read(&broken).is_err(), "{bit}");
            }
        }
    }
}
