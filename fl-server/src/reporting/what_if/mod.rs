//! What a run would have moved under another compression spec: its stored updates, decoded and encoded again.
//!
//! The stored updates were compressed once already, and clients do not train again, although other model updates would
//! have led to other updates. A what-if reads blobs and changes nothing: no record, no blob, no memory of a
//! client.

mod energy;
mod files;
mod outcome;
mod replay;
mod stored;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod verdict;
mod workers;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fl_compress::{Encoder, FrameKind, Memory, Spec};

pub(crate) use outcome::{Line, WhatIf};
pub(crate) use stored::{StoredFrame, StoredFrames};
pub(crate) use verdict::Verdict;

use crate::config::plan::{PlanError, memory};
use crate::model::stored_layout;
use crate::reporting::inspect::InspectError;
use files::Files;
use replay::{Chain, Replay};

/// Why a what-if has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WhatIfError {
    /// The spec cannot be met.
    #[error("{0}")]
    Spec(String),
    /// Stored data is corrupt or cannot be read.
    #[error(transparent)]
    Stored(#[from] InspectError),
    /// No update is stored, or one cannot be read or encoded.
    #[error("{0}")]
    Failed(String),
}

impl From<PlanError> for WhatIfError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Value { value, rule, .. } => Self::Spec(format!("`memory = \"{value}\"`: {rule}")),
            error => Self::Spec(error.to_string()),
        }
    }
}

/// The memories of the replay.
#[derive(Debug, Clone, Copy)]
struct Memories {
    updates: Memory,
    model_updates: Memory,
}

/// Encodes the updates in `stored`, client by client in the order of rounds, and separately the model updates, each
/// with a new encoder of `spec`; every frame counts as accepted. Reads blobs below `data`, while a server may be
/// writing. Up to `threads` clients are processed in parallel, with the same answer for any number; each takes the
/// memory of a few models. `progress` gets the number of finished frames, and of all frames. Blocks.
///
/// # Errors
/// `Spec` if the run could not have been served with `spec`; `Stored` with `Corrupt`, which names what is damaged;
/// `Failed` if no update is stored any more.
pub(crate) fn what_if(
    data: &Path,
    stored: &StoredFrames,
    spec: &Spec,
    threads: usize,
    progress: impl FnMut(u64, u64),
) -> Result<WhatIf, WhatIfError> {
    let layout = stored_layout::layout(&stored.layout);
    let layout = Arc::new(layout.map_err(|e| InspectError::Corrupt(format!("stored layout: {e}")))?);
    let files = Files::below(data, &stored.run)?;
    let known = stored.compression.uplink.memory;
    let mut uplink = spec.clone();
    uplink.memory = match (spec.memory, known) {
        // The memory that `auto` meant in the run, if it was one of these.
        (Memory::Auto, Memory::Cafe | Memory::ErrorFeedback { .. } | Memory::CafeErrorFeedback { .. }) => known,
        (asked, _) => memory::of_updates(asked, stored.everyone_took_part())?,
    };
    let mut downlink = spec.clone();
    // A memory that only updates can have: the model update uses the server's default.
    downlink.memory = memory::of_model_updates(spec.memory).unwrap_or(Memory::Auto.resolved(true));
    // Refuses a spec that does not fit the layout before reading anything.
    Encoder::new(Arc::clone(&layout), &uplink).map_err(|e| WhatIfError::Spec(e.to_string()))?;

    let mut chains: Vec<Chain<'_>> = by_client(&stored.updates)
        .into_iter()
        .map(|(client, frames)| Chain {
            client,
            kind: FrameKind::Update,
            spec: &uplink,
            frames,
        })
        .collect();
    if chains.is_empty() {
        let text = format!("run {} has taken no update yet", stored.run);
        return Err(WhatIfError::Failed(text));
    }
    let clients = chains.len();
    chains.push(Chain {
        client: "",
        kind: FrameKind::ModelUpdate,
        spec: &downlink,
        frames: stored.steps.iter().collect(),
    });
    let total = chains.iter().map(|chain| chain.frames.len() as u64).sum();
    let replay = Replay {
        layout: &layout,
        files,
        was_predicted: known.predicts(),
        steps: stored.steps.iter().map(|step| (step.round, step)).collect(),
        threads: (threads / chains.len()).max(1),
    };
    let mut replayed = workers::all(&chains, threads, total, progress, |chain, done| {
        replay.chain(chain, done)
    })?;
    let steps = replayed.split_off(clients).pop().unwrap_or_default();
    let names: Vec<&str> = chains.iter().take(clients).map(|chain| chain.client).collect();
    let memories = Memories {
        updates: uplink.memory,
        model_updates: downlink.memory,
    };
    let mut outcome = WhatIf::new(stored, layout.len(), memories, &names, &replayed, &steps);
    outcome.differences = verdict::differences(&stored.compression, spec, memories);
    if outcome.updates.frames == 0 {
        return Err(WhatIfError::Failed(format!(
            "none of the {} updates of run {} is stored any more; `keep_updates = true` in server.toml keeps those of \
             runs to come",
            stored.updates.len(),
            stored.run
        )));
    }
    Ok(outcome)
}

/// The updates of each client, in the order of rounds.
fn by_client(updates: &[StoredFrame]) -> BTreeMap<&str, Vec<&StoredFrame>> {
    let mut out = BTreeMap::<&str, Vec<&StoredFrame>>::new();
    for update in updates {
        out.entry(&update.client).or_default().push(update);
    }
    out.values_mut()
        .for_each(|frames| frames.sort_by_key(|frame| frame.round));
    out
}
