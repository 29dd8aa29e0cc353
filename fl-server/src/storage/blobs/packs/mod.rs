//! Packs: the short updates of a round in one file, durable with one flush for all that arrive together. A file of its own would
//! cost a short update more than its bytes do: an inode, two names and two flushes.
//!
//! Packs are in `packs/RUN/`, named `NUMBER.pack`, and only ever grow. A process appends to a pack that it began itself, so what a
//! crash left at the end of an older one is never touched. A pack whose blobs are all removed is deleted; since the updates of a
//! round are removed together, little is kept longer. The index is in memory and read from the headers at a start.

mod entry;
mod index;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fl_compress::Digest;

use crate::storage::disk::{Disk, DiskError};
use entry::Span;
pub(crate) use index::{Index, Located};

/// Blobs up to this size are gathered into one write.
const GATHERED: usize = 64 * 1024;

/// The packs of a run, and the one that this process appends to.
#[derive(Debug)]
pub(super) struct Packs {
    disk: Disk,
    /// Not locked while bytes are written.
    index: Mutex<Index>,
    open: Mutex<Option<Open>>,
}

/// The pack that grows.
#[derive(Debug)]
struct Open {
    number: u32,
    /// Of its blobs.
    round: u64,
    path: PathBuf,
    file: Arc<File>,
    len: u64,
}

impl Packs {
    pub(super) fn open(folder: &Path, disk: Disk) -> Result<Arc<Self>, DiskError> {
        disk.create_dir(folder)?;
        Ok(Arc::new(Self {
            disk,
            index: Mutex::new(Index::open(folder)?),
            open: Mutex::default(),
        }))
    }

    /// Writes updates of `round`, each of at most `u32::MAX` bytes; durable on return. Others may write at the same time.
    ///
    /// # Errors
    /// `Disk`: the pack gets no more, because it may end with anything.
    pub(super) fn write(
        self: &Arc<Self>,
        round: u64,
        blobs: &BTreeMap<Digest, impl AsRef<[u8]>>,
    ) -> Result<Written, DiskError> {
        let new: Vec<(Digest, &[u8])> = {
            let index = self.index();
            let new = blobs.iter().filter(|(digest, _)| !index.has(digest));
            new.map(|(digest, bytes)| (*digest, bytes.as_ref())).collect()
        };
        if new.is_empty() {
            return Ok(Written::default());
        }
        let (reserved, path, file, start) = self.reserve(round, &new)?;
        let written = self.fill(&file, &path, start, &new);
        let written = written.and_then(|()| self.disk.sync_data(&file, &path));
        if written.is_err() {
            let mut open = self.lock_open();
            open.take_if(|open| open.path == path);
        }
        written.map(|()| reserved)
    }

    /// Room for blobs in the pack of `round`, with the pack's file and the offset of the room.
    fn reserve(
        self: &Arc<Self>,
        round: u64,
        new: &[(Digest, &[u8])],
    ) -> Result<(Written, PathBuf, Arc<File>, u64), DiskError> {
        let mut held = self.lock_open();
        let mut open = match held.take().filter(|open| open.round == round) {
            Some(open) => open,
            None => self.begin(round)?,
        };
        let start = open.len;
        let mut entries = Vec::with_capacity(new.len());
        for (digest, bytes) in new {
            let (at, len) = (open.len + entry::HEADER as u64, bytes.len() as u32);
            entries.push((*digest, Span { at, len }));
            open.len = at + u64::from(len);
        }
        self.index().reserve(open.number);
        let reserved = Written {
            packs: Some((Arc::clone(self), open.number)),
            entries,
        };
        let (path, file) = (open.path.clone(), Arc::clone(&open.file));
        *held = Some(open);
        Ok((reserved, path, file, start))
    }

    /// Writes entries from the offset `at` on.
    fn fill(&self, file: &File, path: &Path, mut at: u64, new: &[(Digest, &[u8])]) -> Result<(), DiskError> {
        let mut gathered = Vec::new();
        for (digest, bytes) in new {
            gathered.extend_from_slice(&entry::header(digest, bytes.len() as u32));
            if bytes.len() <= GATHERED {
                gathered.extend_from_slice(bytes);
                continue;
            }
            self.disk.write_at(file, path, &gathered, at)?;
            at += gathered.len() as u64;
            self.disk.write_at(file, path, bytes, at)?;
            at += bytes.len() as u64;
            gathered.clear();
        }
        if !gathered.is_empty() {
            self.disk.write_at(file, path, &gathered, at)?;
        }
        Ok(())
    }

