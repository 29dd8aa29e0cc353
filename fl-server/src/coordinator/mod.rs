//! The one task that owns the state of the run.
//!
//! Requests come through a bounded channel. All that are waiting are decided together, their records made durable by
//! one flush, and only then are they answered and the new state shown. Heavy work on the model happens elsewhere
//! ([`crate::coordinator::desk`]); the driver goes on answering meanwhile.

mod announce;
pub(crate) mod books;
pub(crate) mod change;
pub(crate) mod desk;
mod fidelity;
mod present;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fl_proto::{ClientId, Departure, EvaluationReport, FramePart, SectionFidelity, UpdateReply};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::MissedTickBehavior;

use crate::accounting::chain::Chain;
use crate::accounting::ledger::{Direction, Row};
use crate::accounting::tally::Fate;
use crate::accounting::traffic::Traffic;
use crate::clock::Clock;
use crate::config::plan::RunPlan;
use crate::coordinator::change::{Change, said};
use crate::coordinator::desk::{Desk, Finished, RollBack};
use crate::reporting::history::History;
use crate::server::serve::ServeError;
use crate::state_machine::{Accepted, Decision, Input, Millis, Owed, Record, Reply, State, decide};
use crate::storage::blobs::{Blobs, Received};
use crate::storage::disk::DiskError;
use crate::storage::store::RunStore;
use crate::telemetry::event::{OpenRound, Waiting};
use crate::telemetry::trace::Tracer;

pub(crate) use announce::{Events, ROUNDS};
pub(crate) use books::{Booked, Moment, Pace};
pub(crate) use fidelity::{TensorGauge, Watch};
pub(crate) use present::Present;

/// What the calls ask of the driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// A client began to watch.
    Arrived(ClientId),
    /// One of its watch streams ended.
    Left(ClientId),
    /// It says that it will not answer.
    Leaves { client: ClientId, departure: Departure },
    /// A verified update whose frame is durable, but not a blob yet.
    Update {
        client: ClientId,
        round: u64,
        attempt: u32,
        update: Accepted,
        frame: Box<Received>,
        /// Of each section of its frame, the first tensor and its figures; empty if the client said none.
        fidelity: Vec<(u32, SectionFidelity)>,
        /// Answered with why its fate is not known yet, if so.
        reply: oneshot::Sender<Result<UpdateReply, &'static str>>,
    },
    /// An evaluation.
    Evaluation {
        client: ClientId,
        report: EvaluationReport,
        reply: oneshot::Sender<bool>,
    },
    /// The frame of the whole model; `None` if it has moved on from `version`.
    Snapshot {
        version: u64,
        reply: oneshot::Sender<Option<FramePart>>,
    },
    /// The disk failed outside of the store: the server must stop before it promises more.
    Broken(DiskError),
    /// The operator changes the course of the run; answered with what has changed, or why nothing has.
    Change {
        change: Change,
        reply: oneshot::Sender<Result<String, String>>,
    },
    /// The clients that are watching, and whom the run waits for.
    Present { reply: oneshot::Sender<Attendance> },
    /// The run and its books now.
    Moment { reply: oneshot::Sender<Moment> },
}

/// Who is there, and whom the run waits for.
#[derive(Debug, Default)]
pub(crate) struct Attendance {
    pub(crate) present: Vec<ClientId>,
    /// If no round is open.
    pub(crate) waiting: Option<Waiting>,
    /// If one is open and takes updates.
    pub(crate) round: Option<OpenRound>,
}

/// Requests decided with one flush, at most.
const BATCH: usize = 256;

/// How often to look for bytes that are to be kept on disk.
const LOOK: Duration = Duration::from_secs(1);

