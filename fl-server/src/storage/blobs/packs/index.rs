//! Where each blob is in the packs of a run. Reads the packs' headers, and never writes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fl_compress::Digest;

use super::entry::{Span, scan};
use crate::storage::disk::{DiskError, files, open_file};

/// What a pack's name ends with.
const ENDING: &str = "pack";

/// The packs of a run and the blobs in them: some hundred bytes for each blob.
#[derive(Debug)]
pub(crate) struct Index {
    folder: PathBuf,
    packs: BTreeMap<u32, Pack>,
    places: BTreeMap<Digest, (u32, Span)>,
    /// Greater than the number of every pack so far: a reader may know one that is deleted since.
    next: u32,
}

#[derive(Debug, Default)]
struct Pack {
    /// Blobs that are not removed.
    blobs: usize,
    /// Of the pack that grows.
    file: Option<Arc<File>>,
}

impl Index {
    /// The packs in `folder`, if there is such a folder.
    pub(crate) fn open(folder: &Path) -> Result<Self, DiskError> {
        let mut index = Self {
            folder: folder.to_owned(),
            packs: BTreeMap::new(),
            places: BTreeMap::new(),
            next: 0,
        };
        let paths = if folder.is_dir() { files(folder)? } else { Vec::new() };
        let mut packs: Vec<_> = paths
            .into_iter()
            .filter_map(|path| Some((number(&path)?, path)))
            .collect();
        packs.sort();
        for (number, path) in packs {
            index.next = index.next.max(number.saturating_add(1));
            let entries = match open_file(&path).and_then(|file| scan(&file)) {
                Ok(entries) => entries,
                // A running server removes packs that it no longer needs.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(DiskError::new("read", &path, &error)),
            };
            index.packs.entry(number).or_default();
            for (digest, span) in entries {
                // A process appends a blob again only if no record named the one before, which may not have been durable.
                index.remove(&digest);
                index.add(number, digest, span);
            }
        }
        Ok(index)
    }

    /// Where a blob is, if a pack has it.
    pub(crate) fn locate(&self, digest: &Digest) -> Option<Location> {
        let (number, span) = *self.places.get(digest)?;
        Some(Location {
            path: self.path(number),
            file: self.packs.get(&number).and_then(|pack| pack.file.clone()),
            span,
        })
    }

    pub(super) fn has(&self, digest: &Digest) -> bool {
        self.places.contains_key(digest)
    }

    /// Number and path of a pack after all others.
    pub(super) fn next(&mut self) -> (u32, PathBuf) {
        let number = self.next;
        self.next = number.saturating_add(1);
        (number, self.path(number))
    }

    pub(super) fn open_pack(&mut self, number: u32, file: Arc<File>) {
        self.packs.entry(number).or_default().file = Some(file);
    }

    /// No pack grows any more.
    pub(super) fn close(&mut self) {
        self.packs.values_mut().for_each(|pack| pack.file = None);
    }

    fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number}.{ENDING}"))
    }

    /// Notes a blob; one that is in another pack already stays there.
    pub(super) fn add(&mut self, number: u32, digest: Digest, span: Span) {
        let pack = self.packs.entry(number).or_default();
        if let Entry::Vacant(place) = self.places.entry(digest) {
            place.insert((number, span));
            pack.blobs += 1;
        }
    }

    /// Forgets a blob. Returns whether there was one.
    pub(super) fn remove(&mut self, digest: &Digest) -> bool {
        let Some((number, _)) = self.places.remove(digest) else {
            return false;
        };
        if let Some(pack) = self.packs.get_mut(&number) {
            pack.blobs -= 1;
        }
        true
    }

    /// Forgets the blobs that are not `kept`. Returns how many.
    pub(super) fn retain(&mut self, kept: &BTreeSet<Digest>) -> usize {
        let unknown = self.places.keys().filter(|digest| !kept.contains(digest));
        let unknown: Vec<Digest> = unknown.copied().collect();
        unknown.iter().filter(|digest| self.remove(digest)).count()
    }

    /// Forgets the packs without a blob, except the one that grows, and returns their paths.
    pub(super) fn take_empty(&mut self) -> Vec<PathBuf> {
        let empty = self
            .packs
            .extract_if(.., |_, pack| pack.blobs == 0 && pack.file.is_none());
        let empty: Vec<u32> = empty.map(|(number, _)| number).collect();
        empty.into_iter().map(|number| self.path(number)).collect()
    }
}

#[derive(Debug)]
pub(crate) struct Location {
    path: PathBuf,
    /// The pack, if it grows.
    file: Option<Arc<File>>,
    span: Span,
}

impl Location {
    pub(crate) fn len(&self) -> u64 {
        u64::from(self.span.len)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces `bytes` by those of the blob, whose digest the caller checks.
    ///
    /// # Errors
    /// `Disk`: the pack is gone, shorter than it was, or cannot be read.
    pub(crate) fn read(&self, bytes: &mut Vec<u8>) -> Result<(), DiskError> {
        self.read_span(bytes)
            .map_err(|e| DiskError::new("read", &self.path, &e))
    }

    fn read_span(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => Arc::new(open_file(&self.path)?),
        };
        // A pack that was cut off since must not cost memory.
        if file.metadata()?.len() < self.span.at + u64::from(self.span.len) {
            let why = "it is shorter than it was";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        bytes.resize(self.span.len as usize, 0);
        file.read_exact_at(bytes, self.span.at)
    }
}

/// The number in a pack's name.
fn number(path: &Path) -> Option<u32> {
    let stem = path
        .extension()
        .filter(|ending| *ending == ENDING)
        .and(path.file_stem())?;
    let number: u32 = stem.to_str()?.parse().ok()?;
    (path.file_name()?.to_str()? == format!("{number}.{ENDING}")).then_some(number)
}
