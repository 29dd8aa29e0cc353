//! A blob that arrives in pieces, over one or more calls.
//!
//! Each client has at most one: beginning another removes the first, so the number of clients bounds the disk space. The
//! pieces are in `partial/RUN/CLIENT-ROUND-DIGEST`, whose length is the offset to resume at. They are not synced: the digest
//! of the complete upload is checked, also after a crash.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fl_compress::Digest;
use fl_proto::ClientId;

use crate::storage::blobs::error::BlobError;
use crate::storage::blobs::partial::Partial;
use crate::storage::blobs::run_blobs::Blobs;
use crate::storage::disk::DiskError;

/// One call's hold on an upload. Only the latest call may use it; older ones get `Superseded`.
#[derive(Debug)]
pub struct Upload {
    blobs: Blobs,
    partial: Arc<Mutex<Partial>>,
    turn: u64,
    path: PathBuf,
    file: File,
    /// Hash of the bytes received.
    hasher: blake3::Hasher,
    received: u64,
    len: u64,
}

impl Blobs {
    /// Bytes received of this upload, by any call.
    pub fn partial_len(&self, client: &ClientId, round: u64, digest: &Digest) -> u64 {
        std::fs::metadata(self.partial_path(client, round, digest)).map_or(0, |meta| meta.len())
    }

    /// Resumes an upload of `len` bytes, or begins it, and removes another unfinished upload of this client. The caller
    /// has checked `len` against its limit.
    pub fn upload(&self, client: &ClientId, round: u64, digest: &Digest, len: u64) -> Result<Upload, BlobError> {
        let path = self.partial_path(client, round, digest);
        let partial = {
            let mut all = self.partials.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = || {
                Arc::new(Mutex::new(Partial {
                    path: path.clone(),
                    turn: 0,
                }))
            };
            all.entry(client.clone()).or_insert_with(fresh).clone()
        };
        let mut held = partial.lock().unwrap_or_else(PoisonError::into_inner);
        held.turn += 1;
        if held.path != path {
            self.disk.remove(&held.path)?;
            held.path.clone_from(&path);
        }
        let turn = held.turn;
        let file = self.disk.open(&path, false)?;
        let (hasher, received) = resume(&file, len).map_err(|e| DiskError::new("read", &path, &e))?;
        drop(held);
        Ok(Upload {
            blobs: self.clone(),
            partial,
            turn,
            path,
            file,
            hasher,
            received,
            len,
        })
    }

    /// Makes complete uploads blobs; durable on return.
    ///
    /// # Errors
    /// `Disk`: the files of the uploads that are not blobs by then are removed.
    pub fn keep(&self, received: Vec<Received>) -> Result<(), BlobError> {
        if received.is_empty() {
            return Ok(());
        }
        for mut received in received {
            if let Some(side) = &received.side {
                self.disk.rename(side, &self.path(&received.digest))?;
                received.side = None;
            }
        }
        Ok(self.disk.sync_dir(&self.folder)?)
    }

    fn partial_path(&self, client: &ClientId, round: u64, digest: &Digest) -> PathBuf {
        let folder = self.dir.join("partial").join(self.run.as_str());
        folder.join(format!("{client}-{round}-{digest}"))
    }
}

/// A complete upload that is not a blob yet; dropping it removes its file. Every call has a separate file, so this does
/// not affect the same bytes of another call or client.
#[derive(Debug)]
pub struct Received {
    blobs: Blobs,
    /// `None` once it is a blob.
    side: Option<PathBuf>,
    digest: Digest,
}

impl Received {
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let removed = self.side.take().map(|side| self.blobs.disk.remove(&side));
        if let Some(Err(error)) = removed {
            tracing::warn!(%error, "cannot remove a refused update; the next start removes it");
        }
    }
}

/// Hashes the bytes received of an upload of `len` bytes and moves to their end. A longer file is emptied.
fn resume(mut file: &File, len: u64) -> io::Result<(blake3::Hasher, u64)> {
    let mut hasher = blake3::Hasher::new();
    if file.metadata()?.len() > len {
        file.set_len(0)?;
    }
    let held = file.metadata()?.len();
    // On the heap: each of many threads would keep these pages of its stack.
    let mut piece = vec![0; held.min(64 * 1024) as usize];
    let mut received = 0;
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((hasher, received)),
            n => {
                hasher.update(&piece[..n]);
                received += n as u64;
            }
        }
    }
}

impl Upload {
    /// Bytes received: the offset of the next piece.
    pub fn offset(&self) -> u64 {
        self.received
    }

    /// Appends a piece.
    ///
    /// # Errors
    /// `TooLarge` and `Superseded`: nothing was written. `Disk`: this call's hold ends, and another call resumes after the
    /// bytes that were written.
    pub fn append(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        let len = self.received.saturating_add(piece.len() as u64);
        if len > self.len {
            return Err(BlobError::TooLarge { len, max: self.len });
        }
        let mut held = self.turn()?;
        if let Err(error) = self.blobs.disk.write(&self.file, &self.path, piece) {
            held.turn += 1;
            return Err(error.into());
        }
        drop(held);
        self.hasher.update(piece);
        self.received = len;
        Ok(())
    }

    /// All bytes received.
    ///
    /// # Errors
    /// `Short`, `Superseded`; `Disk`.
    pub fn read_whole(&self) -> Result<Vec<u8>, BlobError> {
        if self.received < self.len {
            return Err(BlobError::Short {
                have: self.received,
                len: self.len,
            });
        }
        let _held = self.turn()?;
        let mut file = &self.file;
        let mut bytes = Vec::with_capacity(self.received as usize);
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
        read.map_err(|e| DiskError::new("read", &self.path, &e))?;
        Ok(bytes)
    }

    /// Makes the bytes durable in a file that no later call writes to; [`Blobs::keep`] makes that file a blob. If their
    /// digest is not `digest`, the bytes are removed and the client starts over.
    ///
    /// # Errors
    /// `Short`, `Damaged`, `Superseded`; `Disk`.
    pub fn finish(self, digest: &Digest) -> Result<Received, BlobError> {
        if self.received < self.len {
            return Err(BlobError::Short {
                have: self.received,
                len: self.len,
            });
        }
        let found = Digest(*self.hasher.finalize().as_bytes());
        if found != *digest {
            let path = self.path.clone();
            self.discard()?;
            return Err(BlobError::Damaged { path, found });
        }
        let mut held = self.turn()?;
        let disk = &self.blobs.disk;
        disk.sync(&self.file, &self.path)?;
        let side = self.blobs.side();
        disk.rename(&self.path, &side)?;
        // `Received` owns the file now: a retry by the client begins another.
        held.turn += 1;
        Ok(Received {
            blobs: self.blobs.clone(),
            side: Some(side),
            digest: found,
        })
    }

    /// Removes the bytes received, of a frame that is refused for good.
    ///
    /// # Errors
    /// `Superseded`; `Disk`.
    pub fn discard(self) -> Result<(), BlobError> {
        let mut held = self.turn()?;
        held.turn += 1;
        Ok(self.blobs.disk.remove(&self.path)?)
    }

    /// Locks the upload if this call is the latest one.
    fn turn(&self) -> Result<MutexGuard<'_, Partial>, BlobError> {
        let held = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
        if held.turn == self.turn {
            Ok(held)
        } else {
            Err(BlobError::Superseded)
        }
    }
}
