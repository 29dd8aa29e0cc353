//! Reads blobs from their files and packs while a server may be writing. Never opens the store; read-only.

use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use fl_compress::Digest;
use fl_proto::RunName;

use super::{StoredFrame, WhatIfError};
use crate::reporting::inspect::InspectError;
use crate::storage::blobs::{Index, find, packs_of};
use crate::storage::disk::open_file;

#[derive(Debug)]
pub(super) struct Files {
    data: PathBuf,
    run: RunName,
    packs: Index,
}

impl Files {
    /// The blobs of a run below the folder `data`.
    pub(super) fn below(data: &Path, run: &str) -> Result<Self, InspectError> {
        let run = run.parse().map_err(|e| InspectError::Corrupt(format!("{e}")))?;
        let packs = packs_of(data, &run).map_err(|e| InspectError::Corrupt(e.to_string()))?;
        Ok(Self {
            data: data.to_owned(),
            run,
            packs,
        })
    }

    /// Replaces `bytes` by those of a frame and checks their digest. Returns whether the file exists. Reads no more
    /// than the recorded length.
    ///
    /// # Errors
    /// `Corrupt`, naming the file, if it has other bytes; `Failed` if it cannot be read.
    pub(super) fn read(&self, frame: &StoredFrame, bytes: &mut Vec<u8>) -> Result<bool, WhatIfError> {
        let digest: Digest = frame.frame.parse().map_err(|e| InspectError::Corrupt(format!("{e}")))?;
        let path = match self.packs.locate(&digest) {
            Some(packed) => match packed.read(bytes) {
                Ok(()) => packed.path().to_owned(),
                Err(error) if error.kind == ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(WhatIfError::Failed(error.to_string())),
            },
            None => {
                let path = find(&self.data, &self.run, &digest);
                match read_at_most(&path, frame.sizes.framed.saturating_add(1), bytes) {
                    Ok(()) => path,
                    Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
                    Err(error) => return Err(WhatIfError::Failed(format!("cannot read {}: {error}", path.display()))),
                }
            }
        };
        if Digest::of(bytes) != digest {
            let text = format!("blob {} is damaged: its bytes have another digest", path.display());
            return Err(InspectError::Corrupt(text).into());
        }
        Ok(true)
    }
}

fn read_at_most(path: &Path, most: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let file = open_file(path)?;
    bytes.clear();
    file.take(most).read_to_end(bytes)?;
    Ok(())
}
