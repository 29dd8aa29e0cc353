//! One copy in memory of a set that several clients of one process train on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::dataset::Dataset;
use super::error::Error;

static SETS: Mutex<BTreeMap<String, Weak<Dataset>>> = Mutex::new(BTreeMap::new());

/// The set that `key` stands for: one that another client of this process still holds, or else what `read` returns.
/// Clients that ask at the same time wait for the first; nothing is kept once nobody holds it.
///
/// # Errors
/// Those of `read`.
pub(super) fn shared(key: String, read: impl FnOnce() -> Result<Dataset, Error>) -> Result<Arc<Dataset>, Error> {
    // A reader that panicked left the table as it was.
    let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(set) = sets.get(&key).and_then(Weak::upgrade) {
        return Ok(set);
    }
    let set = Arc::new(read()?);
    sets.retain(|_, set| set.strong_count() > 0);
    sets.insert(key, Arc::downgrade(&set));
    Ok(set)
}
