//! A federation in memory: the server's run, the clients, and the messages between them, one round after another.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use fl_compress::{Ack, Digest};
use fl_proto::{Phase, Refusal, RoundState, UpdateReply};
use fl_server::LocalRun;
use fl_server::ledger::Flow;
use fl_server::state_machine::Transfer;
use tokio::sync::Semaphore;

use super::engine::Engine;
use super::links::{Clock, Load, table};
use super::traffic::Traffic;
use super::work::{self, Lane, Work, works};
use crate::federation::{self, News, Setup};
use crate::score::{LinkTime, RoundLine, Score};

/// What a client moved for an update, and how the server saw its upload.
struct Upload {
    load: Load,
    transfer: Option<Transfer>,
}

struct Federation<N> {
    run: LocalRun,
    lanes: Vec<Lane>,
    gate: Arc<Semaphore>,
    clock: Clock,
    /// Milliseconds.
    now: u64,
    /// What clients have sent, by the time of its arrival and the client, with what they moved for it.
    on_the_way: BTreeMap<(u64, usize), (Work, Option<Upload>)>,
    /// Seconds of the rounds so far over the links of the table.
    times: Vec<LinkTime>,
    rounds: Vec<RoundLine>,
    total: (u64, u64),
    news: N,
}

/// Runs the federation of `setup` in memory until its run is over.
///
/// # Errors
/// If the run fails or a learner does. Here no server waits for a client that fails.
pub async fn run(setup: Setup, engine: &Engine, news: impl FnMut(News<'_>)) -> anyhow::Result<Score> {
    let clock = engine.clock(setup.members.len())?;
    std::fs::create_dir_all(&setup.dir).with_context(|| format!("make {}", setup.dir.display()))?;
    let plan = federation::plan(&setup.dir, &setup.run, &setup.learner, &setup.layout, &setup.weights)?;
    let instance = Digest::of(plan.name.as_str().as_bytes());
    let run = LocalRun::begin(plan, instance, 0)?;
    ensure!(
        !run.serves_base(),
        "`model.serve_base`: a base is sent only with `engine.wire = \"tls\"`"
    );
    let parameters = setup.layout.len() as u64;
    let clients = setup.members.len() as u64;
    let mut federation = Federation {
        run,
        lanes: Vec::new(),
        gate: setup.gate,
        clock,
        now: 0,
        on_the_way: BTreeMap::new(),
        times: table(),
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
            told: None,
            load: None,
            arrived: 0,
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
        times: federation.times,
        model: federation.run.model().to_string(),
    })
}