    /// Begins a pack; the one before gets no more.
    fn begin(&self, round: u64) -> Result<Open, DiskError> {
        let (number, path) = {
            let mut index = self.index();
            index.close();
            index.next()
        };
        self.remove_empty()?;
        let file = Arc::new(self.disk.open(&path, true)?);
        self.disk.write_at(&file, &path, entry::START, 0)?;
        if let Some(folder) = path.parent() {
            self.disk.sync_dir(folder)?;
        }
        self.index().open_pack(number, Arc::clone(&file));
        Ok(Open {
            number,
            round,
            path,
            file,
            len: entry::START.len() as u64,
        })
    }

    /// Where a blob is, if a pack has it.
    pub(super) fn locate(&self, digest: &Digest) -> Option<Located> {
        self.index().locate(digest)
    }

    /// Removes a blob. Returns whether there was one.
    ///
    /// # Errors
    /// `Disk`: a pack without blobs cannot be deleted.
    pub(super) fn remove(&self, digest: &Digest) -> Result<bool, DiskError> {
        let removed = self.index().remove(digest);
        if removed {
            self.remove_empty()?;
        }
        Ok(removed)
    }

    /// Removes the blobs that are not in `keep`; returns how many.
    ///
    /// # Errors
    /// As [`Packs::remove`].
    pub(super) fn sweep(&self, keep: &BTreeSet<Digest>) -> Result<usize, DiskError> {
        let removed = self.index().retain(keep);
        self.remove_empty()?;
        Ok(removed)
    }

    /// Deletes the packs without blobs, except the one that grows.
    fn remove_empty(&self) -> Result<(), DiskError> {
        let empty = self.index().take_empty();
        empty.iter().try_for_each(|path| self.disk.remove(path))
    }

