//! What the clients of a federation in memory do: load data, take models, evaluate and train, several at once.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use fl_client::{DetachedClient, Tasks};
use fl_compress::FrameKind;
use fl_proto::{ClientId, EvaluationReport, FetchRequest, Joined, Phase, RoundState, UpdateHeader};
use fl_server::LocalRun;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::links::Load;
use super::traffic::Traffic;

/// One client of the federation.
pub(super) struct Lane {
    pub(super) name: ClientId,
    pub(super) client: Option<DetachedClient>,
    /// Its learners, until it holds a model.
    pub(super) tasks: Option<Tasks>,
    pub(super) joined: Joined,
    pub(super) held: Option<u64>,
    pub(super) traffic: Traffic,
    /// The state that it has not acted on.
    pub(super) told: Option<RoundState>,
    /// Of its update that counts in the open round.
    pub(super) load: Option<Load>,
    /// When that update arrived, in milliseconds.
    pub(super) arrived: u64,
}

/// What a client is asked to do.
pub(super) struct Task {
    state: RoundState,
    /// What leads to the model: version, kind and bytes of each frame.
    frames: Vec<(u64, FrameKind, Bytes)>,
    /// Model updates that a client with a snapshot needs to evaluate the average of the last versions. No message carries them:
    /// over sockets such a client does not evaluate it, and the average's quality is that of other examples.
    averaged: Vec<(u64, Bytes)>,
    train: bool,
    evaluate: bool,
}

/// What a client's work came to.
pub(super) struct Work {
    pub(super) client: DetachedClient,
    pub(super) evaluation: Option<EvaluationReport>,
    pub(super) update: Option<(UpdateHeader, Bytes)>,
}

/// Has the clients that work for the first time load their data.
pub(super) async fn load(
    lanes: &mut [Lane],
    gate: &Arc<Semaphore>,
    states: &Path,
    asked: &[(usize, RoundState)],
) -> anyhow::Result<()> {
    let mut loading = JoinSet::new();
    for (at, _) in asked {
        let at = *at;
        let lane = &mut lanes[at];
        let Some(tasks) = lane.tasks.take() else { continue };
        let state = states.join(lane.name.as_str());
        let joined = lane.joined.clone();
        loading.spawn(on_turn(Arc::clone(gate), at, move || {
            let mut client = DetachedClient::join(&state, tasks, joined)?;
            let held = client.held()?;
            Ok((client, held))
        }));
    }
    while let Some(loaded) = loading.join_next().await {
        let (at, loaded) = loaded?;
        let (client, held) = loaded.with_context(|| lanes[at].name.to_string())?;
        lanes[at].client = Some(client);
        lanes[at].held = held;
    }
    Ok(())
}

/// Does a client's job on a thread of its own, once the gate admits it.
async fn on_turn<T: Send + 'static>(
    gate: Arc<Semaphore>,
    at: usize,
    job: impl FnOnce() -> Result<T, fl_client::Error> + Send + 'static,
) -> (usize, anyhow::Result<T>) {
    let permit = gate.acquire_owned().await;
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        job()
    });
    (at, done.await.map_err(Into::into).and_then(|done| Ok(done?)))
}

/// Brings the clients what they need for the model that they work with.
pub(super) fn bring(
    lanes: &mut [Lane],
    run: &mut LocalRun,
    asked: Vec<(usize, RoundState)>,
) -> anyhow::Result<Vec<(usize, Task)>> {
    let mut tasks = Vec::new();
    for (at, state) in asked {
        let lane = &mut lanes[at];
        let want = state.version;
        let mut averaged = Vec::new();
        let frames = match lane.held {
            Some(held) if held == want => Vec::new(),
            Some(held) if held + 1 == want && !state.step.is_empty() => {
                vec![(want, FrameKind::ModelUpdate, state.step.clone())]
            }
            held => {
                let request = FetchRequest {
                    run: lane.joined.run.clone(),
                    held,
                    want,
                    partial: None,
                };
                let (header, frames) = run.fetch(&lane.name, &request)?;
                lane.traffic.fetch(&request, &header);
                if header.is_snapshot() {
                    averaged = run.averaged_updates();
                }
                let parts = header.parts().zip(frames);
                parts.map(|((kind, part), frame)| (part.version, kind, frame)).collect()
            }
        };
        lane.held = Some(want);
        let train = state.phase == Phase::Training && state.selected && state.accepted.is_none();
        tasks.push((
            at,
            Task {
                evaluate: state.evaluate,
                state,
                frames,
                averaged,
                train,
            },
        ));
    }
    Ok(tasks)
}

/// Has the clients work, as many at once as the gate admits. Returns what they have done, in the order of the clients.
pub(super) async fn work(
    lanes: &mut [Lane],
    gate: &Arc<Semaphore>,
    tasks: Vec<(usize, Task)>,
) -> anyhow::Result<Vec<(usize, Work)>> {
    let mut working = JoinSet::new();
    for (at, task) in tasks {
        let client = lanes[at].client.take().context("a client is at work already")?;
        working.spawn(on_turn(Arc::clone(gate), at, move || do_task(client, task)));
    }
    let mut done = Vec::new();
    while let Some(worked) = working.join_next().await {
        let (at, worked) = worked?;
        done.push((at, worked.with_context(|| lanes[at].name.to_string())?));
    }
    done.sort_by_key(|(at, _)| *at);
    Ok(done)
}

/// Whether a client works in this state.
pub(super) fn works(state: &RoundState) -> bool {
    state.evaluate || (state.phase == Phase::Training && state.selected && state.accepted.is_none())
}

fn do_task(mut client: DetachedClient, task: Task) -> Result<Work, fl_client::Error> {
    let Task {
        state,
        frames,
        averaged,
        train,
        evaluate,
    } = task;
    for (version, kind, frame) in frames {
        client.apply(version, kind, frame)?;
    }
    for (version, frame) in averaged {
        client.keep_for_average(version, &frame)?;
    }
    if !client.holds(state.version, state.model)? {
        let why = format!("the frames of model version {} do not have its digest", state.version);
        return Err(fl_client::Error::Protocol(why));
    }
    let evaluation = if evaluate { client.evaluate()? } else { None };
    let update = if train {
        Some(client.train(state.round, state.attempt, state.budget, state.bandwidth)?)
    } else {
        None
    };
    Ok(Work {
        client,
        evaluation,
        update,
    })
}
