//! The one task that owns the state of the run.
//!
//! Requests come through a bounded channel. All that are waiting are decided together, their records made durable by
//! one flush, and only then are they answered and the new state shown. Heavy work on the model happens elsewhere
//! ([`crate::desk`]); the driver goes on answering meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fl_proto::{ClientId, EvaluationReport, FramePart, UpdateReply};
use tokio::sync::{mpsc, oneshot, watch};

use crate::desk::{Desk, Finished};
use crate::engine::{Accepted, Decision, Input, Millis, Owed, Record, Reply, State, decide};
use crate::event::{Evaluated, Event};
use crate::history::History;
use crate::ledger::{Flow, Row};
use crate::plan::RunPlan;
use crate::serve::ServeError;
use crate::store::RunStore;
use crate::traffic::{Sample, Traffic};

/// Tells the time: milliseconds since 1970.
pub(crate) type Clock = fn() -> Millis;

/// What the calls ask of the driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// A client began to watch.
    Arrived(ClientId),
    /// One of its watch streams ended.
    Left(ClientId),
    /// A verified update whose frame is durable.
    Update { client: ClientId, round: u64, update: Accepted, reply: oneshot::Sender<UpdateReply> },
    /// An evaluation.
    Evaluation { client: ClientId, report: EvaluationReport, reply: oneshot::Sender<bool> },
    /// The frame of the whole model; `None` if it has moved on from `version`.
    Snapshot { version: u64, reply: oneshot::Sender<Option<FramePart>> },
    /// The clients that are watching.
    Present { reply: oneshot::Sender<Vec<ClientId>> },
}

/// Where events go, if anyone wants them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events(pub(crate) Option<mpsc::Sender<Event>>);

impl Events {
    /// Tells what may as well be missed.
    pub(crate) fn hint(&self, event: impl FnOnce() -> Event) {
        if let Some(channel) = &self.0 {
            let _ = channel.try_send(event());
        }
    }

    /// Tells what should not be missed; waits while the channel is full.
    async fn tell(&self, event: Event) {
        if let Some(channel) = &self.0 {
            let _ = channel.send(event).await;
        }
    }
}

/// Requests decided with one flush, at most.
const BATCH: usize = 256;

/// The state of the run and all that changes it.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) plan: Arc<RunPlan>,
    pub(crate) parameters: usize,
    pub(crate) state: Arc<State>,
    pub(crate) shown: watch::Sender<Arc<State>>,
    pub(crate) store: RunStore,
    pub(crate) desk: Desk,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) events: Events,
    pub(crate) clock: Clock,
    pub(crate) present: Present,
    /// For displays only.
    pub(crate) history: History,
    pub(crate) wake: Option<Millis>,
}

/// Clients that watch, each with its number of streams.
#[derive(Debug, Default)]
pub(crate) struct Present {
    streams: BTreeMap<ClientId, usize>,
    names: BTreeSet<ClientId>,
}

/// What is decided but not durable yet.
#[derive(Debug, Default)]
struct Batch {
    records: Vec<Record>,
    answers: Vec<Answer>,
}

#[derive(Debug)]
enum Answer {
    Update(oneshot::Sender<UpdateReply>, UpdateReply),
    Evaluation(oneshot::Sender<bool>, bool),
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
        let left = self.wake.map(|wake| Duration::from_millis(wake.saturating_sub((self.clock)())));
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
                Command::Arrived(client) => self.present.arrived(client),
                Command::Left(client) => self.present.left(&client),
                Command::Snapshot { version, reply } => self.desk.want_snapshot(version, reply),
                Command::Present { reply } => {
                    let _ = reply.send(self.present.names.iter().cloned().collect());
                }
                Command::Update { client, round, update, reply } => {
                    if let Reply::Update(answer) = self.decide(Input::Update { client: &client, round, update }, &mut batch)? {
                        batch.answers.push(Answer::Update(reply, answer));
                    }
                }
                Command::Evaluation { client, report, reply } => {
                    let EvaluationReport { version, examples, loss, correct, .. } = report;
                    let input = Input::Evaluation { client: &client, version, examples, loss, correct };
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
            decide(&self.state, &self.plan, (self.clock)(), &self.present.names, input);
        if !records.is_empty() {
            let state = Arc::make_mut(&mut self.state);
            for record in &records {
                state.apply(record)?;
            }
            batch.records.extend(records);
        }
        Ok(reply)
    }

