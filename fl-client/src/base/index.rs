//! Which files were compared with which bases, so that a large file is not hashed at every start. The index is a cache:
//! without it, files are compared again.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fl_compress::Digest;
use serde::{Deserialize, Serialize};

use crate::state::Disk;

const FILE: &str = "index.json";
const VERSION: u32 = 1;
const MAX_BYTES: u64 = 4 << 20;
/// Most files in the index; it is emptied beyond.
const MAX_FILES: usize = 4_096;

/// What changes when a file is written: its length and the time of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    len: u64,
    mtime: i64,
    mtime_nsec: i64,
}

impl From<&Metadata> for Stamp {
    fn from(found: &Metadata) -> Self {
        Self {
            len: found.len(),
            mtime: found.mtime(),
            mtime_nsec: found.mtime_nsec(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    stamp: Stamp,
    /// The bases that it was compared with, and whether it has them.
    bases: BTreeMap<String, bool>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Index {
    version: u32,
    files: BTreeMap<PathBuf, Known>,
    #[serde(skip)]
    is_changed: bool,
}

impl Index {
    /// The stored index; empty if there is none that can be read.
    pub(super) fn load(folder: &Path) -> Self {
        let disk = Disk { sync: false };
        let bytes = disk.read(&folder.join(FILE), MAX_BYTES).ok().flatten();
        let stored = bytes.and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        stored.filter(|stored| stored.version == VERSION).unwrap_or(Self {
            version: VERSION,
            files: BTreeMap::new(),
            is_changed: false,
        })
    }

    /// Whether the file has the base, if it was compared and has not changed since.
    pub(super) fn find(&self, path: &Path, base: &Digest, stamp: Stamp) -> Option<bool> {
        let known = self.files.get(path).filter(|known| known.stamp == stamp)?;
        known.bases.get(&base.to_string()).copied()
    }

    pub(super) fn add(&mut self, path: &Path, base: &Digest, stamp: Stamp, is_base: bool) {
        if self.files.len() >= MAX_FILES && !self.files.contains_key(path) {
            self.files.clear();
        }
        let known = self.files.entry(path.to_owned()).or_insert_with(|| Known {
            stamp,
            bases: BTreeMap::new(),
        });
        if known.stamp != stamp {
            known.stamp = stamp;
            known.bases.clear();
        }
        known.bases.insert(base.to_string(), is_base);
        self.is_changed = true;
    }

    /// Stores what was added. Best effort.
    pub(super) fn save(&self, folder: &Path, disk: Disk) {
        if !self.is_changed {
            return;
        }
        let written = serde_json::to_vec(self).map_err(|e| e.to_string()).and_then(|bytes| {
            fl_proto::make_private_folder(folder).map_err(|e| e.to_string())?;
            disk.replace(&folder.join(FILE), &[&bytes]).map_err(|e| e.to_string())
        });
        if let Err(why) = written {
            tracing::warn!(
                why,
                "the index of models is not stored: they are compared again at the next start"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(path: &Path) -> Stamp {
        Stamp::from(&std::fs::metadata(path).unwrap())
    }

    #[test]
    fn a_comparison_counts_until_the_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, path) = (dir.path().join("base"), dir.path().join("m.safetensors"));
        std::fs::write(&path, "one").unwrap();
        let (base, other) = (Digest::of(b"base"), Digest::of(b"other"));
        let mut index = Index::load(&folder);
        let before = stamp(&path);
        index.add(&path, &base, before, true);
        index.add(&path, &other, before, false);
        index.save(&folder, Disk { sync: false });
        let mut index = Index::load(&folder);
        assert_eq!(index.find(&path, &base, before), Some(true));
        assert_eq!(index.find(&path, &other, before), Some(false));
        assert_eq!(index.find(&path, &Digest::of(b"third"), before), None);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let after = stamp(&path);
        assert_eq!(index.find(&path, &base, after), None);
        index.add(&path, &base, after, false);
        assert_eq!(index.find(&path, &base, after), Some(false));
        assert_eq!(index.find(&path, &other, after), None, "of the file before");
    }

    #[test]
    fn an_index_that_cannot_be_read_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.safetensors");
        std::fs::write(&path, "one").unwrap();
        let base = Digest::of(b"base");
        for text in [
            "",
            "{",
            "{\"version\":2,\"files\":{}}",
            "{\"version\":1,\"files\":{\"x\":1}}",
        ] {
            std::fs::write(dir.path().join(FILE), text).unwrap();
            assert_eq!(Index::load(dir.path()).find(&path, &base, stamp(&path)), None, "{text}");
        }
    }
}
