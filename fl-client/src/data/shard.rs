//! A client's share of a data set that all clients have as files.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::dataset::{ClientData, Dataset, Examples};
use super::error::Error;
use super::shared::shared;
use super::split::{Split, share, slice};

/// One client's share of a data set whose files are the same for all clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// Folder of the files.
    pub dir: PathBuf,
    /// Number of this client, from 0.
    #[serde(default)]
    pub client: u32,
    /// Number of clients that share the set.
    #[serde(default = "one")]
    pub clients: u32,
    /// How the examples are split among the clients.
    #[serde(default)]
    pub split: Split,
    /// Seed of the split, the same for all clients.
    #[serde(default = "seed")]
    pub seed: u64,
    /// Take at most this many of the client's training examples.
    #[serde(default)]
    pub limit: Option<u32>,
    /// Take at most this many of its held-out examples.
    #[serde(default)]
    pub test_limit: Option<u32>,
    /// CIFAR-10 only: train on batches 1 to 4 and evaluate on batch 5, in place of the test batch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold_out_batch_5: bool,
}

fn one() -> u32 {
    1
}

fn seed() -> u64 {
    42
}

impl Shard {
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.client >= self.clients {
            let reason = format!("is {}, but must be below `clients` = {}", self.client, self.clients);
            return Err(Error::config("client", reason));
        }
        if self.limit == Some(0) {
            return Err(Error::config("limit", "must be at least 1"));
        }
        self.split.check()
    }

    pub(super) fn relative_to(&mut self, base: &Path) {
        self.dir = base.join(&self.dir);
    }

    pub(super) fn of_client(&self, client: u32, clients: u32) -> Self {
        Self {
            client,
            clients,
            ..self.clone()
        }
    }

    /// The client's examples, out of the whole sets that `train` and `test` read. `kind` identifies the sets, which the clients
    /// of one process share.
    pub(super) fn load(
        &self,
        kind: &str,
        train: impl Fn(&Path) -> Result<Dataset, Error>,
        test: impl Fn(&Path) -> Result<Dataset, Error>,
    ) -> Result<ClientData, Error> {
        let key = |part: &str| format!("{kind} {part} {}", self.dir.display());
        let train = shared(key("train"), || train(&self.dir))?;
        let test = shared(key("test"), || test(&self.dir))?;
        let mine = share(train.labels(), self.split, self.client, self.clients, self.seed)?;
        let held: Vec<u32> = slice(test.len(), self.client, self.clients).map(|i| i as u32).collect();
        let limit = |limit: Option<u32>| limit.map_or(usize::MAX, |limit| limit as usize);
        Ok(ClientData {
            train: Examples::new(train, mine)?.take(limit(self.limit)),
            test: Examples::new(test, held)?.take(limit(self.test_limit)),
        })
    }
}
