//! A federation in memory: the server's run, the clients, and the messages between them, one round after another.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use fl_client::{Detached, Tasks};
use fl_compress::{Ack, Digest, FrameKind};
use fl_proto::{
    ClientId, EvaluationReport, FetchRequest, Joined, ModelHeader, Phase, RoundState, UpdateHeader, UpdateReply,
};
use fl_server::LocalRun;
use fl_server::ledger::Flow;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::traffic::Traffic;
use crate::federation::{self, News, Setup};
use crate::score::{RoundLine, Score};

/// One client of the federation.
struct Lane {
    name: ClientId,
    client: Option<Detached>,
    /// Its learners, until it holds a model.
    tasks: Option<Tasks>,
    joined: Joined,
    held: Option<u64>,
    traffic: Traffic,
}

/// What a client is asked to do.
struct Task {
    state: RoundState,
    /// What leads to the model: version, kind and bytes of each frame.
    frames: Vec<(u64, FrameKind, Bytes)>,
    train: bool,
    evaluate: bool,
}

/// What it has done.
struct Done {
    client: Detached,
    evaluation: Option<EvaluationReport>,
    update: Option<(UpdateHeader, Bytes)>,
}

struct Federation<N> {
    run: LocalRun,
    lanes: Vec<Lane>,
    gate: Arc<Semaphore>,
    now: u64,
    rounds: Vec<RoundLine>,
    total: (u64, u64),
    news: N,
}

