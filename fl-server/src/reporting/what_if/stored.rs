//! The frames that a run has stored, as its records describe them. Never the frames themselves.

use std::collections::{BTreeMap, BTreeSet};

use fl_compress::Stages;
use serde::{Deserialize, Serialize};

use crate::model::run_metadata::Compression;
use crate::model::stored_layout::StoredTensor;
use crate::reporting::inspect::{InspectError, begun_run};
use crate::state_machine::RecordedRounds;
use crate::storage::store::Store;

/// The frames of a run, in the order of its rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredFrames {
    pub(crate) run: String,
    /// Names and shapes of the model's tensors.
    pub(crate) layout: Vec<StoredTensor>,
    pub(crate) updates: Vec<StoredFrame>,
    /// One step for each round that was closed.
    pub(crate) steps: Vec<StoredFrame>,
    pub(crate) compression: Compression,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredFrame {
    pub(crate) round: u64,
    /// Whose update; empty for a step.
    pub(crate) client: String,
    /// Examples behind an update; 0 for a step.
    pub(crate) examples: u64,
    pub(crate) frame: String,
    /// Bytes after each stage: `framed` as received, the others as the client claims.
    pub(crate) sizes: Stages,
}

impl StoredFrames {
    /// The frames of a run. Without a name, of the only run.
    pub(crate) fn of(store: &Store, run: Option<&str>) -> Result<Self, InspectError> {
        let (run, facts) = begun_run(store, run)?;
        let mut stored = Self {
            run: run.name().to_string(),
            layout: facts.layout,
            updates: Vec::new(),
            steps: Vec::new(),
            compression: facts.compression,
        };
        for round in RecordedRounds::of(run.records()) {
            let recorded = round?;
            let round = recorded.round;
            for (client, update) in recorded.updates.into_iter().chain(recorded.excluded) {
                stored.updates.push(StoredFrame {
                    round,
                    client: client.to_string(),
                    examples: update.examples,
                    frame: update.digest.to_string(),
                    sizes: Stages {
                        framed: update.len,
                        ..update.stages
                    },
                });
            }
            stored.steps.extend(recorded.step.map(|step| StoredFrame {
                round,
                client: String::new(),
                examples: 0,
                frame: step.frame.to_string(),
                sizes: Stages {
                    framed: step.frame_len,
                    ..step.stages
                },
            }));
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
        self.steps
            .iter()
            .all(|step| rounds.get(&step.round).is_some_and(|of| of.len() == clients.len()))
    }
}
