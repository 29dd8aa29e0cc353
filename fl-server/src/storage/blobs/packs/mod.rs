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
use std::sync::{Arc, Mutex};

use fl_compress::Digest;

use crate::lock::lock;
use crate::storage::disk::{Disk, DiskError};
pub(crate) use entry::LONGEST;
use entry::Span;
pub(crate) use index::{Index, Location};

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
    pub(super) fn open(folder: &Path, disk: Disk) -> Result<Self, DiskError> {
        disk.create_dir(folder)?;
        Ok(Self {
            disk,
            index: Mutex::new(Index::open(folder)?),
            open: Mutex::default(),
        })
    }

    /// Appends updates of `round`, each of at most `u32::MAX` bytes; durable on return.
    ///
    /// # Errors
    /// `Disk`: none of them is in a pack then.
    pub(super) fn append(&self, round: u64, mut new: BTreeMap<Digest, &[u8]>) -> Result<(), DiskError> {
        let mut held = lock(&self.open);
        {
            let index = lock(&self.index);
            new.retain(|digest, _| !index.has(digest));
        }
        if new.is_empty() {
            return Ok(());
        }
        let mut open = match held.take().filter(|open| open.round == round) {
            Some(open) => open,
            None => self.begin(round)?,
        };
        // After an error, what the pack ends with is not known: it gets no more.
        let added = self.write(&mut open, &new)?;
        let mut index = lock(&self.index);
        for (digest, span) in added {
            index.add(open.number, digest, span);
        }
        *held = Some(open);
        Ok(())
    }

    fn write(&self, open: &mut Open, new: &BTreeMap<Digest, &[u8]>) -> Result<Vec<(Digest, Span)>, DiskError> {
        let mut gathered = Vec::new();
        let mut added = Vec::with_capacity(new.len());
        for (digest, bytes) in new {
            let len = bytes.len() as u32;
            let at = open.len + entry::HEADER as u64;
            added.push((*digest, Span { at, len }));
            open.len = at + u64::from(len);
            gathered.extend_from_slice(&entry::header(digest, len));
            if bytes.len() <= GATHERED {
                gathered.extend_from_slice(bytes);
                continue;
            }
            self.disk.write(&open.file, &open.path, &gathered)?;
            self.disk.write(&open.file, &open.path, bytes)?;
            gathered.clear();
        }
        if !gathered.is_empty() {
            self.disk.write(&open.file, &open.path, &gathered)?;
        }
        self.disk.sync_data(&open.file, &open.path)?;
        Ok(added)
    }

    /// Begins a pack; the one before gets no more.
    fn begin(&self, round: u64) -> Result<Open, DiskError> {
        let (number, path) = {
            let mut index = lock(&self.index);
            index.close();
            index.next()
        };
        self.remove_empty()?;
        let file = Arc::new(self.disk.open(&path, true)?);
        self.disk.write(&file, &path, entry::START)?;
        if let Some(folder) = path.parent() {
            self.disk.sync_dir(folder)?;
        }
        lock(&self.index).open_pack(number, Arc::clone(&file));
        Ok(Open {
            number,
            round,
            path,
            file,
            len: entry::START.len() as u64,
        })
    }

    /// Where a blob is, if a pack has it.
    pub(super) fn locate(&self, digest: &Digest) -> Option<Location> {
        lock(&self.index).locate(digest)
    }

    /// Removes a blob. Returns whether there was one.
    pub(super) fn remove(&self, digest: &Digest) -> Result<bool, DiskError> {
        let removed = lock(&self.index).remove(digest);
        if removed {
            self.remove_empty()?;
        }
        Ok(removed)
    }

    /// Removes the blobs that are not in `keep`; returns how many.
    pub(super) fn sweep(&self, keep: &BTreeSet<Digest>) -> Result<usize, DiskError> {
        let removed = lock(&self.index).retain(keep);
        self.remove_empty()?;
        Ok(removed)
    }

    /// Deletes the packs without blobs, except the one that grows.
    fn remove_empty(&self) -> Result<(), DiskError> {
        let empty = lock(&self.index).take_empty();
        empty.iter().try_for_each(|path| self.disk.remove(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::disk::{Fault, FaultKind, files};

    fn append(packs: &Packs, blobs: &[&[u8]]) -> Result<(), DiskError> {
        packs.append(1, blobs.iter().map(|blob| (Digest::of(blob), *blob)).collect())
    }

    fn read(packs: &Packs, blob: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = b"before".to_vec();
        let located = packs.locate(&Digest::of(blob))?;
        located.read(&mut bytes).unwrap();
        Some(bytes)
    }

    fn open(dir: &Path) -> Packs {
        Packs::open(dir, Disk::default()).unwrap()
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
        let next = |blob: &'static [u8]| packs.append(2, [(Digest::of(blob), blob)].into()).unwrap();
        next(b"two");
        next(b"more");
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

    /// A pack with one blob that is named, and an entry whose header is whole and whose bytes never reached the disk.
    #[test]
    fn an_entry_that_was_not_durable_hides_no_later_blob_of_that_digest() {
        let dir = tempfile::tempdir().unwrap();
        append(&open(dir.path()), &[b"one"]).unwrap();
        let mut bytes = std::fs::read(dir.path().join("0.pack")).unwrap();
        bytes.extend(entry::header(&Digest::of(b"sent again"), 10));
        bytes.extend([0; 10]);
        std::fs::write(dir.path().join("0.pack"), bytes).unwrap();
        let packs = open(dir.path());
        // No record names it: the start forgets it, and the client sends it again.
        assert_eq!(packs.sweep(&[Digest::of(b"one")].into()).unwrap(), 1);
        append(&packs, &[b"sent again"]).unwrap();
        assert_eq!(read(&packs, b"sent again").unwrap(), b"sent again");
        let again = open(dir.path());
        assert_eq!(read(&again, b"sent again").unwrap(), b"sent again");
    }
}