    /// What came back from the desk.
    async fn finished(&mut self, finished: Finished) -> Result<(), ServeError> {
        let mut batch = Batch::default();
        if let Finished::Closed { round, frame, frame_len, stages, model } = finished {
            self.decide(Input::Stepped { round, frame, frame_len, stages, model }, &mut batch)?;
        }
        self.commit(batch).await
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
        self.wake = self.state.wake(&self.plan, (self.clock)());
        if !batch.records.is_empty() {
            let closed = batch.records.iter().find_map(closed);
            let sample = closed.map(|_| self.traffic.sample());
            let rows = closed.zip(sample.as_ref()).map(|(round, sample)| sample.rows(round)).unwrap_or_default();
            self.append(&batch.records, &rows).await?;
            self.shown.send_replace(Arc::clone(&self.state));
            self.announce(&batch.records, closed.zip(sample)).await;
        }
        for answer in batch.answers {
            // A client that is gone asks again when it is back.
            match answer {
                Answer::Update(reply, answer) => drop(reply.send(answer)),
                Answer::Evaluation(reply, counted) => drop(reply.send(counted)),
            }
        }
        if let Some(Owed::Close { round, updates }) = self.state.owed() {
            self.desk.want_close(round, updates);
        }
        self.desk.start();
        Ok(())
    }

    /// Books what has passed since the last round closed to the newest round.
    async fn book_rest(&mut self) -> Result<(), ServeError> {
        let round = self.state.round().map_or(self.state.version(), |round| round.number);
        let sample = self.traffic.sample();
        self.append(&[], &sample.rows(round)).await?;
        self.check(round, &sample).await;
        Ok(())
    }

    /// Makes records and ledger rows durable together.
    async fn append(&mut self, records: &[Record], rows: &[Row]) -> Result<(), ServeError> {
        let (store, records, rows) = (self.store.clone(), records.to_vec(), rows.iter().map(Row::to_bytes).collect::<Vec<_>>());
        tokio::task::spawn_blocking(move || store.append(&records, &rows)).await.map_err(ServeError::panicked)??;
        Ok(())
    }

    /// The ledger must be what the sockets carried.
    async fn check(&mut self, round: u64, sample: &Sample) {
        if !sample.is_balanced() {
            let text = format!("the ledger of round {round} differs from what the sockets carried: {sample:?}");
            tracing::error!(round, "{text}");
            self.events.tell(Event::Alert(text)).await;
        }
    }

    /// Tells what is durable now.
    async fn announce(&mut self, records: &[Record], booked: Option<(u64, Sample)>) {
        for record in records {
            self.history.add(record);
            match record {
                Record::RoundOpened { round, attempt, cohort, .. } => {
                    let (round, attempt, cohort) = (*round, *attempt, cohort.iter().cloned().collect());
                    self.events.tell(Event::RoundOpened { round, attempt, cohort }).await;
                }
                Record::UpdateAccepted { client, update, .. } => {
                    let event = Event::UpdateAccepted { client: client.clone(), bytes: update.len };
                    self.events.tell(event).await;
                }
                Record::RoundClosed { round, .. } => {
                    if let Some((_, sample)) = booked.as_ref().filter(|(booked, _)| booked == round) {
                        self.check(*round, sample).await;
                        self.round_closed(*round, sample.total()).await;
                    }
                }
                Record::RunDone { .. } => {
                    self.evaluated(self.state.version()).await;
                    self.events.tell(Event::Done).await;
                }
                Record::RunFailed { round, why, .. } => {
                    tracing::error!(round, why, "run failed");
                    self.events.tell(Event::Failed { round: *round, why: why.clone() }).await;
                }
                _ => {}
            }
        }
    }

    /// A round's end is also the end of the evaluations of the model that it began with.
    async fn round_closed(&mut self, round: u64, flow: Flow) {
        self.evaluated(round.saturating_sub(1)).await;
        if let Some(summary) = self.history.summary(round, flow, self.parameters) {
            tracing::info!(
                round,
                updates = summary.updates,
                loss = summary.loss,
                seconds = summary.seconds,
                bytes_up = flow.socket_up,
                bytes_down = flow.socket_down,
                bits_up = summary.bits_up,
                bits_down = summary.bits_down,
                "round closed"
            );
            self.events.tell(Event::RoundClosed(summary)).await;
        }
    }

    async fn evaluated(&mut self, version: u64) {
        if let Some(evaluated) = self.history.evaluated(version) {
            let Evaluated { accuracy, loss, examples, .. } = evaluated;
            tracing::info!(version, accuracy, loss, examples, "model evaluated");
            self.events.tell(Event::Evaluated(evaluated)).await;
        }
    }
}

fn closed(record: &Record) -> Option<u64> {
    match record {
        Record::RoundClosed { round, .. } => Some(*round),
        _ => None,
    }
}

impl Present {
    fn arrived(&mut self, client: ClientId) {
        self.names.insert(client.clone());
        *self.streams.entry(client).or_default() += 1;
    }

    fn left(&mut self, client: &ClientId) {
        if let Some(streams) = self.streams.get_mut(client) {
            *streams = streams.saturating_sub(1);
            if *streams == 0 {
                self.streams.remove(client);
                self.names.remove(client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_with_several_streams_is_present_once_and_until_the_last_ends() {
        let mut present = Present::default();
        let client: ClientId = "a".parse().unwrap();
        present.arrived(client.clone());
        present.arrived(client.clone());
        assert_eq!(present.names.len(), 1);
        present.left(&client);
        assert_eq!(present.names.len(), 1);
        present.left(&client);
        assert!(present.names.is_empty() && present.streams.is_empty());
        present.left(&client);
    }
}
