//! One copy in memory of a data set that several clients of one process share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::dataset::Dataset;
use super::error::Error;

static SETS: Mutex<BTreeMap<String, Weak<Dataset>>> = Mutex::new(BTreeMap::new());

/// The set with this `key`: one that another client of this process still holds, otherwise the result of `read`. Concurrent
/// callers wait for the first. A set is freed with its last holder.
pub(super) fn shared(key: String, read: impl FnOnce() -> Result<Dataset, Error>) -> Result<Arc<Dataset>, Error> {
    // A reader that panicked has not changed the table.
    let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(set) = sets.get(&key).and_then(Weak::upgrade) {
        return Ok(set);
    }
    let set = Arc::new(read()?);
    sets.retain(|_, set| set.strong_count() > 0);
    sets.insert(key, Arc::downgrade(&set));
    Ok(set)
}