/// The state of the run and all that changes it.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) plan: Arc<RunPlan>,
    pub(crate) parameters: usize,
    pub(crate) state: Arc<State>,
    pub(crate) shown: watch::Sender<Arc<State>>,
    pub(crate) store: RunStore,
    pub(crate) blobs: Blobs,
    pub(crate) desk: Desk,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) events: Events,
    pub(crate) clock: Clock,
    pub(crate) present: Present,
    /// Of what was recorded since the newest round closed.
    pub(crate) chain: Chain,
    /// For displays only.
    pub(crate) history: History,
    pub(crate) wake: Option<Millis>,
    /// What displays were told last.
    pub(crate) waiting: Option<Waiting>,
    pub(crate) tracer: Tracer,
    /// What the rows come to that are durable.
    pub(crate) booked: Booked,
    /// What the meter said in those of earlier processes.
    pub(crate) before: (u64, u64),
    /// What is in the ledger's tail.
    pub(crate) kept: Booked,
    pub(crate) pace: Pace,
    /// For reports and warnings only.
    pub(crate) fidelity: Watch,
}

/// What is decided but not durable yet.
#[derive(Debug, Default)]
struct Batch {
    records: Vec<Record>,
    /// Rows of the round that the records close.
    rows: Vec<Row>,
    /// Frames of the updates that the records name.
    accepted: Vec<Received>,
    /// Frames that no record will name.
    unused: Vec<Received>,
    answers: Vec<Answer>,
}

#[derive(Debug)]
enum Answer {
    Update(
        oneshot::Sender<Result<UpdateReply, &'static str>>,
        Result<UpdateReply, &'static str>,
    ),
    Evaluation(oneshot::Sender<bool>, bool),
    Moment(oneshot::Sender<Moment>),
    Change(oneshot::Sender<Result<String, String>>, String),
}

