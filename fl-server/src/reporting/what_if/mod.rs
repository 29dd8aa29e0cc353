//! What a run would have moved under another compression spec: its stored updates, decoded and encoded again.
//!
//! The updates are what the server was sent, so they were compressed once; and nothing is trained again, although other
//! steps would have led to other updates. It reads blobs and changes nothing: no record, no blob, no memory of a
//! client.

mod energy;
mod files;
mod outcome;
mod replay;
mod sizes;
mod stored;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod verdict;
mod workers;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fl_compress::{Encoder, Frame, FrameKind, Layout, Memory, Spec};

pub(crate) use outcome::{Line, WhatIf};
pub(crate) use stored::{Stored, StoredFrame};
pub(crate) use verdict::Verdict;

use crate::config::plan::{PlanError, memory};
use crate::reporting::inspect::InspectError;
use files::Files;
use replay::{Chain, Replay};

/// A what-if cannot be answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WhatIfError {
    /// The spec cannot be met.
    #[error("{0}")]
    Spec(String),
    /// What is stored is not what was stored, or cannot be found out.
    #[error(transparent)]
    Stored(#[from] InspectError),
    /// None of the run's updates is there, or one cannot be read or encoded.
    #[error("{0}")]
    Failed(String),
}

/// Encodes the updates in `stored`, client by client in the order of rounds, and apart from them the steps, by an empty
/// encoder of `spec` each; every frame counts as accepted. Blobs are read below `data`, whoever writes there. Up to
/// `threads` clients are worked on at a time, with the same answer on any number; each takes the memory of a few
/// models. `progress` is told how many frames are done, of how many. Blocks.
///
/// # Errors
/// `Spec` if the run could not have been served with `spec`; `Stored` with `Corrupt`, which names what is damaged;
/// `Failed` if no update is there any more.
pub(crate) fn what_if(
    data: &Path,
    stored: &Stored,
    spec: &Spec,
    threads: usize,
    progress: impl FnMut(u64, u64),
) -> Result<WhatIf, WhatIfError> {
    let layout = Layout::new(stored.layout.iter().cloned());
    let layout = Arc::new(layout.map_err(|e| InspectError::Corrupt(format!("stored layout: {e}")))?);
    let refused = |error: PlanError| match error {
        PlanError::Value { value, rule, .. } => WhatIfError::Spec(format!("`memory = \"{value}\"`: {rule}")),
        error => WhatIfError::Spec(error.to_string()),
    };
    let files = Files::below(data, &stored.run)?;
    let known = match &stored.compression {
        Some(compression) => Some(compression.uplink.memory),
        None => predicted(stored, &files, &layout)?,
    };
    let mut uplink = spec.clone();
    uplink.memory = match (spec.memory, known) {
        // What `auto` stood for in the run, if it stood for one of these.
        (Memory::Auto, Some(known @ (Memory::Cafe | Memory::ErrorFeedback { .. }))) => known,
        (asked, _) => memory::of_updates(asked, stored.everyone_took_part()).map_err(refused)?,
    };
    let mut downlink = spec.clone();
    // What only updates can have is for a step what the server has in its place.
    downlink.memory = memory::of_steps(spec.memory).unwrap_or(Memory::Auto.resolved(true));
    // A spec that the layout cannot meet is found before anything is read.
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
        kind: FrameKind::Step,
        spec: &downlink,
        frames: stored.steps.iter().collect(),
    });
    let total = chains.iter().map(|chain| chain.frames.len() as u64).sum();
    let replay = Replay {
        layout: &layout,
        files,
        was_predicted: known == Some(Memory::Cafe),
        steps: stored.steps.iter().map(|step| (step.round, step)).collect(),
        threads: (threads / chains.len()).max(1),
    };
    let mut replayed = workers::all(&chains, threads, total, progress, |chain, done| {
        replay.chain(chain, done)
    })?;
    let steps = replayed.split_off(clients).pop().unwrap_or_default();
    let names: Vec<&str> = chains.iter().take(clients).map(|chain| chain.client).collect();
    let mut outcome = WhatIf::new(
        stored,
        layout.len(),
        (uplink.memory, downlink.memory),
        &names,
        &replayed,
        &steps,
    );
    let memories = (uplink.memory, downlink.memory);
    outcome.differences = verdict::differences(stored.compression.as_ref(), known, spec, memories);
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

/// CAFe, if a client's first update after round 1 names a step: of a run whose store does not say how it compressed.
fn predicted(stored: &Stored, files: &Files, layout: &Layout) -> Result<Option<Memory>, WhatIfError> {
    let mut bytes = Vec::new();
    for frames in by_client(&stored.updates).into_values() {
        let Some(&first) = frames.iter().find(|frame| frame.round > 1) else {
            continue;
        };
        // What is broken is named when it is replayed.
        if files.read(first, &mut bytes)? && Frame::parse(&bytes, layout).is_ok_and(|frame| frame.predictor().is_some())
        {
            return Ok(Some(Memory::Cafe));
        }
    }
    Ok(None)
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
