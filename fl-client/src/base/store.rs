//! The bases that this client has.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fl_compress::Digest;
use fl_proto::open_regular;

use super::index::{Index, Stamp};
use super::part::Part;
use super::search::model_files;
use super::wanted::RunBase;
use crate::error::Error;
use crate::state::Disk;

#[derive(Debug)]
pub(crate) struct BaseStore {
    /// `base/` of the state folder.
    folder: PathBuf,
    /// The user's folder of models.
    models: Option<PathBuf>,
    /// Bases of earlier runs that are kept.
    most: usize,
    disk: Disk,
}

impl BaseStore {
    /// The store in the folder `state`, which keeps `most` bases of earlier runs.
    pub(crate) fn new(state: &Path, models: Option<PathBuf>, most: usize, disk: Disk) -> Self {
        // A trainer runs in another folder.
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        Self {
            folder: absolute(state.join("base")),
            models: models.map(absolute),
            most,
            disk,
        }
    }

    /// A file with the base: one that was fetched, or one in the folder of models. Blocks while files are compared that
    /// were not compared before.
    pub(crate) fn find(&self, wanted: &RunBase) -> Option<PathBuf> {
        let mut index = Index::load(&self.folder);
        let own = self.path(wanted);
        let candidates = [own.clone()].into_iter().filter(|own| own.exists());
        let found = candidates
            .chain(self.models.iter().flat_map(|models| model_files(models)))
            .find(|path| {
                has_base(path, wanted, &mut index).unwrap_or_else(|error| {
                    tracing::warn!(path = %path.display(), %error, "cannot be read; the base is looked for elsewhere");
                    false
                })
            });
        if found.as_ref() != Some(&own) && own.exists() {
            tracing::warn!(path = %own.display(), "is damaged: its tensors are not the base that it is named by; it is deleted");
            if let Err(error) = std::fs::remove_file(&own) {
                tracing::warn!(path = %own.display(), %error, "cannot be deleted");
            }
        }
        index.save(&self.folder, self.disk);
        found
    }

    /// What has arrived of the base, to be continued.
    pub(crate) fn part(&self, wanted: &RunBase) -> Result<Part, Error> {
        fl_proto::make_private_folder(&self.folder).map_err(|e| Error::io(&self.folder, "make the folder", &e))?;
        prune(&self.folder, Some(wanted.digest), self.most, || false);
        Part::open(&self.folder, wanted, self.path(wanted), self.disk)
    }

    fn path(&self, wanted: &RunBase) -> PathBuf {
        self.folder.join(format!("{}.safetensors", wanted.digest))
    }
}

/// Removes what was fetched of bases other than `wanted`, the oldest first, while they are more than `most` or the disk `is_full`:
/// who needs one again fetches it again.
pub(crate) fn prune(folder: &Path, wanted: Option<Digest>, most: usize, is_full: impl Fn() -> bool) {
    let wanted = wanted.map(|digest| digest.to_string());
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut others: Vec<_> = found
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_stem().and_then(|name| name.to_str());
            let is_base = path
                .extension()
                .is_some_and(|end| end == "safetensors" || end == "part");
            is_base && name != wanted.as_deref()
        })
        .collect();
    others.sort_by_key(|path| path.metadata().and_then(|about| about.modified()).ok());
    let mut kept = others.len();
    for path in others {
        if kept <= most && !is_full() {
            break;
        }
        kept -= 1;
        tracing::warn!(path = %path.display(), "a base of an earlier run is removed: `runs` or `disk` in [limits] is reached");
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "it stays");
        }
    }
}

/// Whether the frozen tensors in a file are the base.
fn has_base(path: &Path, wanted: &RunBase, index: &mut Index) -> std::io::Result<bool> {
    let mut file = open_regular(File::options().read(true), path)?;
    let stamp = Stamp::from(&file.metadata()?);
    if let Some(known) = index.find(path, &wanted.digest, stamp) {
        return Ok(known);
    }
    let is_base = match wanted.plan.digest_in(&mut file) {
        Ok(found) => found == wanted.digest,
        Err(why) if matches!(why.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
            tracing::debug!(path = %path.display(), %why, "has another model");
            false
        }
        Err(why) => return Err(why),
    };
    index.add(path, &wanted.digest, stamp, is_base);
    Ok(is_base)
}

