//! The loop of the coordinator: takes commands, decides them, and handles what the model task has finished.

use crate::coordinator::actor::Coordinator;
use crate::coordinator::command::{Attendance, Command};
use crate::coordinator::commit::Batch;
use crate::coordinator::fidelity;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fl_proto::{Departure, Role};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::accounting::ledger::{Direction, Row};
use crate::coordinator::change::said;
use crate::coordinator::model_task::{ClosedRound, RollBack};
use crate::error::ServeError;
use crate::state_machine::{Decision, Input, Record, Reply, State, decide};
use crate::telemetry::event::{Event, PausedClient};

/// Requests decided with one flush, at most.
const BATCH: usize = 256;

/// How often the coordinator checks whether to write the ledger's tail.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Coordinator {
    /// Runs until `stop`, then books the last bytes, writes a checkpoint and returns the state.
    ///
    /// # Errors
    /// Those of the store, the disk and the model. Requests without a reply are not durable then.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        stop: impl Future<Output = ()>,
    ) -> Result<Arc<State>, ServeError> {
        let mut stop = pin!(stop);
        let mut waiting = Vec::with_capacity(BATCH);
        let mut looks = tokio::time::interval(POLL_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.commit(Batch::default()).await?;
        loop {
            let wake = self.sleep();
            tokio::select! {
                biased;
                () = &mut stop => break,
                finished = self.model_task.finished() => self.finished(finished?).await?,
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
        if self.model_task.is_busy() {
            let closed = self.model_task.finished().await?;
            self.finished(closed).await?;
        }
        self.book_rest().await?;
        self.model_task.end().await?;
        Ok(self.state)
    }

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
            self.handle(command, &mut batch)?;
        }
        Ok(batch)
    }

    fn handle(&mut self, command: Command, batch: &mut Batch) -> Result<(), ServeError> {
        match command {
            Command::Arrived(client, role, availability) => {
                let back = self.present.presence.has_left(&client);
                if role == Role::Evaluator {
                    self.present.presence.only_evaluates(client.clone());
                }
                self.present.reports(&client, availability, self.clock.now());
                match (self.present.arrived(client.clone()), back) {
                    (true, true) => self.say(&client, false, "is back"),
                    // Displays say for how many clients the run waits.
                    (true, false) => tracing::info!("{client} connected"),
                    (false, _) => {}
                }
            }
            Command::Available(client, availability) => {
                self.present.changes(&client, availability, self.clock.now());
                let pause = self.present.paused.get(&client).map(PausedClient::what);
                let what = pause.as_deref().unwrap_or("is available again");
                self.say(&client, pause.is_some(), what);
            }
            Command::Left(client) => {
                let was_connected = self.present.presence.connected().contains(&client);
                self.present.left(&client, self.clock.now());
                if was_connected && !self.present.presence.connected().contains(&client) {
                    self.say(&client, true, "left");
                }
            }
            Command::Refused(client) => {
                let now = self.clock.now();
                let counts = self.state.round().is_some_and(|open| open.updates.contains(&client));
                // A round that is being averaged keeps the update; the operator may roll it back.
                if let Some(record) = counts.then(|| self.state.exclude(&client, now).ok()).flatten() {
                    self.change(record, batch)?;
                }
                self.show(&client, true, None);
                self.present.left(&client, now);
                self.present.presence.left_for_good(client, now);
            }
            Command::Leaves(client, departure, reason) => match departure {
                Departure::Evaluation(version) => self.present.presence.will_not_evaluate(client, version),
                Departure::Round(round) => {
                    self.say_failed(&client, round, &reason);
                    self.present.presence.sits_out(client, round);
                }
                Departure::Paused(round) => {
                    self.show(&client, true, None);
                    self.present.presence.sits_out(client, round);
                }
                Departure::Learner | Departure::Failure => {
                    self.show(&client, true, None);
                    self.present.presence.left_for_good(client, self.clock.now());
                }
            },
            Command::Snapshot { version, reply } => self.model_task.want_snapshot(version, reply),
            Command::KeptSnapshot { digest, reply } => {
                // The client may have disconnected.
                let _ = reply.send(self.model_task.kept_snapshot(&digest));
            }
            Command::KeptSnapshots { reply } => self.model_task.want_kept_snapshots(reply),
            Command::Change { change, reply } => match change.record(&self.state, self.clock.now()) {
                Ok(record) => {
                    let text = self.change(record, batch)?;
                    batch.answer(reply, Ok(text));
                }
                // The operator may have disconnected.
                Err(why) => drop(reply.send(Err(why))),
            },
            Command::Broken(error) => return Err(error.into()),
            Command::Present { reply } => {
                let _ = reply.send(Attendance {
                    present: self.present.presence.connected().iter().cloned().collect(),
                    paused: self.present.paused(),
                    waiting: self.waiting(),
                    round: self.open_round(),
                });
            }
            Command::Moment { reply } => batch.answer_with(reply, Coordinator::moment),
            Command::Decide { input, reply } => {
                let answer = self.decide(input, batch)?;
                batch.answer(reply, answer);
            }
            Command::Update {
                input,
                frame,
                fidelity,
                reply,
            } => {
                let before = batch.records.len();
                let answer = self.decide(input, batch)?;
                batch.answer(reply, answer);
                // A repeated update has no new record.
                match batch.records[before..].iter().find_map(accepted) {
                    Some(round) => {
                        self.fidelity.accepted(round, &fidelity);
                        batch.accepted.push(*frame);
                    }
                    None => batch.unused.push(*frame),
                }
            }
        }
        Ok(())
    }

    /// Decides one input and applies its records, which become durable with the batch.
    pub(super) fn decide(&mut self, input: Input, batch: &mut Batch) -> Result<Reply, ServeError> {
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

    /// Applies an operator's change, which becomes durable with the batch. Returns its effect as a sentence.
    fn change(&mut self, record: Record, batch: &mut Batch) -> Result<String, ServeError> {
        Arc::make_mut(&mut self.state).apply(&record)?;
        if let Record::RolledBack { version, to, model, .. } = record {
            let steps = self.state.versions().steps(to).unwrap_or_default();
            self.model_task.want_roll_back(RollBack { version, steps, model });
        }
        let text = said(&record);
        tracing::warn!("{text}");
        batch.records.push(record);
        Ok(text)
    }

    async fn warn(&mut self, text: String) {
        tracing::warn!("{text}");
        self.events.tell(Event::Warning(text)).await;
    }

    /// Handles the end of a job, which may have closed a round.
    async fn finished(&mut self, closed: Option<ClosedRound>) -> Result<(), ServeError> {
        let mut batch = Batch::default();
        let mut seen = None;
        if let Some(ClosedRound { round, result }) = closed {
            if result.is_zero {
                self.warn(format!(
                    "round {round} changes nothing: all its updates are zero; look whether the clients' training reaches the model"
                ))
                .await;
            }
            // Evaluations come with the updates of the next round.
            if round == 2 && self.plan.evaluate && self.state.evaluations(1).is_none() {
                let stop_at = self.plan.stop_at.map_or("", |_| ", and never reach `stop_at`");
                self.warn(format!(
                    "no client of round 2 has evaluated version 1: without held-out examples the run will show no accuracy and no loss \
                     of its model{stop_at}; give clients some (`test` in `data`, or an evaluation in the script), or set \
                     `evaluate = false` in run.toml"
                ))
                .await;
            }
            let mut figures = self.fidelity.rows();
            if !result.fidelity.is_empty() {
                figures.push(fidelity::row(round, Direction::Down, result.fidelity));
            }
            let sections = [(Direction::Up, result.uplink), (Direction::Down, result.downlink)];
            let entropies = [
                (Direction::Up, result.uplink_entropies),
                (Direction::Down, result.downlink_entropies),
            ];
            seen = Some(self.fidelity.closed(&sections, &figures, &entropies));
            batch.rows.extend(sections.map(|(direction, sections)| Row::Sections {
                round,
                direction,
                sections,
            }));
            batch.rows.append(&mut figures);
            let input = Input::RoundResult {
                round,
                step: result.step,
                limited: result.limited,
            };
            self.decide(input, &mut batch)?;
        }
        self.commit(batch).await?;
        if let Some(seen) = seen {
            self.announce_fidelity(seen).await;
        }
        Ok(())
    }
}

/// The round in which a record accepts an update.
fn accepted(record: &Record) -> Option<u64> {
    match record {
        Record::UpdateAccepted { round, .. } => Some(*round),
        _ => None,
    }
}