impl<N: FnMut(News<'_>)> Federation<N> {
    async fn go(&mut self, states: &Path) -> anyhow::Result<()> {
        // The state that a client sees before enough are connected.
        self.tell();
        self.run.tick(self.now)?;
        loop {
            self.tell();
            if self.is_over()? {
                break;
            }
            let asked = self.asked();
            work::load(&mut self.lanes, &self.gate, states, &asked).await?;
            let tasks = work::bring(&mut self.lanes, &mut self.run, asked)?;
            let done = work::work(&mut self.lanes, &self.gate, tasks).await?;
            self.begin_sending(done);
            self.next_event()?;
        }
        self.lanes.iter_mut().for_each(|lane| lane.traffic.leave());
        self.take_flow();
        if self.run.plan().evaluate {
            self.measure(states).await?;
        }
        self.evaluated(self.run.version());
        Ok(())
    }

    /// Has the clients evaluate the last version that the run did not ask, without messages: the held-out examples of a cohort are
    /// a part of all, and another one under each seed.
    async fn measure(&mut self, states: &Path) -> anyhow::Result<()> {
        let late = std::mem::take(&mut self.on_the_way);
        for ((_, at), (done, _)) in late {
            self.lanes[at].client = Some(done.client);
        }
        let mut asked = Vec::new();
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            if let Some(state) = lane.told.take().filter(|_| !self.run.has_evaluation(&lane.name)) {
                asked.push((
                    at,
                    RoundState {
                        evaluate: true,
                        ..state
                    },
                ));
            }
        }
        work::load(&mut self.lanes, &self.gate, states, &asked).await?;
        let tasks = work::bring(&mut self.lanes, &mut self.run, asked)?;
        for (at, done) in work::work(&mut self.lanes, &self.gate, tasks).await? {
            if let Some(report) = done.evaluation {
                self.run.measure(&self.lanes[at].name, report, self.now);
            }
        }
        Ok(())
    }

    /// Whether a client was told that the run is over.
    ///
    /// # Errors
    /// If it was told that the run failed.
    fn is_over(&self) -> anyhow::Result<bool> {
        let mut told = self.lanes.iter().filter_map(|lane| lane.told.as_ref());
        let end = told.find(|state| matches!(state.phase, Phase::Done | Phase::Failed));
        match end {
            Some(state) if state.phase == Phase::Failed => bail!("round {} failed: {}", state.round, state.message),
            end => Ok(end.is_some()),
        }
    }

    /// The clients that have work and are not busy.
    fn asked(&mut self) -> Vec<(usize, RoundState)> {
        let lanes = self.lanes.iter_mut().enumerate();
        let free = lanes.filter(|(_, lane)| lane.client.is_some() || lane.tasks.is_some());
        let told = free.filter_map(|(at, lane)| Some((at, lane.told.take()?)));
        told.filter(|(_, state)| works(state)).collect()
    }

    /// Books what the clients send, and when it arrives.
    fn begin_sending(&mut self, done: Vec<(usize, Work)>) {
        for (at, mut done) in done {
            let mut arrives = self.now;
            let mut moved = None;
            if let Some((header, _)) = &mut done.update {
                header.evaluation = done.evaluation.take();
                let traffic = &mut self.lanes[at].traffic;
                let before = traffic.flow.socket_up;
                traffic.update(header);
                let bytes = traffic.flow.socket_up - before;
                let load = traffic.load(header.examples);
                let all = self.clock.seconds(at, &load);
                let way = self.clock.seconds_up(at, bytes);
                arrives += (1_000.0 * all).round() as u64;
                let transfer = Transfer {
                    wait: (1e6 * (all - way)) as u64,
                    bytes,
                    micros: (1e6 * way) as u64,
                };
                let transfer = Some(transfer).filter(Transfer::shows_link);
                moved = Some(Upload { load, transfer });
            }
            self.on_the_way.insert((arrives, at), (done, moved));
        }
    }

    /// Takes what arrives next, or what is due before.
    fn next_event(&mut self) -> anyhow::Result<()> {
        let arrives = self.on_the_way.first_key_value().map(|((arrives, _), _)| *arrives);
        let due = self.run.wake(self.now);
        match (arrives, due) {
            (Some(arrives), Some(due)) if self.now < due && due < arrives => self.tick(due),
            (Some(arrives), _) => {
                if arrives > self.now {
                    self.tick(arrives)?;
                }
                match self.on_the_way.pop_first() {
                    Some(((_, at), (done, moved))) => self.send(at, done, moved),
                    None => Ok(()),
                }
            }
            (None, Some(due)) => self.tick(self.now.max(due)),
            (None, None) => bail!("the run waits for nothing"),
        }
    }

    /// Sends each client the state of the run, if it is news.
    fn tell(&mut self) {
        for lane in &mut self.lanes {
            if let Some(state) = self.run.news(&lane.name, self.now) {
                lane.traffic.state(&state);
                lane.told = Some(state);
            }
        }
    }

    fn tick(&mut self, now: u64) -> anyhow::Result<()> {
        let version = self.run.version();
        self.now = now;
        self.run.tick(now)?;
        self.run.close(now)?;
        if self.run.version() > version {
            self.closed(self.run.version());
        }
        Ok(())
    }

    fn send(&mut self, at: usize, done: Work, moved: Option<Upload>) -> anyhow::Result<()> {
        let Work {
            mut client,
            evaluation,
            update,
        } = done;
        let lane = &mut self.lanes[at];
        match update {
            Some((header, frame)) => {
                let digest = header.id.digest;
                let len = header.len;
                let version = self.run.version();
                let transfer = moved.as_ref().and_then(|moved| moved.transfer);
                lane.load = moved.map(|moved| moved.load);
                lane.arrived = self.now;
                let reply = self.run.submit(&lane.name, header, frame, transfer, self.now)?;
                lane.traffic.answer(len, &reply);
                let answer = match reply {
                    UpdateReply::Accepted => Ack::Accepted,
                    UpdateReply::Refused {
                        why: Refusal::NotThisRound | Refusal::NotSelected,
                        ..
                    } => {
                        lane.load = None;
                        Ack::Rejected
                    }
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
        let answered = self.lanes.iter().filter(|lane| lane.load.is_some());
        let arrivals: Vec<u64> = answered.map(|lane| lane.arrived).collect();
        let spread = arrivals.iter().max().zip(arrivals.iter().min());
        let loads: Vec<(usize, Load)> = self
            .lanes
            .iter_mut()
            .enumerate()
            .filter_map(|(at, lane)| Some((at, lane.load.take()?)))
            .collect();
        for time in &mut self.times {
            let seconds = loads.iter().map(|(at, load)| self.clock.seconds_over(*at, load, time));
            time.seconds += seconds.fold(0.0, f64::max);
        }
        self.evaluated(round - 1);
        let flow = self.take_flow();
        if let Some(event) = self.run.round_closed(round, flow) {
            federation::note(&mut self.rounds, &event);
            if let Some((line, (last, first))) = self.rounds.last_mut().zip(spread) {
                line.spread = Some((last - first) as f64 / 1_000.0);
            }
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
            let own = std::mem::take(&mut lane.traffic).flow;
            let sums = flow.fields_mut().into_iter().zip(own.fields());
            sums.for_each(|(sum, own)| *sum += own);
        }
        self.total.0 += flow.socket_up;
        self.total.1 += flow.socket_down;
        flow
    }
}
