//! A blob that arrives in pieces, over one or more calls.
//!
//! Each client has at most one: beginning another removes the first, so the number of clients bounds the disk space. The
//! pieces are in `partial/RUN/CLIENT-ROUND-DIGEST`, whose length is the offset to resume at. They are not synced: the digest
//! of the complete upload is checked, also after a crash.
//!
//! The caller may have a short upload held in memory: then it has no file unless the caller [parks](Upload::park) it, and
//! becomes a blob of a pack. Another call takes over what is held. A call that ends without parking it frees it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use fl_compress::Digest;
use fl_proto::ClientId;

use crate::lock::lock;
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
    round: u64,
    content: Content,
    received: u64,
    len: u64,
}

#[derive(Debug)]
enum Content {
    /// A part of the bytes, in [`Partial::held`].
    Held,
    /// All of them, in memory.
    Whole(Vec<u8>),
    Written {
        file: File,
        /// Hash of the bytes.
        hasher: Box<blake3::Hasher>,
    },
}

impl Blobs {
    /// Bytes received of this upload, by any call.
    pub fn partial_len(&self, client: &ClientId, round: u64, digest: &Digest) -> u64 {
        let known = lock(&self.partials);
        let Some(partial) = known.get(client).cloned() else {
            return 0;
        };
        drop(known);
        let path = self.partial_path(client, round, digest);
        // A call that holds the lock for long works on the file.
        if let Ok(partial) = partial.try_lock()
            && !partial.on_disk
        {
            return if partial.path == path {
                partial.held.len() as u64
            } else {
                0
            };
        }
        std::fs::metadata(path).map_or(0, |meta| meta.len())
    }

    /// Resumes an upload of `len` bytes, or begins it, in its file, and removes another unfinished upload of this client. The
    /// caller has checked `len` against its limit.
    pub fn upload(&self, client: &ClientId, round: u64, digest: &Digest, len: u64) -> Result<Upload, BlobError> {
        let path = self.partial_path(client, round, digest);
        let partial = self.partial(client, &path);
        let mut held = lock(&partial);
        held.turn += 1;
        held.held = Vec::new();
        if held.path != path {
            if held.on_disk {
                self.disk.remove(&held.path)?;
            }
            held.path.clone_from(&path);
        }
        held.on_disk = true;
        let file = self.disk.open(&path, false)?;
        let (hasher, received) = resume(&file, len).map_err(|e| DiskError::new("read", &path, &e))?;
        let turn = held.turn;
        drop(held);
        let hasher = Box::new(hasher);
        Ok(Upload {
            blobs: self.clone(),
            partial,
            turn,
            path,
            round,
            content: Content::Written { file, hasher },
            received,
            len,
        })
    }

    /// As [`Blobs::upload`], in memory, which is taken as pieces arrive. Does not block: `None` if the client has an unfinished
    /// upload in a file.
    pub fn held_upload(&self, client: &ClientId, round: u64, digest: &Digest, len: u64) -> Option<Upload> {
        let path = self.partial_path(client, round, digest);
        let partial = self.partial(client, &path);
        // A call that holds the lock for long works on the file.
        let mut held = partial.try_lock().ok().filter(|held| !held.on_disk)?;
        held.turn += 1;
        if held.path != path {
            held.path.clone_from(&path);
            held.held = Vec::new();
        }
        let turn = held.turn;
        let received = held.held.len() as u64;
        drop(held);
        Some(Upload {
            blobs: self.clone(),
            partial,
            turn,
            path,
            round,
            content: Content::Held,
            received,
            len,
        })
    }

    /// The client's entry; a new one has this path.
    fn partial(&self, client: &ClientId, path: &Path) -> Arc<Mutex<Partial>> {
        let mut all = lock(&self.partials);
        let partial = all.entry(client.clone());
        partial.or_insert_with(|| Partial::new(path.to_owned(), false)).clone()
    }

    /// Makes complete uploads blobs: those held in memory together in a pack, the others as files. Durable on return.
    ///
    /// # Errors
    /// `Disk`: the uploads that are not blobs by then are gone.
    pub fn keep(&self, received: Vec<CompleteUpload>) -> Result<(), BlobError> {
        let mut held: BTreeMap<u64, BTreeMap<Digest, &[u8]>> = BTreeMap::new();
        for received in &received {
            if let Bytes::Held(bytes) = &received.content {
                held.entry(received.round).or_default().insert(received.digest, bytes);
            }
        }
        held.into_iter()
            .try_for_each(|(round, blobs)| self.packs.append(round, blobs))?;
        let mut renamed = false;
        for mut received in received {
            if let Bytes::Side(side) = &received.content {
                self.disk.rename(side, &self.own_path(&received.digest))?;
                received.content = Bytes::Blob;
                renamed = true;
            }
        }
        if renamed {
            self.disk.sync_dir(&self.folder)?;
        }
        Ok(())
    }

    fn partial_path(&self, client: &ClientId, round: u64, digest: &Digest) -> PathBuf {
        let folder = self.dir.join("partial").join(self.run.as_str());
        folder.join(format!("{client}-{round}-{digest}"))
    }
}

/// A complete upload that is not a blob yet; dropping it removes it. Every call has a separate file, so this does not affect
/// the same bytes of another call or client.
#[derive(Debug)]
pub struct CompleteUpload {
    blobs: Blobs,
    round: u64,
    content: Bytes,
    digest: Digest,
}

#[derive(Debug)]
enum Bytes {
    Held(Vec<u8>),
    Side(PathBuf),
    /// It is a blob by now.
    Blob,
}

