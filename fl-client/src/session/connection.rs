//! One connection: join, then act on the latest state of the run until the connection breaks or the run is over.

use std::sync::Arc;
use std::time::Duration;

use fl_proto::{Departure, EvaluationReport, Joined, Phase, RoundState, UpdateId, UpdateReply};

use super::fetch_base::obtain_base;
use super::fetch_model::fetch_model;
use super::guest::Guest;
use super::renewal;
use super::round_watch::RoundWatch;
use super::session_state::SessionState;
use super::stop_on_drop::StopOnDrop;
use super::traffic_log::TrafficLog;
use super::training::Training;
use super::upload::upload;
use crate::client::{ClientActor, PendingUpdate, same_run};
use crate::conditions::METERED;
use crate::config::ClientConfig;
use crate::error::Error;
use crate::event::{Event, Sink};
use crate::learner::Progress;
use crate::rpc::Rpc;
use crate::waits::if_any;
use tokio::time::{Instant, sleep_until};

/// How a connection ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// The run is over; its last round. Nothing is left to do, or the server has ended the watch.
    Over(u64),
    /// The run has failed, and the server has ended the watch.
    Failed,
    /// The certificate was renewed: the next connection uses the new one.
    Renewed,
    /// The authority was rotated: these are trusted from now on, PEM.
    Rotated(String),
}

pub(super) struct Connection<'a> {
    pub(super) config: &'a ClientConfig,
    pub(super) actor: &'a ClientActor,
    pub(super) events: &'a Sink,
    pub(super) traffic: &'a mut TrafficLog,
    pub(super) session: &'a mut SessionState,
    pub(super) guest: &'a mut Guest,
    pub(super) rpc: Rpc,
    pub(super) joined: Arc<Joined>,
}

