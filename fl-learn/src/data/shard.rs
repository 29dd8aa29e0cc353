//! A client's share of a data set that all clients have as files of one folder.

use std::path::{Path, PathBuf};

use super::dataset::Dataset;
use super::error::Error;
use super::examples::ClientData;
use super::part::{Held, shared_set};
use super::shared::shared;

shared_set! {
    /// One client's share of a data set whose files are the same for all clients.
    pub struct Shard {
        /// Folder of the files.
        pub dir: PathBuf,
        /// CIFAR-10 only: train on batches 1 to 4 and evaluate on batch 5, in place of the test batch.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub hold_out_batch_5: bool,
    }
}

pub(super) fn check(shard: &Shard) -> Result<(), Error> {
    shard.part().check()
}

pub(super) fn relative_to(shard: &mut Shard, base: &Path) {
    shard.dir = base.join(&shard.dir);
    shard.split.relative_to(base);
}

impl Shard {
    /// The client's examples, out of the whole sets that `train` and `test` read. `kind` identifies the sets, which the clients
    /// of one process share.
    pub(super) fn load(
        &self,
        kind: &str,
        train: impl Fn(&Path) -> Result<Dataset, Error>,
        test: impl Fn(&Path) -> Result<Dataset, Error>,
    ) -> Result<ClientData, Error> {
        let key = |part: &str| format!("{kind} {part} {}", self.identity());
        let train = shared(key("train"), || train(&self.dir))?;
        let test = shared(key("test"), || test(&self.dir))?;
        self.part().of(train, Held::Stretch(test))
    }
}
