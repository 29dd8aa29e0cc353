//! The bases that this client has.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fl_proto::open_regular;

use super::index::{Index, Stamp};
use super::part::Part;
use super::search::model_files;
use super::wanted::Wanted;
use crate::error::Error;
use crate::state::Disk;

/// Where bases are kept and looked for.
#[derive(Debug)]
pub(crate) struct BaseStore {
    /// `base/` of the state folder.
    folder: PathBuf,
    /// The user's folder of models.
    models: Option<PathBuf>,
    disk: Disk,
}

impl BaseStore {
    /// The store in the folder `state`.
    pub(crate) fn new(state: &Path, models: Option<PathBuf>, disk: Disk) -> Self {
        // A trainer runs in another folder.
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        Self {
            folder: absolute(state.join("base")),
            models: models.map(absolute),
            disk,
        }
    }

    /// A file with the base: one that was fetched, or one in the folder of models. Blocks while files are compared that
    /// were not compared before.
    pub(crate) fn find(&self, wanted: &Wanted) -> Option<PathBuf> {
        let mut index = Index::load(&self.folder);
        let own = self.path(wanted);
        let candidates = [own.clone()].into_iter().filter(|own| own.exists());
        let found = candidates
            .chain(self.models.iter().flat_map(|models| model_files(models)))
            .find(|path| has_base(path, wanted, &mut index));
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
    ///
    /// # Errors
    /// `State` if the file cannot be opened or the disk has no room for the rest.
    pub(crate) fn part(&self, wanted: &Wanted) -> Result<Part, Error> {
        fl_proto::make_private_folder(&self.folder).map_err(|e| Error::io(&self.folder, "make the folder", &e))?;
        Part::open(&self.folder, wanted, self.path(wanted), self.disk)
    }

    /// Where a fetched base is kept.
    fn path(&self, wanted: &Wanted) -> PathBuf {
        self.folder.join(format!("{}.safetensors", wanted.digest))
    }
}

/// Whether the frozen tensors in a file are the base.
fn has_base(path: &Path, wanted: &Wanted, index: &mut Index) -> bool {
    let mut compared = || -> std::io::Result<bool> {
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
    };
    compared().unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "cannot be read; the base is looked for elsewhere");
        false
    })
}

#[cfg(test)]
mod tests {
    use fl_compress::weights::BasePlan;
    use fl_compress::{Digest, Dtype, Role, TensorSpec};

    use super::*;

    const DISK: Disk = Disk { sync: false };

    /// A base of two values, and its file.
    fn base(values: [f32; 2]) -> (Wanted, Vec<u8>) {
        let plan = BasePlan::of(&[TensorSpec::new("w", &[2], Dtype::F32, Role::Frozen)]);
        let plan = plan.unwrap().unwrap();
        let bytes = plan.file(&[values.map(f32::to_le_bytes).concat()]).unwrap();
        let digest = Digest::of(&bytes);
        (Wanted { digest, plan }, bytes)
    }

    #[test]
    fn a_base_is_found_among_models_and_a_file_that_changes_is_compared_again() {
        let dir = tempfile::tempdir().unwrap();
        let models = dir.path().join("models");
        std::fs::create_dir(&models).unwrap();
        let store = BaseStore::new(&dir.path().join("state"), Some(models.clone()), DISK);
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
    fn a_file_that_did_not_change_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = BaseStore::new(&dir.path().join("state"), Some(dir.path().join("models")), DISK);
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
