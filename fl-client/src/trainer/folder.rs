//! The work folder: tensors on their way between client and trainer.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use fl_compress::Digest;

static COUNT: AtomicU64 = AtomicU64::new(0);
/// Distinguishes this process from every other, also from one that had its number.
static PROCESS: LazyLock<String> = LazyLock::new(|| {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{:x}", std::process::id(), since.as_nanos())
});

/// A private folder that is deleted at the end.
#[derive(Debug)]
pub(crate) struct WorkFolder {
    path: PathBuf,
}

impl WorkFolder {
    /// Creates a folder in `parent`. `state`: the client's state folder, if it has one and has locked it; work folders that a
    /// killed client with this state folder has left are removed then.
    ///
    /// The name is never used twice: the guard of a killed client may still be about to remove the folder of that client.
    pub(crate) fn create(parent: &Path, state: Option<&Path>) -> anyhow::Result<Self> {
        let context = || format!("cannot create a work folder in {}", parent.display());
        fs::create_dir_all(parent).with_context(context)?;
        let parent = parent.canonicalize().with_context(context)?;
        let owner = prefix(state);
        if state.is_some() {
            remove_left_overs(&parent, &owner);
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{owner}{}-{count}", *PROCESS));
        fl_proto::make_private_folder(&path).with_context(context)?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, folder = %self.path.display(), "the trainer's work folder was not removed");
        }
    }
}

/// Removes the owner's work folders of other processes.
fn remove_left_overs(parent: &Path, owner: &str) {
    let Ok(found) = fs::read_dir(parent) else { return };
    for entry in found.flatten() {
        let name = entry.file_name();
        let whose = name.to_str().and_then(|name| name.strip_prefix(owner));
        if whose.is_some_and(|process| !process.starts_with(PROCESS.as_str())) {
            // The guard of the killed client may be doing the same.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Beginning of the names of a client's work folders. Several clients may share the parent folder.
fn prefix(state: Option<&Path>) -> String {
    let Some(state) = state else {
        return "fl-trainer-".to_owned();
    };
    let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    let owner = Digest::of(state.as_os_str().as_encoded_bytes()).short();
    format!("fl-trainer-{owner:016x}-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_folder_is_removed_at_its_end_and_after_a_kill_at_the_next_start() {
        let (parent, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let names = || fs::read_dir(parent.path()).unwrap().count();
        let killed = parent.path().join(format!("{}7-abc-0", prefix(Some(state.path()))));
        let other = parent.path().join(format!("{}7-abc-0", prefix(Some(parent.path()))));
        for folder in [&killed, &other] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("model.safetensors"), "x").unwrap();
        }
        let first = WorkFolder::create(parent.path(), Some(state.path())).unwrap();
        assert!(!killed.exists() && other.exists());
        let second = WorkFolder::create(parent.path(), Some(state.path())).unwrap();
        assert!(first.path().exists() && second.path() != first.path());
        fs::write(second.path().join("update.safetensors"), "x").unwrap();
        drop((first, second));
        fs::remove_dir_all(&other).unwrap();
        assert_eq!(names(), 0);
    }
}