    fn lock_open(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Updates that are durable in a pack and not blobs yet. Dropped, they never become blobs, and keep their space until the pack is
/// deleted.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// The packs, and the number of the one written to; `None` without entries.
    packs: Option<(Arc<Packs>, u32)>,
    entries: Vec<(Digest, Span)>,
}

impl Written {
    /// Makes them blobs.
    pub(super) fn publish(mut self) {
        let entries = std::mem::take(&mut self.entries);
        if let Some((packs, number)) = &self.packs {
            let mut index = packs.index();
            entries
                .into_iter()
                .for_each(|(digest, span)| index.add(*number, digest, span));
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if let Some((packs, number)) = &self.packs {
            packs.index().release(*number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::disk::{Fault, FaultKind, files};

    fn append(packs: &Arc<Packs>, blobs: &[&[u8]]) -> Result<(), DiskError> {
        append_to(packs, 1, blobs)
    }

    fn append_to(packs: &Arc<Packs>, round: u64, blobs: &[&[u8]]) -> Result<(), DiskError> {
        let blobs: BTreeMap<Digest, &[u8]> = blobs.iter().map(|blob| (Digest::of(blob), *blob)).collect();
        packs.write(round, &blobs).map(Written::publish)
    }

    fn read(packs: &Packs, blob: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = b"before".to_vec();
        let located = packs.locate(&Digest::of(blob))?;
        located.read(&mut bytes).unwrap();
        Some(bytes)
    }

    fn open(dir: &Path) -> Arc<Packs> {
        Packs::open(dir, Disk::default()).unwrap()
    }

    #[test]
    fn what_is_written_is_a_blob_once_it_is_published() {
        let dir = tempfile::tempdir().unwrap();
        let packs = open(dir.path());
        let write = |round, blob: &[u8]| packs.write(round, &[(Digest::of(blob), blob)].into()).unwrap();
        let (kept, again, refused) = (write(1, b"kept"), write(1, b"kept"), write(1, b"refused"));
        assert_eq!(read(&packs, b"kept"), None);
        drop(write(2, b"other"));
        assert_eq!(
            files(dir.path()).unwrap().len(),
            2,
            "the first pack has updates that may be published"
        );
        kept.publish();
        again.publish();
        drop(refused);
        assert_eq!(
            (read(&packs, b"kept").unwrap(), read(&packs, b"refused")),
            (b"kept".into(), None)
        );
        packs.remove(&Digest::of(b"kept")).unwrap();
        assert_eq!(files(dir.path()).unwrap(), [dir.path().join("1.pack")]);
    }

    #[test]
    fn blobs_are_read_before_and_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let large = vec![3; GATHERED + 1];
        let packs = open(dir.path());
        append(&packs, &[b"one", &large, b""]).unwrap();
        append(&packs, &[b"one", b"two", b"two"]).unwrap();
        let again = open(dir.path());
        append(&again, &[b"three"]).unwrap();
        for packs in [&packs, &again] {
            for blob in [&b"one"[..], &large, b"", b"two"] {
                assert_eq!(read(packs, blob).unwrap(), blob);
            }
        }
        assert_eq!(read(&again, b"three").unwrap(), b"three");
        let sizes = files(dir.path()).unwrap();
        let sizes: Vec<u64> = sizes.iter().map(|path| path.metadata().unwrap().len()).collect();
        let entries = |blobs: &[usize]| 8 + blobs.iter().map(|len| 44 + *len as u64).sum::<u64>();
        assert_eq!(
            sizes,
            [entries(&[3, large.len(), 0, 3]), entries(&[5])],
            "no blob twice"
        );
    }

    #[test]
    fn a_pack_is_deleted_with_its_last_blob_and_its_number_is_not_used_again() {
        let dir = tempfile::tempdir().unwrap();
        append(&open(dir.path()), &[b"one", b"two"]).unwrap();
        let packs = open(dir.path());
        append(&packs, &[b"three"]).unwrap();
        assert!(packs.remove(&Digest::of(b"one")).unwrap());
        assert!(!packs.remove(&Digest::of(b"one")).unwrap());
        assert_eq!((read(&packs, b"one"), files(dir.path()).unwrap().len()), (None, 2));
        assert_eq!(packs.sweep(&[Digest::of(b"three")].into()).unwrap(), 1);
        assert_eq!(files(dir.path()).unwrap(), [dir.path().join("1.pack")]);
        assert!(packs.remove(&Digest::of(b"three")).unwrap());
        assert_eq!(files(dir.path()).unwrap().len(), 1, "the pack that grows stays");
        append(&packs, &[b"four"]).unwrap();
        assert_eq!(read(&open(dir.path()), b"four").unwrap(), b"four");
        let names = files(dir.path()).unwrap();
        assert_eq!(names, [dir.path().join("1.pack")]);
    }

    #[test]
    fn the_updates_of_the_next_round_are_in_another_pack() {
        let dir = tempfile::tempdir().unwrap();
        let packs = open(dir.path());
        append(&packs, &[b"one", b"another"]).unwrap();
        append_to(&packs, 2, &[b"two"]).unwrap();
        append_to(&packs, 2, &[b"more"]).unwrap();
        assert_eq!(files(dir.path()).unwrap().len(), 2);
        packs.remove(&Digest::of(b"another")).unwrap();
        packs.remove(&Digest::of(b"one")).unwrap();
        assert_eq!(files(dir.path()).unwrap(), [dir.path().join("1.pack")]);
        assert_eq!(read(&packs, b"two").unwrap(), b"two");
    }

    #[test]
    fn after_a_failed_write_the_next_blobs_are_in_another_pack() {
        for at in 1..12 {
            let dir = tempfile::tempdir().unwrap();
            let fault = std::sync::Arc::new(Fault::new(FaultKind::Full, at));
            let packs = Packs::open(dir.path(), Disk::new(Some(fault)));
            let Ok(packs) = packs else { continue };
            let kept = append(&packs, &[b"one"]).and_then(|()| append(&packs, &[b"two"]));
            let again = open(dir.path());
            append(&again, &[b"three"]).unwrap();
            assert_eq!(read(&again, b"three").unwrap(), b"three");
            if kept.is_ok() {
                assert_eq!(
                    (read(&again, b"one").unwrap(), read(&again, b"two").unwrap()),
                    (b"one".into(), b"two".into())
                );
            }
        }
    }

    #[test]
    fn a_pack_that_was_cut_off_since_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let packs = open(dir.path());
        append(&packs, &[b"one"]).unwrap();
        let path = dir.path().join("0.pack");
        std::fs::write(&path, b"fl-pack").unwrap();
        let error = packs
            .locate(&Digest::of(b"one"))
            .unwrap()
            .read(&mut Vec::new())
            .unwrap_err();
        assert!(
            error.to_string().contains("0.pack: it is shorter than it was"),
            "{error}"
        );
    }
}
