//! Replays closed rounds: restores the model after a restart, and audits a run.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use fl_compress::{Digest, Layout};
use fl_proto::ClientId;

use super::error::ModelError;
use super::global_model::GlobalModel;
use crate::config::plan::RunPlan;
use crate::state_machine::Contribution;
use crate::storage::record::Record;

/// A rollback: a version whose model is that of an older one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolledBack {
    /// The version.
    pub version: u64,
    /// The older one.
    pub to: u64,
    /// Digest of the model of both.
    pub model: Digest,
}

/// A closed round: its updates, and the digests of its results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The last rollback since the round before.
    pub base: Option<RolledBack>,
    /// The round.
    pub round: u64,
    /// The round's updates, by client name.
    pub updates: Vec<Contribution>,
    /// Digest of the model update's frame.
    pub frame: Digest,
    /// Digest of the model after the round.
    pub model: Digest,
}

/// The closed rounds after version `after`, in order, from the records of a run. Holds only one open round besides.
///
/// # Errors
/// Those of the records.
pub fn replayed<E>(records: impl IntoIterator<Item = Result<Record, E>>, after: u64) -> Result<Vec<Replayed>, E> {
    let mut open: BTreeMap<ClientId, Contribution> = BTreeMap::new();
    let (mut rounds, mut base) = (Vec::new(), None);
    for record in records {
        match record? {
            Record::UpdateAccepted { client, update, .. } => {
                let part = Contribution {
                    client: client.clone(),
                    examples: update.examples,
                    frame: update.digest,
                };
                open.insert(client, part);
            }
            Record::Excluded { client, .. } => drop(open.remove(&client)),
            Record::RolledBack { version, to, model, .. } => {
                open.clear();
                base = Some(RolledBack { version, to, model });
            }
            Record::RoundClosed {
                round, frame, model, ..
            } => {
                let (updates, base) = (std::mem::take(&mut open).into_values().collect(), base.take());
                if round > after {
                    rounds.push(Replayed {
                        base,
                        round,
                        updates,
                        frame,
                        model,
                    });
                }
            }
            _ => {}
        }
    }
    Ok(rounds)
}

impl GlobalModel {
    /// The model of `version`, as the sum of its frames, with empty residual and initial optimizer state. `made_by`:
    /// digest of the frame that made the version; `None` for version 0 and a rollback. Shapes: `model: [layout.len()]`.
    ///
    /// # Errors
    /// As [`GlobalModel::initial`].
    pub fn from_frames(
        layout: Arc<Layout>,
        model: Vec<f32>,
        version: u64,
        made_by: Option<Digest>,
        plan: &RunPlan,
    ) -> Result<Self, ModelError> {
        let mut global = Self::initial(layout, model, plan)?;
        global.predictor = made_by.filter(|_| global.predicts);
        global.version = version;
        Ok(global)
    }

    /// Closes a round again and compares with what was recorded.
    ///
    /// # Errors
    /// As [`GlobalModel::close`], and `Differs`.
    pub fn replay<E: Display>(
        &mut self,
        round: &Replayed,
        read: impl FnMut(&Digest, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), ModelError> {
        let result = self.close(round.round, &round.updates, read)?;
        let same = |what, found, recorded| {
            let round = round.round;
            if found == recorded {
                Ok(())
            } else {
                Err(ModelError::Differs {
                    round,
                    what,
                    found,
                    recorded,
                })
            }
        };
        same("frame", result.digest, round.frame)?;
        same("model", result.model, round.model)
    }
}