impl Driver {
    /// Runs until `stop`, then books the last bytes and returns the state.
    ///
    /// # Errors
    /// Whatever keeps a record from being durable, or the model from being computed. Nothing unanswered counts then.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        stop: impl Future<Output = ()>,
    ) -> Result<Arc<State>, ServeError> {
        let mut stop = pin!(stop);
        let mut waiting = Vec::with_capacity(BATCH);
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.commit(Batch::default()).await?;
        loop {
            let wake = self.sleep();
            tokio::select! {
                biased;
                () = &mut stop => break,
                finished = self.desk.finished() => self.finished(finished?).await?,
                n = commands.recv_many(&mut waiting, BATCH) => {
                    if n == 0 {
                        break;
                    }
                    let batch = self.decide_all(&mut waiting)?;
                    self.commit(batch).await?;
                }
                () = wake => self.commit(Batch::default()).await?,
                _ = looks.tick() => self.keep_books().await?,
            }
        }
        if let Some(finished) = self.desk.join().await? {
            self.finished(finished).await?;
        }
        self.book_rest().await?;
        Ok(self.state)
    }

    /// Sleeps until the engine wants to be asked again.
    fn sleep(&self) -> impl Future<Output = ()> + use<> {
        let left = self
            .wake
            .map(|wake| Duration::from_millis(wake.saturating_sub(self.clock.now())));
        async move {
            match left {
                Some(left) => tokio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        }
    }

    fn decide_all(&mut self, waiting: &mut Vec<Command>) -> Result<Batch, ServeError> {
        let mut batch = Batch::default();
        for command in waiting.drain(..) {
            match command {
                Command::Arrived(client) => {
                    self.announce_presence(&client, true);
                    self.present.arrived(client);
                }
                Command::Left(client) => {
                    self.present.left(&client, self.clock.now());
                    if !self.present.presence.connected().contains(&client) {
                        self.announce_presence(&client, false);
                    }
                }
                Command::Leaves { client, departure } => {
                    self.announce_presence(&client, false);
                    match departure {
                        Departure::Round(round) => self.present.presence.sits_out(client, round),
                        Departure::Learner | Departure::Failure => {
                            self.present.presence.left_for_good(client, self.clock.now());
                        }
                    }
                }
                Command::Snapshot { version, reply } => self.desk.want_snapshot(version, reply),
                Command::Change { change, reply } => match change.record(&self.state, self.clock.now()) {
                    Ok(record) => {
                        let text = self.change(record, &mut batch)?;
                        batch.answers.push(Answer::Change(reply, text));
                    }
                    // Whoever asked may be gone.
                    Err(why) => drop(reply.send(Err(why))),
                },
                Command::Broken(error) => return Err(error.into()),
                Command::Present { reply } => {
                    let _ = reply.send(Attendance {
                        present: self.present.presence.connected().iter().cloned().collect(),
                        waiting: self.waiting(),
                        round: self.open_round(),
                    });
                }
                // Once all that is decided here is durable.
                Command::Moment { reply } => batch.answers.push(Answer::Moment(reply)),
                Command::Update {
                    client,
                    round,
                    attempt,
                    update,
                    frame,
                    fidelity,
                    reply,
                } => {
                    let before = batch.records.len();
                    let input = Input::Update {
                        client: &client,
                        round,
                        attempt,
                        update,
                    };
                    let answer = match self.decide(input, &mut batch)? {
                        Reply::Update(answer) => Some(Ok(answer)),
                        Reply::NotNow(why) => Some(Err(why)),
                        Reply::None | Reply::Evaluation { .. } => None,
                    };
                    batch.answers.extend(answer.map(|answer| Answer::Update(reply, answer)));
                    let names = |record: &Record| matches!(record, Record::UpdateAccepted { .. });
                    // No record if it was accepted before.
                    if batch.records[before..].iter().any(names) {
                        self.fidelity.accepted(round, &fidelity);
                        batch.accepted.push(*frame);
                    } else {
                        batch.unused.push(*frame);
                    }
                }
                Command::Evaluation { client, report, reply } => {
                    let EvaluationReport {
                        version,
                        examples,
                        loss,
                        correct,
                        ..
                    } = report;
                    let input = Input::Evaluation {
                        client: &client,
                        version,
                        examples,
                        loss,
                        correct,
                    };
                    if let Reply::Evaluation { counted } = self.decide(input, &mut batch)? {
                        batch.answers.push(Answer::Evaluation(reply, counted));
                    }
                }
            }
        }
        Ok(batch)
    }

    /// Decides one input and applies its records, which become durable with the batch.
    fn decide(&mut self, input: Input<'_>, batch: &mut Batch) -> Result<Reply, ServeError> {
        let Decision { records, reply, .. } =
            decide(&self.state, &self.plan, self.clock.now(), &self.present.presence, input);
        if !records.is_empty() {
            let state = Arc::make_mut(&mut self.state);
            for record in &records {
                state.apply(record)?;
            }
            batch.records.extend(records);
        }
        Ok(reply)
    }

    /// Applies what the operator wants, which becomes durable with the batch; says what it is.
    fn change(&mut self, record: Record, batch: &mut Batch) -> Result<String, ServeError> {
        Arc::make_mut(&mut self.state).apply(&record)?;
        if let Record::RolledBack { version, to, model, .. } = record {
            let steps = self.state.steps_of(to).unwrap_or_default();
            self.desk.want_roll_back(RollBack { version, steps, model });
        }
        let text = said(&record);
        tracing::warn!("{text}");
        batch.records.push(record);
        Ok(text)
    }

    /// What came back from the desk.
    async fn finished(&mut self, finished: Finished) -> Result<(), ServeError> {
        let (mut batch, mut seen) = (Batch::default(), None);
        if let Finished::Closed {
            round,
            frame,
            frame_len,
            stages,
            model,
            sections: [up, down],
            limited,
            fidelity,
        } = finished
        {
            self.announce_limited(round, &limited).await;
            let mut figures = self.fidelity.rows();
            if !fidelity.is_empty() {
                figures.push(fidelity::row(round, Direction::Down, fidelity));
            }
            let closed = [(Direction::Up, up.as_slice()), (Direction::Down, down.as_slice())];
            seen = Some(self.fidelity.closed(&closed, &figures));
            let sections = |direction, sections| Row::Sections {
                round,
                direction,
                sections,
            };
            batch.rows = vec![sections(Direction::Up, up), sections(Direction::Down, down)];
            batch.rows.append(&mut figures);
            self.decide(
                Input::Stepped {
                    round,
                    frame,
                    frame_len,
                    stages,
                    model,
                },
                &mut batch,
            )?;
        }
        self.commit(batch).await?;
        if let Some(seen) = seen {
            self.announce_fidelity(seen).await;
        }
        Ok(())
    }

    /// Lets time pass, makes the batch durable, answers, shows the state, and starts what it owes.
    async fn commit(&mut self, mut batch: Batch) -> Result<(), ServeError> {
        loop {
            let before = batch.records.len();
            self.decide(Input::Tick, &mut batch)?;
            if batch.records.len() == before {
                break;
            }
        }
        self.wake = self.state.wake(&self.plan, self.clock.now(), &self.present.presence);
        if !batch.records.is_empty() {
            let closed = batch.records.iter().find_map(closed);
            let sample = closed.map(|_| self.traffic.sample(Fate::Refused));
            let mut rows = std::mem::take(&mut batch.rows);
            if let Some((round, sample)) = closed.zip(sample.as_ref()) {
                rows.extend(sample.rows(round));
            }
            let accepted = std::mem::take(&mut batch.accepted);
            self.append(&batch.records, rows, accepted).await?;
            self.shown.send_replace(Arc::clone(&self.state));
            self.announce(&batch.records, closed.zip(sample)).await;
        }
        self.announce_waiting().await;
        if !batch.unused.is_empty() {
            let unused = std::mem::take(&mut batch.unused);
            tokio::task::spawn_blocking(move || drop(unused))
                .await
                .map_err(ServeError::panicked)?;
        }
        for answer in batch.answers {
            // A client that is gone asks again when it is back.
            match answer {
                Answer::Update(reply, answer) => drop(reply.send(answer)),
                Answer::Evaluation(reply, counted) => drop(reply.send(counted)),
                Answer::Moment(reply) => drop(reply.send(self.moment())),
                Answer::Change(reply, text) => drop(reply.send(Ok(text))),
            }
        }
        if let Some(Owed::Close {
            round,
            updates,
            limited,
        }) = self.state.owed()
        {
            self.desk.want_close(round, updates, limited);
        }
        self.desk.start();
        Ok(())
    }

    /// Books what has passed since the last round closed to the newest round.
    async fn book_rest(&mut self) -> Result<(), ServeError> {
        let round = self.books_to();
        // A frame that is arriving is gone on with when the run is served again.
        let sample = self.traffic.sample(Fate::Update);
        let mut rows = sample.rows(round);
        rows.append(&mut self.fidelity.rows());
        self.append(&[], rows, Vec::new()).await?;
        self.check(round, &sample).await;
        Ok(())
    }

    /// Makes blobs of the accepted updates, then records and ledger rows durable together, with the link of a round that
    /// they close. No other task turns an upload into a blob, so a refused one never is a blob.
    async fn append(
        &mut self,
        records: &[Record],
        mut rows: Vec<Row>,
        accepted: Vec<Received>,
    ) -> Result<(), ServeError> {
        let mut links = Vec::new();
        rows.iter().for_each(|row| self.chain.row(row));
        for record in records {
            self.chain.record(record);
            links.extend(closed(record).map(|round| Row::Link {
                round,
                link: self.chain.close(),
            }));
        }
        rows.append(&mut links);
        let bytes: Vec<_> = rows.iter().map(Row::to_bytes).collect();
        let (blobs, store, records) = (self.blobs.clone(), self.store.clone(), records.to_vec());
        tokio::task::spawn_blocking(move || {
            blobs.keep(accepted)?;
            Ok::<_, ServeError>(store.append(&records, &bytes)?)
        })
        .await
        .map_err(ServeError::panicked)??;
        if !rows.is_empty() {
            rows.iter().for_each(|row| self.booked.add(row));
            self.kept = Booked::default();
        }
        self.pace.recorded();
        Ok(())
    }
}

fn closed(record: &Record) -> Option<u64> {
    match record {
        Record::RoundClosed { round, .. } => Some(*round),
        _ => None,
    }
}