/// Runs the federation of `setup` in memory until its run is over.
///
/// # Errors
/// If the run fails or a learner does. Here no server waits for a client that fails.
pub async fn run(setup: Setup, news: impl FnMut(News<'_>)) -> anyhow::Result<Score> {
    std::fs::create_dir_all(&setup.dir).with_context(|| format!("make {}", setup.dir.display()))?;
    let plan = federation::plan(&setup.dir, &setup.run, &setup.layout, &setup.weights)?;
    let instance = Digest::of(plan.name.as_str().as_bytes());
    let run = LocalRun::begin(plan, instance, 0)?;
    ensure!(
        !run.serves_base(),
        "`model.serve_base`: a base is sent only with `engine.wire = \"tls\"`"
    );
    let (parameters, clients) = (setup.layout.len() as u64, setup.members.len() as u64);
    let mut federation = Federation {
        run,
        lanes: Vec::new(),
        gate: setup.gate,
        now: 0,
        rounds: Vec::new(),
        total: (0, 0),
        news,
    };
    for member in setup.members {
        let joined = federation.run.join(&member.name);
        let mut traffic = Traffic::default();
        traffic.join(member.tasks.names(), &joined)?;
        federation.run.arrive(member.name.clone());
        federation.lanes.push(Lane {
            name: member.name,
            client: None,
            tasks: Some(member.tasks),
            joined,
            held: None,
            traffic,
        });
    }
    federation.go(&setup.dir.join("clients")).await?;
    let sent = federation.total;
    Ok(Score {
        parameters,
        clients,
        rounds: federation.rounds,
        server_socket: sent,
        client_socket: sent,
        ledger: sent,
        model: federation.run.model().to_string(),
    })
}

impl<N: FnMut(News<'_>)> Federation<N> {
    async fn go(&mut self, states: &Path) -> anyhow::Result<()> {
        // The state that a client sees before enough are connected.
        let told = self.tell();
        ensure!(
            told.iter().all(|(_, state)| state.phase == Phase::Waiting),
            "the run began early"
        );
        self.run.tick(self.now)?;
        loop {
            let told = self.tell();
            if told.iter().any(|(_, state)| state.phase == Phase::Done) {
                break;
            }
            if let Some((_, state)) = told.iter().find(|(_, state)| state.phase == Phase::Failed) {
                bail!("round {} failed: {}", state.round, state.message);
            }
            let asked: Vec<(usize, RoundState)> = told.into_iter().filter(|(_, state)| works(state)).collect();
            if asked.is_empty() {
                let next = self.run.wake(self.now).context("the run waits for nothing")?;
                self.now = self.now.max(next);
                self.run.tick(self.now)?;
                continue;
            }
            self.load(states, &asked).await?;
            let tasks = self.bring(asked)?;
            self.work(tasks).await?;
        }
        self.lanes.iter_mut().for_each(|lane| lane.traffic.leave());
        self.take_flow();
        self.evaluated(self.run.version());
        Ok(())
    }

    /// Sends each client the state of the run, if it is news.
    fn tell(&mut self) -> Vec<(usize, RoundState)> {
        let (run, now) = (&mut self.run, self.now);
        let told = self.lanes.iter_mut().enumerate().filter_map(|(at, lane)| {
            let state = run.news(&lane.name, now)?;
            lane.traffic.state(&state);
            Some((at, state))
        });
        told.collect()
    }

    /// Has the clients that work for the first time load their data.
    async fn load(&mut self, states: &Path, asked: &[(usize, RoundState)]) -> anyhow::Result<()> {
        let mut loading = JoinSet::new();
        for (at, _) in asked {
            let (at, lane) = (*at, &mut self.lanes[*at]);
            let Some(tasks) = lane.tasks.take() else { continue };
            let (state, joined, gate) = (
                states.join(lane.name.as_str()),
                lane.joined.clone(),
                Arc::clone(&self.gate),
            );
            loading.spawn(async move {
                let permit = gate.acquire_owned().await;
                let load = move || {
                    let _permit = permit;
                    let mut client = Detached::join(&state, tasks, joined)?;
                    let held = client.held()?;
                    Ok::<_, fl_client::Error>((client, held))
                };
                (at, tokio::task::spawn_blocking(load).await)
            });
        }
        while let Some(loaded) = loading.join_next().await {
            let (at, loaded) = loaded?;
            let (client, held) = loaded?.with_context(|| self.lanes[at].name.to_string())?;
            (self.lanes[at].client, self.lanes[at].held) = (Some(client), held);
        }
        Ok(())
    }

    /// Brings the clients what they need for the model that they work with.
    fn bring(&mut self, asked: Vec<(usize, RoundState)>) -> anyhow::Result<Vec<(usize, Task)>> {
        let mut tasks = Vec::new();
        for (at, state) in asked {
            let lane = &mut self.lanes[at];
            let want = state.version;
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
                    };
                    let (header, frames) = self.run.fetch(&lane.name, &request)?;
                    lane.traffic.fetch(&request, &header);
                    let kind = match header {
                        ModelHeader::Snapshot(_) => FrameKind::Snapshot,
                        ModelHeader::Steps(_) => FrameKind::ModelUpdate,
                    };
                    let parts = header.frames().iter().zip(frames);
                    parts.map(|(part, frame)| (part.version, kind, frame)).collect()
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
                    train,
                },
            ));
        }
        Ok(tasks)
    }

    /// Has the clients work, as many at once as the gate admits, then sends their updates and evaluations in the order of the
    /// clients.
    async fn work(&mut self, tasks: Vec<(usize, Task)>) -> anyhow::Result<()> {
        let mut working = JoinSet::new();
        for (at, task) in tasks {
            let client = self.lanes[at].client.take().context("a client is at work already")?;
            let gate = Arc::clone(&self.gate);
            working.spawn(async move {
                let permit = gate.acquire_owned().await;
                let job = move || {
                    let _permit = permit;
                    work(client, task)
                };
                (at, tokio::task::spawn_blocking(job).await)
            });
        }
        let mut done = Vec::new();
        while let Some(worked) = working.join_next().await {
            let (at, worked) = worked?;
            done.push((at, worked?.with_context(|| self.lanes[at].name.to_string())?));
        }
        done.sort_by_key(|(at, _)| *at);
        for (at, worked) in done {
            self.send(at, worked)?;
        }
        Ok(())
    }

    fn send(&mut self, at: usize, done: Done) -> anyhow::Result<()> {
        let Done {
            mut client,
            evaluation,
            update,
        } = done;
        let lane = &mut self.lanes[at];
        match update {
            Some((mut header, frame)) => {
                header.evaluation = evaluation;
                let (digest, version) = (header.id.digest, self.run.version());
                let reply = self.run.submit(&lane.name, header.clone(), frame, self.now)?;
                lane.traffic.update(&header, &reply);
                let answer = match reply {
                    UpdateReply::Accepted => Ack::Accepted,
                    UpdateReply::Refused { why, message } => bail!("{}: {why:?}: {message}", lane.name),
                    UpdateReply::Wanted { .. } => bail!("{}: the update is wanted again", lane.name),
                };
                client.settle(digest, answer)?;
                if self.run.version() > version {
                    self.closed(self.run.version());
                }
            }
            None => match evaluation {
                Some(report) => {
                    let counted = self.run.evaluate(&lane.name, report.clone(), self.now)?;
                    lane.traffic.evaluation(&report, counted);
                }
                None => self.run.skips_evaluation(&lane.name, self.now)?,
            },
        }
        self.lanes[at].client = Some(client);
        Ok(())
    }

    /// The round has closed: its bytes are those since the round before.
    fn closed(&mut self, round: u64) {
        self.evaluated(round - 1);
        let flow = self.take_flow();
        if let Some(event) = self.run.round_closed(round, flow) {
            federation::note(&mut self.rounds, &event);
            (self.news)(News::Server(&event));
        }
    }

    fn evaluated(&mut self, version: u64) {
        if let Some(event) = self.run.evaluated(version) {
            federation::note(&mut self.rounds, &event);
            (self.news)(News::Server(&event));
        }
    }

    fn take_flow(&mut self) -> Flow {
        let mut flow = Flow::default();
        for lane in &mut self.lanes {
            let own = std::mem::take(&mut lane.traffic.flow);
            let sums = flow.fields_mut().into_iter().zip(own.fields());
            sums.for_each(|(sum, own)| *sum += own);
        }
        self.total.0 += flow.socket_up;
        self.total.1 += flow.socket_down;
        flow
    }
}

/// Whether a client works in this state.
fn works(state: &RoundState) -> bool {
    state.evaluate || (state.phase == Phase::Training && state.selected && state.accepted.is_none())
}

fn work(mut client: Detached, task: Task) -> Result<Done, fl_client::Error> {
    let Task {
        state,
        frames,
        train,
        evaluate,
    } = task;
    for (version, kind, frame) in frames {
        client.apply(version, kind, frame)?;
    }
    if !client.holds(state.version, state.model)? {
        let why = format!("the frames of model version {} do not have its digest", state.version);
        return Err(fl_client::Error::Protocol(why));
    }
    let evaluation = if evaluate { client.evaluate()? } else { None };
    let update = if train {
        Some(client.train(state.round, state.attempt)?)
    } else {
        None
    };
    Ok(Done {
        client,
        evaluation,
        update,
    })
}
