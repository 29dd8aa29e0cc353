//! A blob that arrives in pieces, over as many calls as it takes.
//!
//! Each client has at most one: beginning another drops what was there, so that the room taken is bounded by the
//! clients. The pieces are in `partial/RUN/CLIENT-ROUND-DIGEST`, whose length is where to go on. They are not synced:
//! what a crash leaves of them is checked against the digest at the end, as everything is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fl_compress::Digest;
use fl_proto::ClientId;

use super::{BlobError, Blobs, files};
use crate::storage::disk::{Disk, DiskError};

/// What is there of a client's upload.
#[derive(Debug)]
pub(super) struct Partial {
    path: PathBuf,
    /// The number of the call that may go on with it; one more once the file is gone or a blob.
    turn: u64,
}

/// One call's hold on an upload. Only the latest call's counts: older ones get `Superseded`.
#[derive(Debug)]
pub struct Upload {
    blobs: Blobs,
    partial: Arc<Mutex<Partial>>,
    turn: u64,
    path: PathBuf,
    file: File,
    /// Of the bytes received.
    hasher: blake3::Hasher,
    received: u64,
    len: u64,
}

impl Blobs {
    /// Bytes held of this upload, of whatever call.
    pub fn partial_len(&self, client: &ClientId, round: u64, digest: &Digest) -> u64 {
        std::fs::metadata(self.partial_path(client, round, digest)).map_or(0, |meta| meta.len())
    }

    /// Goes on with an upload of `len` bytes, or begins it. What this client had begun besides is dropped. The caller
    /// has checked that `len` is no more than it takes.
    ///
    /// # Errors
    /// The disk's.
    pub fn upload(&self, client: &ClientId, round: u64, digest: &Digest, len: u64) -> Result<Upload, BlobError> {
        let path = self.partial_path(client, round, digest);
        let partial = {
            let mut all = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Makes whole uploads blobs; durable when it returns.
    ///
    /// # Errors
    /// The disk's: the files of those that are not blobs by then are removed.
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

/// A whole upload that is not a blob: dropping it removes its file. Each call's upload is a file of its own, so the same
/// bytes, sent by another client or sent again, are not touched by that.
#[derive(Debug)]
pub struct Received {
    blobs: Blobs,
    /// `None` once it is a blob.
    side: Option<PathBuf>,
    digest: Digest,
}

impl Received {
    /// Digest of its bytes.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let removed = self.side.take().map(|side| self.blobs.disk.remove(&side));
        if let Some(Err(error)) = removed {
            tracing::warn!(%error, "a refused update stays until the next start");
        }
    }
}

/// Reads what is there of an upload of `len` bytes and stands at its end; what is longer is emptied.
fn resume(mut file: &File, len: u64) -> io::Result<(blake3::Hasher, u64)> {
    let mut hasher = blake3::Hasher::new();
    if file.metadata()?.len() > len {
        file.set_len(0)?;
    }
    let held = file.metadata()?.len();
    // Not on the stack: this runs on many threads, and each would keep the pages.
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
    /// Bytes held: where the next piece goes.
    pub fn offset(&self) -> u64 {
        self.received
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// `TooLarge` if it goes beyond the length declared, `Superseded`: nothing is written then. The disk's: then this
    /// hold ends, and another call goes on from what was written.
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
    /// `Short`, `Superseded`; the disk's.
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

    /// Makes the bytes of the upload durable, out of the reach of later calls. They are not a blob yet:
    /// [`Blobs::keep`] makes them one. If their digest is not `digest`, everything received is dropped, so that the
    /// client begins anew.
    ///
    /// # Errors
    /// `Short`, `Damaged`, `Superseded`; the disk's.
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
        // From here on the file belongs to what is returned: a retry of the client begins another.
        held.turn += 1;
        Ok(Received {
            blobs: self.blobs.clone(),
            side: Some(side),
            digest: found,
        })
    }

    /// Drops what was received: for a frame that will never be taken.
    ///
    /// # Errors
    /// `Superseded`; the disk's.
    pub fn discard(self) -> Result<(), BlobError> {
        let mut held = self.turn()?;
        held.turn += 1;
        Ok(self.blobs.disk.remove(&self.path)?)
    }

    /// Keeps other calls out, if this one is the latest.
    fn turn(&self) -> Result<MutexGuard<'_, Partial>, BlobError> {
        let held = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
        if held.turn == self.turn {
            Ok(held)
        } else {
            Err(BlobError::Superseded)
        }
    }
}

/// The uploads that an earlier process left, one a client; files of other names are removed.
pub(super) fn left_over(folder: &Path, disk: &Disk) -> Result<BTreeMap<ClientId, Arc<Mutex<Partial>>>, DiskError> {
    let mut all = BTreeMap::new();
    for path in files(folder)? {
        match client_of(&path).filter(|client| !all.contains_key(client)) {
            Some(client) => {
                all.insert(client, Arc::new(Mutex::new(Partial { path, turn: 0 })));
            }
            None => disk.remove(&path)?,
        }
    }
    Ok(all)
}

/// `CLIENT-ROUND-DIGEST`, read from its end because a client's name may hold dashes.
fn client_of(path: &Path) -> Option<ClientId> {
    let mut parts = path.file_name()?.to_str()?.rsplitn(3, '-');
    let (digest, round, client) = (parts.next()?, parts.next()?, parts.next()?);
    digest.parse::<Digest>().ok()?;
    round.parse::<u64>().ok()?;
    client.parse().ok()
}