#[cfg(test)]
mod tests {
    use fl_compress::weights::BasePlan;
    use fl_compress::{Dtype, Role, TensorSpec};

    use super::*;

    const DISK: Disk = Disk { sync: false };

    /// A base of two values, and its file.
    fn base(values: [f32; 2]) -> (RunBase, Vec<u8>) {
        let plan = BasePlan::of(&[TensorSpec::new("w", &[2], Dtype::F32, Role::Frozen)]);
        let plan = plan.unwrap().unwrap();
        let bytes = plan.file(&[values.map(f32::to_le_bytes).concat()]).unwrap();
        let digest = Digest::of(&bytes);
        (RunBase { digest, plan }, bytes)
    }

    #[test]
    fn a_base_is_found_among_models_and_a_file_that_changes_is_compared_again() {
        let dir = tempfile::tempdir().unwrap();
        let models = dir.path().join("models");
        std::fs::create_dir(&models).unwrap();
        let store = BaseStore::new(&dir.path().join("state"), Some(models.clone()), 9, DISK);
        let ((wanted, bytes), (other, other_bytes)) = (base([1.0, 2.0]), base([1.0, 3.0]));
        assert_eq!(store.find(&wanted), None);
        let (a, b) = (models.join("a.safetensors"), models.join("b.safetensors"));
        std::fs::write(&a, &other_bytes).unwrap();
        std::fs::write(&b, &bytes).unwrap();
        assert_eq!(store.find(&wanted), Some(b.clone()));
        assert_eq!(store.find(&other), Some(a.clone()));
        std::fs::write(&b, &bytes[1..]).unwrap();
        assert_eq!(store.find(&wanted), None);
        std::fs::write(&a, &bytes).unwrap();
        std::fs::File::options()
            .write(true)
            .open(&a)
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
        assert_eq!(store.find(&wanted), Some(a));
    }

    #[test]
    fn bases_of_earlier_runs_give_way_and_the_wanted_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = BaseStore::new(dir.path(), None, 2, DISK);
        let all: Vec<_> = (0..5u8).map(|at| base([1.0, f32::from(at)]).0).collect();
        let folder = dir.path().join("base");
        let left = || {
            let names = all.iter().map(|wanted| wanted.digest.to_string());
            let is_there = |name: &String| {
                ["safetensors", "part"]
                    .iter()
                    .any(|end| folder.join(format!("{name}.{end}")).exists())
            };
            names
                .enumerate()
                .filter(|(_, name)| is_there(name))
                .map(|(at, _)| at)
                .collect::<Vec<_>>()
        };
        // A server that names another base at each join; every second one is cut.
        for (at, wanted) in all.iter().enumerate() {
            drop(store.part(wanted).unwrap());
            let part = folder.join(format!("{}.part", wanted.digest));
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(at as u64);
            let file = std::fs::File::options().write(true).open(&part).unwrap();
            file.set_modified(time).unwrap();
            if at % 2 == 0 {
                std::fs::rename(&part, store.path(wanted)).unwrap();
            }
        }
        assert_eq!(left(), [2, 3, 4]);
        store.part(&all[2]).unwrap();
        assert_eq!(left(), [2, 3, 4], "it is here already");
        prune(&folder, Some(all[2].digest), 9, || true);
        assert_eq!(left(), [2]);
        prune(&folder, None, 9, || true);
        assert!(left().is_empty());
    }

    #[test]
    fn a_file_that_did_not_change_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = BaseStore::new(&dir.path().join("state"), Some(dir.path().join("models")), 9, DISK);
        let (wanted, bytes) = base([1.0, 2.0]);
        let path = dir.path().join("models/m.safetensors");
        std::fs::create_dir(dir.path().join("models")).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(store.find(&wanted), Some(path.clone()));
        // Other bytes of the same length and time: only the index can say that this is the base.
        let time = path.metadata().unwrap().modified().unwrap();
        let mut other = bytes;
        *other.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &other).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(time).unwrap();
        assert_eq!(store.find(&wanted), Some(path.clone()));
        std::fs::remove_dir_all(dir.path().join("state")).unwrap();
        assert_eq!(store.find(&wanted), None, "without the index it is read");
    }
}
