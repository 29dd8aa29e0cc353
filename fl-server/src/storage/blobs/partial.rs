//! Uploads in progress, at most one for each client.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fl_compress::Digest;
use fl_proto::ClientId;

use crate::storage::disk::{Disk, DiskError, files};

pub(super) type Partials = Arc<Mutex<BTreeMap<ClientId, Arc<Mutex<Partial>>>>>;

#[derive(Debug)]
pub(super) struct Partial {
    pub(super) path: PathBuf,
    /// Whether the file may exist.
    pub(super) on_disk: bool,
    /// The bytes received, while a call holds them in memory.
    pub(super) held: Vec<u8>,
    /// Number of the call that may write to the file. Incremented when the file is removed or becomes a blob.
    pub(super) turn: u64,
}

impl Partial {
    pub(super) fn new(path: PathBuf, on_disk: bool) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            path,
            on_disk,
            held: Vec::new(),
            turn: 0,
        }))
    }
}

/// The unfinished uploads of an earlier process, one for each client; removes files with other names.
pub(super) fn left_over(folder: &Path, disk: &Disk) -> Result<Partials, DiskError> {
    let mut all = BTreeMap::new();
    for path in files(folder)? {
        match client_of(&path).filter(|client| !all.contains_key(client)) {
            Some(client) => {
                all.insert(client, Partial::new(path, true));
            }
            None => disk.remove(&path)?,
        }
    }
    Ok(Arc::new(Mutex::new(all)))
}

/// `CLIENT-ROUND-DIGEST`, split from the end because a client's name may have dashes.
fn client_of(path: &Path) -> Option<ClientId> {
    let mut parts = path.file_name()?.to_str()?.rsplitn(3, '-');
    parts.next()?.parse::<Digest>().ok()?;
    parts.next()?.parse::<u64>().ok()?;
    parts.next()?.parse().ok()
}
