//! The snapshots that clients may be fetching. A client with a slow or broken connection continues the one that it began, also
//! after newer versions were made: the model updates after it follow.

use fl_compress::{Digest, wire};
use fl_proto::FramePart;
use serde::{Deserialize, Serialize};

use super::persistence_error::PersistenceError;
use crate::storage::blobs::Blobs;
use crate::storage::store::RunStore;

/// Most snapshots that are kept. Each takes four bytes per parameter on the disk.
const KEPT: usize = 4;

const SNAPSHOTS: &str = "snapshots";

/// The snapshots that were made last, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptSnapshots(Vec<FramePart>);

impl KeptSnapshots {
    pub(crate) fn load(run: &RunStore) -> Result<Self, PersistenceError> {
        match run.meta(SNAPSHOTS)? {
            Some(bytes) => wire::value(&bytes, SNAPSHOTS).map_err(|e| PersistenceError::stored(SNAPSHOTS, e)),
            None => Ok(Self::default()),
        }
    }

    /// Stores the list.
    pub(crate) fn store(&self, run: &RunStore) -> Result<(), PersistenceError> {
        Ok(run.set_meta(SNAPSHOTS, &wire::bytes_of(self))?)
    }

    /// Adds the newest. Returns those that are kept no longer.
    pub(crate) fn add(&mut self, part: FramePart) -> Vec<FramePart> {
        self.0.retain(|kept| kept.digest != part.digest);
        self.0.push(part);
        let stale = self.0.len().saturating_sub(KEPT);
        self.0.drain(..stale).collect()
    }

    /// Forgets those whose files are missing.
    pub(crate) fn retain_stored(&mut self, blobs: &Blobs) -> Result<(), PersistenceError> {
        let mut stored = Vec::new();
        for part in &self.0 {
            if blobs.len(&part.digest)? == Some(part.len) {
                stored.push(*part);
            }
        }
        self.0 = stored;
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn of_version(&self, version: u64) -> Option<FramePart> {
        self.0.iter().find(|part| part.version == version).copied()
    }

    pub(crate) fn find(&self, digest: &Digest) -> Option<FramePart> {
        self.0.iter().find(|part| part.digest == *digest).copied()
    }

    /// All of them, oldest first.
    pub(crate) fn parts(&self) -> &[FramePart] {
        &self.0
    }

    pub(crate) fn digests(&self) -> impl Iterator<Item = Digest> {
        self.0.iter().map(|part| part.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::disk::Disk;
    use crate::storage::store::Store;

    fn part(version: u64) -> FramePart {
        FramePart {
            version,
            len: 7,
            digest: Digest::of(&version.to_le_bytes()),
        }
    }

    #[test]
    fn the_last_snapshots_are_kept_and_found_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let run = Store::open(dir.path(), Disk::default())
            .unwrap()
            .run(&"r".parse().unwrap())
            .unwrap();
        assert_eq!(KeptSnapshots::load(&run).unwrap(), KeptSnapshots::default());
        let mut kept = KeptSnapshots::default();
        let dropped: Vec<_> = [3, 4, 7, 7, 9, 12]
            .into_iter()
            .flat_map(|version| kept.add(part(version)))
            .collect();
        assert_eq!(dropped, [part(3)]);
        kept.store(&run).unwrap();
        let loaded = KeptSnapshots::load(&run).unwrap();
        assert_eq!(loaded, kept);
        assert_eq!(loaded.find(&part(7).digest), Some(part(7)));
        assert_eq!(loaded.find(&part(3).digest), None);
        assert_eq!(loaded.of_version(12), Some(part(12)));
        assert_eq!(loaded.of_version(11), None);
    }

    #[test]
    fn a_damaged_list_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Disk::default()).unwrap();
        let run = store.run(&"r".parse().unwrap()).unwrap();
        let bytes = wire::bytes_of(&KeptSnapshots(vec![part(3)]));
        for damaged in [&bytes[..bytes.len() - 1], &[&bytes[..], b"/"].concat(), &[]] {
            run.set_meta(SNAPSHOTS, damaged).unwrap();
            let why = KeptSnapshots::load(&run).unwrap_err().to_string();
            assert!(why.contains(SNAPSHOTS), "{why}");
        }
    }
}