impl CompleteUpload {
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

impl Drop for CompleteUpload {
    fn drop(&mut self) {
        if let Bytes::Side(side) = &self.content
            && let Err(error) = self.blobs.disk.remove(side)
        {
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
        let mut held = latest(&self.partial, self.turn)?;
        match &mut self.content {
            Content::Held => {
                if held.held.is_empty() {
                    held.held.reserve_exact(self.len as usize);
                }
                held.held.extend_from_slice(piece);
                if len == self.len {
                    self.content = Content::Whole(std::mem::take(&mut held.held));
                }
            }
            // Nothing can follow.
            Content::Whole(_) => {}
            Content::Written { file, hasher } => {
                if let Err(error) = self.blobs.disk.write(file, &self.path, piece) {
                    held.turn += 1;
                    return Err(error.into());
                }
                hasher.update(piece);
            }
        }
        drop(held);
        self.received = len;
        Ok(())
    }

    /// Whether the bytes are in memory: [`Upload::append`] does not block then.
    pub fn is_held(&self) -> bool {
        matches!(self.content, Content::Held | Content::Whole(_))
    }

    /// Writes an upload that is held to its file, where a later call finds it. Has no effect on another one.
    ///
    /// # Errors
    /// `Superseded`; `Disk`.
    pub fn park(&mut self) -> Result<(), BlobError> {
        let mut held = latest(&self.partial, self.turn)?;
        let bytes = match &mut self.content {
            Content::Held => std::mem::take(&mut held.held),
            Content::Whole(bytes) => std::mem::take(bytes),
            Content::Written { .. } => return Ok(()),
        };
        held.on_disk = true;
        let file = self.blobs.disk.open(&self.path, true)?;
        if let Err(error) = self.blobs.disk.write(&file, &self.path, &bytes) {
            held.turn += 1;
            return Err(error.into());
        }
        let mut hasher = Box::new(blake3::Hasher::new());
        hasher.update(&bytes);
        drop(held);
        self.content = Content::Written { file, hasher };
        Ok(())
    }

    /// All bytes received; those in a file are read to `buffer`, which is overwritten.
    ///
    /// # Errors
    /// `Short`, `Superseded`; `Disk`.
    pub fn read_whole<'a>(&'a self, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], BlobError> {
        self.complete()?;
        let _held = self.turn()?;
        let mut file = match &self.content {
            Content::Held => return Ok(&[]),
            Content::Whole(bytes) => return Ok(bytes),
            Content::Written { file, .. } => file,
        };
        buffer.clear();
        buffer.reserve_exact(self.received as usize);
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(buffer));
        read.map_err(|e| DiskError::new("read", &self.path, &e))?;
        Ok(buffer)
    }

    /// Puts the bytes where no later call changes them; bytes in a file are durable then. [`Blobs::keep`] makes them a blob. If
    /// their digest is not `digest`, they are removed and the client starts over.
    ///
    /// # Errors
    /// `Short`, `Damaged`, `Superseded`; `Disk`.
    pub fn finish(mut self, digest: &Digest) -> Result<CompleteUpload, BlobError> {
        self.complete()?;
        let found = match &self.content {
            Content::Held => Digest::of(&[]),
            Content::Whole(bytes) => Digest::of(bytes),
            Content::Written { hasher, .. } => Digest(*hasher.finalize().as_bytes()),
        };
        if found != *digest {
            let path = self.path.clone();
            self.discard()?;
            return Err(BlobError::Damaged { path, found });
        }
        let partial = Arc::clone(&self.partial);
        let mut held = latest(&partial, self.turn)?;
        // `CompleteUpload` owns the bytes now: a retry by the client begins another upload.
        let content = match std::mem::replace(&mut self.content, Content::Held) {
            Content::Held => Bytes::Held(Vec::new()),
            Content::Whole(bytes) => Bytes::Held(bytes),
            Content::Written { file, .. } => {
                let disk = &self.blobs.disk;
                disk.sync(&file, &self.path)?;
                let side = self.blobs.side();
                disk.rename(&self.path, &side)?;
                held.on_disk = false;
                Bytes::Side(side)
            }
        };
        held.turn += 1;
        Ok(CompleteUpload {
            blobs: self.blobs.clone(),
            round: self.round,
            content,
            digest: found,
        })
    }

    fn complete(&self) -> Result<(), BlobError> {
        if self.received < self.len {
            return Err(BlobError::Short {
                have: self.received,
                len: self.len,
            });
        }
        Ok(())
    }

    /// Removes the bytes received, of a frame that is refused for good.
    ///
    /// # Errors
    /// `Superseded`; `Disk`.
    pub fn discard(self) -> Result<(), BlobError> {
        let mut held = self.turn()?;
        held.turn += 1;
        held.held = Vec::new();
        if held.on_disk {
            self.blobs.disk.remove(&self.path)?;
            held.on_disk = false;
        }
        Ok(())
    }

    fn turn(&self) -> Result<MutexGuard<'_, Partial>, BlobError> {
        latest(&self.partial, self.turn)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // No call would take it over for long, and no limit would count it.
        if let Ok(mut held) = self.turn() {
            held.held = Vec::new();
        }
    }
}

/// Locks an upload if the call with this turn is the latest one.
fn latest(partial: &Mutex<Partial>, turn: u64) -> Result<MutexGuard<'_, Partial>, BlobError> {
    let held = lock(partial);
    if held.turn != turn {
        return Err(BlobError::Superseded);
    }
    Ok(held)
}