impl Connection<'_> {
    /// Uploads the pending update, if there is one, and follows the run until it is over. `known`: the server's reply about
    /// the update that the client `asked` about.
    pub(super) async fn take_part(
        mut self,
        asked: Option<UpdateId>,
        known: Option<UpdateReply>,
    ) -> Result<ConnectionEnd, Error> {
        let joined = Arc::clone(&self.joined);
        let before = self.session.joined.as_ref();
        if !before.is_some_and(|before| same_run(before, &joined)) {
            self.session.leave_run();
            self.traffic.leave_run();
            self.guest.leave_run();
        }
        if !self.guest.knows_run() {
            self.guest.joined(&joined, self.config).await;
        }
        let pending = match &self.session.training {
            Some(_) => None,
            None => {
                let base = Box::pin(obtain_base(
                    &mut self.rpc,
                    self.actor,
                    self.events,
                    &joined,
                    &mut self.guest.monitor,
                ))
                .await?;
                let joined = Arc::clone(&joined);
                self.actor.call(move |client| client.join(&joined, base)).await??
            }
        };
        self.session.joined = Some(Arc::clone(&joined));
        self.guest.monitor.see();
        let availability = self.guest.monitor.availability();
        let (states, updates) = self.rpc.watch(&joined, availability).await?;
        let watch = RoundWatch::start(states, updates, self.rpc.clone());
        self.events.send(Event::Connected {
            client: joined.client.clone(),
            run: joined.run.clone(),
            task: joined.task.clone(),
            rounds: joined.rounds,
            instance: joined.instance,
        });
        let known = known.filter(|_| pending.as_ref().map(|update| &update.header.id) == asked.as_ref());
        if let Some(update) = pending {
            self.upload(&watch, update, known).await?;
        }
        self.follow(watch).await
    }

    async fn follow(mut self, mut watch: RoundWatch) -> Result<ConnectionEnd, Error> {
        let ended = || Error::Broken("the server ended the watch: it is stopping".to_owned());
        let mut state = watch.next().await?.ok_or_else(ended)?;
        let mut not_before = None;
        loop {
            self.announce(&state);
            if state.phase == Phase::Done {
                self.session.training = None;
                if self.config.exit_when_done {
                    return Ok(ConnectionEnd::Over(state.round));
                }
                // The watch says at once when the server is stopped; the next run is another server's.
            } else {
                self.act(&state, &watch).await?;
            }
            // Computed anew for each state: timers stand still while a device sleeps.
            let renew_at = self.renewal().max(not_before);
            tokio::select! {
                next = watch.next() => match (next?, state.phase) {
                    (Some(next), _) => state = next,
                    (None, Phase::Done) => return Ok(ConnectionEnd::Over(state.round)),
                    (None, Phase::Failed) => return Ok(ConnectionEnd::Failed),
                    (None, _) => return Err(ended()),
                },
                (asked, result) = if_any(self.session.training.as_mut().map(Training::finished)) => {
                    let gave_up = self.session.training.take().and_then(|training| training.gave_up());
                    match (gave_up, result) {
                        (Some(why), Err(Error::NotNow(_))) => {
                            self.leave_round(asked, Departure::Paused(asked.0), why).await?;
                        }
                        (_, result) => self.conclude(&watch, asked, result).await?,
                    }
                }
                () = self.guest.monitor.changed() => self.report_availability(&watch).await?,
                () = if_any(renew_at.map(sleep_until)) => match self.renew().await {
                    // A training in progress goes on: it does not depend on the connection.
                    Ok(()) => return Ok(ConnectionEnd::Renewed),
                    Err(error) if error.is_connection() => return Err(error),
                    Err(error) => {
                        let wait = renewal::retry(&self.config.own, (self.config.clock)());
                        tracing::warn!(%error, ?wait, "the certificate was not renewed; trying again later");
                        not_before = Some(Instant::now() + wait);
                    }
                },
            }
        }
    }

    /// When to renew the certificate; `None` if it is no file.
    fn renewal(&self) -> Option<Instant> {
        self.config.identity.as_ref()?;
        let now = (self.config.clock)() + self.session.clock_offset;
        let due = renewal::due(&self.config.own, now)?;
        Instant::now().checked_add(due)
    }

    async fn renew(&mut self) -> Result<(), Error> {
        let Some(files) = &self.config.identity else {
            return Ok(());
        };
        renewal::renew(&mut self.rpc, files, &self.config.authority, &self.config.own).await?;
        tracing::info!("the certificate was renewed");
        Ok(())
    }

    /// Reports the state of the run as events.
    fn announce(&mut self, state: &RoundState) {
        if state.round > 0 {
            self.traffic.enter_round(state.round);
        }
        let seen = (state.round, state.selected);
        if state.round > 0 && self.session.announced != Some(seen) {
            if self.session.announced.is_none_or(|(round, _)| round != state.round) {
                self.guest.budget.round_begins();
            }
            self.session.announced = Some(seen);
            self.events.send(Event::Round {
                round: state.round,
                selected: state.selected,
            });
        }
        if self.session.message != state.message {
            self.session.message.clone_from(&state.message);
            if !state.message.is_empty() && state.phase != Phase::Failed {
                tracing::info!(round = state.round, "the server says: {}", state.message);
            }
        }
        match state.phase {
            Phase::Done => self.events.send(Event::Done { round: state.round }),
            Phase::Failed => self.events.send(Event::Failed {
                message: state.message.clone(),
            }),
            _ => {}
        }
    }

    async fn act(&mut self, state: &RoundState, watch: &RoundWatch) -> Result<(), Error> {
        if let Some(training) = self.session.training.as_ref().filter(|training| training.is_for(state)) {
            training.asked_again(state);
            return Ok(());
        }
        if self.session.training.take().is_some() {
            self.session.unsettled = true;
        }
        let training = state.phase == Phase::Training;
        if !training || self.session.settled != Some((state.round, state.attempt)) {
            self.session.settled = None;
        }
        let train = training && state.selected && state.accepted.is_none() && self.session.settled.is_none();
        let evaluate = state.evaluate && self.session.evaluated != Some(state.version) && state.phase != Phase::Failed;
        if !train && !evaluate {
            return Ok(());
        }
        if let Some(why) = self.guest.why_not().or_else(|| {
            let frame = state.budget.or(self.session.frame).filter(|_| train)?;
            self.guest.budget.too_slow(frame, self.session.trained, state.left)
        }) {
            return self.decline(state, train, why).await;
        }
        let prepared = tokio::select! {
            prepared = Box::pin(self.prepare(state, watch, evaluate, train)) => prepared,
            () = watch.supersedes(state) => return Ok(()),
        };
        match prepared {
            Err(Error::NotNow(why)) => {
                tracing::debug!(round = state.round, why, "the server is in another round; waiting")
            }
            Err(error) => return Err(error),
            Ok(()) if train => self.start(state),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Obtains the model and evaluates it, if asked to. `train`: whether an update follows.
    async fn prepare(
        &mut self,
        state: &RoundState,
        watch: &RoundWatch,
        evaluate: bool,
        train: bool,
    ) -> Result<(), Error> {
        if self.session.unsettled {
            if let Some(update) = self.actor.call(|client| client.pending_update()).await? {
                self.upload(watch, update, None).await?;
            }
            self.session.unsettled = false;
        }
        self.tell_classes().await?;
        fetch_model(&mut self.rpc, self.actor, self.events, &self.joined, state).await?;
        if evaluate {
            self.evaluate(state, train).await
        } else {
            Ok(())
        }
    }

    /// Joins again when the data has been read: the server compares its classes with those of the other clients.
    async fn tell_classes(&mut self) -> Result<(), Error> {
        let task = self.joined.task.clone();
        if self.session.classes.as_ref().is_none_or(|(known, _)| *known != task) {
            let read = task.clone();
            let classes = self.actor.call(move |client| client.classes(&read)).await??;
            self.session.classes = Some((task, classes));
        }
        let request = self.session.join_request(self.config, None);
        let classes = request.classes.clone();
        if classes != self.session.said {
            let reply = self.rpc.join(request, self.session.told.as_ref()).await;
            reply.map_err(|error| self.session.not_joined(error))?;
            self.session.said = classes;
        }
        Ok(())
    }

    fn start(&mut self, state: &RoundState) {
        if self.session.settled == Some((state.round, state.attempt)) {
            return;
        }
        let progress = Arc::new(Progress::default());
        self.events.send(Event::Training {
            round: state.round,
            progress: Arc::clone(&progress),
        });
        let pauses = (&self.guest.monitor, self.config.when.max_pause, self.session.trained);
        self.session.training = Some(Training::start(self.actor, &self.config.gate, state, progress, pauses));
    }

    async fn conclude(
        &mut self,
        watch: &RoundWatch,
        asked: (u64, u32),
        result: Result<PendingUpdate, Error>,
    ) -> Result<(), Error> {
        match result {
            Ok(update) => {
                let spent = update.header.train_ms.saturating_add(update.header.encode_ms);
                self.session.trained = Some(Duration::from_millis(spent));
                self.session.frame = Some(update.header.len);
                let wanted = UpdateReply::Wanted { offset: 0 };
                self.upload(watch, update, Some(wanted)).await
            }
            Err(Error::Learner(why)) => self.leave_round(asked, Departure::Round(asked.0), why).await,
            Err(Error::NotNow(_)) => {
                self.session.unsettled = true;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn upload(
        &mut self,
        watch: &RoundWatch,
        update: PendingUpdate,
        known: Option<UpdateReply>,
    ) -> Result<(), Error> {
        let round = update.header.id.round;
        let attempt = update.header.id.attempt;
        if self.guest.monitor.decision().is_because_of(METERED) {
            tracing::debug!(round, "the connection is metered: the update stays pending");
            self.session.unsettled = true;
            return Ok(());
        }
        let evaluation = &mut self.session.evaluation;
        match upload(&mut self.rpc, watch, self.actor, self.events, update, known, evaluation).await {
            Ok(()) => {
                self.session.settled = Some((round, attempt));
                self.guest.budget.round_took();
            }
            Err(Error::NotNow(why)) => {
                tracing::debug!(round, why, "the update stays pending");
                self.session.unsettled = true;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn evaluate(&mut self, state: &RoundState, train: bool) -> Result<(), Error> {
        let permit = Arc::clone(&self.config.gate).acquire_owned().await.ok();
        let stop = StopOnDrop::default();
        let progress = stop.progress();
        let evaluated = self.actor.call(move |client| {
            let _permit = permit;
            client.evaluate(&progress)
        });
        match evaluated.await? {
            Ok(Some((version, evaluation))) => {
                let report = evaluation.report(&self.joined.run, version);
                let model = state.model;
                self.events.send(Event::Evaluated {
                    version,
                    model,
                    evaluation,
                });
                if train {
                    self.session.evaluation = Some(report)
                } else {
                    self.report(report).await?
                }
            }
            Ok(None) => self.skips_evaluation(state, "no held-out examples".to_owned()).await,
            Err(Error::Learner(why)) => {
                self.events.send(Event::NotEvaluated {
                    version: state.version,
                    why: why.clone(),
                });
                self.skips_evaluation(state, why).await;
            }
            Err(error) => return Err(error),
        }
        self.session.evaluated = Some(state.version);
        Ok(())
    }

    pub(super) async fn report(&mut self, report: EvaluationReport) -> Result<(), Error> {
        let version = report.version;
        if !self.rpc.evaluate(report).await? {
            tracing::debug!(version, "the evaluation came too late to count");
        }
        Ok(())
    }
}
