//! The frames that a run has stored, as its records describe them. Never the frames themselves.

use std::collections::{BTreeMap, BTreeSet};

use fl_compress::Stages;
use serde::{Deserialize, Serialize};

use super::sizes::Sizes;
use crate::model::run_metadata::{Compression, RunMetadata};
use crate::model::stored_layout::StoredTensor;
use crate::reporting::inspect::{self, InspectError};
use crate::storage::record::Record;
use crate::storage::store::Store;

/// The frames of a run, in the order of its records.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) run: String,
    /// Names and shapes of the model's tensors.
    pub(crate) layout: Vec<StoredTensor>,
    /// Updates taken.
    pub(crate) updates: Vec<StoredFrame>,
    /// One step for each round that was closed.
    pub(crate) steps: Vec<StoredFrame>,
    pub(crate) compression: Compression,
}

/// One frame.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredFrame {
    pub(crate) round: u64,
    /// Whose update; empty for a step.
    pub(crate) client: String,
    /// Examples behind an update; 0 for a step.
    pub(crate) examples: u64,
    /// Digest.
    pub(crate) frame: String,
    /// Bytes after each stage: `framed` as received, the others as the client claims.
    pub(crate) sizes: Sizes,
}

impl Stored {
    /// The frames of a run. Without a name, of the only run.
    ///
    /// # Errors
    /// `NotThere` if there is no such run; `Corrupt`; the store's.
    pub(crate) fn of(store: &Store, run: Option<&str>) -> Result<Self, InspectError> {
        let run = inspect::chosen(store, run)?;
        let facts = RunMetadata::load(&run)?;
        let facts = facts.ok_or_else(|| InspectError::NotThere(format!("run {} has not begun yet", run.name())))?;
        let mut stored = Self {
            run: run.name().to_string(),
            layout: facts.layout,
            updates: Vec::new(),
            steps: Vec::new(),
            compression: facts.compression,
        };
        let sized = |stages: &Stages, len| {
            let mut sizes = Sizes::default();
            sizes.add(stages);
            Sizes { framed: len, ..sizes }
        };
        for record in run.records() {
            match record? {
                Record::UpdateAccepted { round, client, update } => stored.updates.push(StoredFrame {
                    round,
                    client: client.to_string(),
                    examples: update.examples,
                    frame: update.digest.to_string(),
                    sizes: sized(&update.stages, update.len),
                }),
                Record::RoundClosed {
                    round,
                    frame,
                    frame_len,
                    stages,
                    ..
                } => stored.steps.push(StoredFrame {
                    round,
                    client: String::new(),
                    examples: 0,
                    frame: frame.to_string(),
                    sizes: sized(&stages, frame_len),
                }),
                _ => {}
            }
        }
        Ok(stored)
    }

    /// Whether every client that took part at all did so in every round that was closed.
    pub(super) fn everyone_took_part(&self) -> bool {
        let mut rounds = BTreeMap::<u64, BTreeSet<&str>>::new();
        let mut clients = BTreeSet::new();
        for update in &self.updates {
            clients.insert(update.client.as_str());
            rounds.entry(update.round).or_default().insert(&update.client);
        }
        let all = |step: &StoredFrame| rounds.get(&step.round).is_some_and(|of| of.len() == clients.len());
        self.steps.iter().all(all)
    }
}
