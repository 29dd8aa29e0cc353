//! One connection: join, then act on the newest state of the run until the connection breaks or the run is over.

use std::sync::Arc;

use fl_proto::{Departure, EvaluationReport, JoinRequest, Joined, Phase, RoundState, UpdateId, UpdateReply};

use super::books::Books;
use super::deliver::deliver;
use super::fetch::bring;
use super::memo::Memo;
use super::newest::Newest;
use super::training::Training;
use crate::event::{Event, Sink};
use crate::rpc::Rpc;
use crate::work::{Outgoing, same_run};
use crate::worker::Worker;
use crate::{ClientConfig, Error, Evaluation, Progress};

/// Serves one connection and returns the last round when the run is over.
///
/// # Errors
/// Why the connection ended; transient if coming back may help.
pub(super) async fn serve(
    config: &Arc<ClientConfig>,
    worker: &Worker,
    events: &Sink,
    books: &mut Books,
    memo: &mut Memo,
) -> Result<u64, Error> {
    let mut rpc = Rpc::connect(config).await?;
    // While a learner is at work nothing is pending, and the worker would not answer.
    let asked = match &memo.training {
        Some(_) => None,
        None => worker.call(|work| work.pending()).await??,
    };
    let request = JoinRequest {
        tasks: memo.tasks.clone(),
        pending: asked.clone(),
    };
    let joined = rpc.join(request).await?;
    memo.heard = true;
    let run = joined.run.clone();
    let taken_part = Box::pin(take_part(
        config,
        worker,
        events,
        books,
        memo,
        rpc.clone(),
        joined,
        asked,
    ))
    .await;
    if let Err(error) = &taken_part
        && let Some(departure) = departure(error)
    {
        rpc.leave(&run, departure, error.to_string()).await;
    }
    taken_part
}

/// How the client leaves the run after this error: not at all if it comes back by itself.
fn departure(error: &Error) -> Option<Departure> {
    match error {
        Error::Learner(_) | Error::Config(_) => Some(Departure::Learner),
        Error::Protocol(_) | Error::State { .. } | Error::Crashed(_) => Some(Departure::Failure),
        // A client that is not admitted is not waited for either, and would not be heard.
        Error::Refused(_)
        | Error::Unreachable(_)
        | Error::Broken(_)
        | Error::Displaced(_)
        | Error::NotNow(_)
        | Error::OtherTask(_)
        | Error::GaveUp(_) => None,
    }
}

/// Settles the frame that is pending and follows the run until it is over.
#[expect(clippy::too_many_arguments, reason = "the parts of one connection")]
async fn take_part(
    config: &Arc<ClientConfig>,
    worker: &Worker,
    events: &Sink,
    books: &mut Books,
    memo: &mut Memo,
    mut rpc: Rpc,
    mut joined: Joined,
    asked: Option<UpdateId>,
) -> Result<u64, Error> {
    let known = joined.pending.take();
    let joined = Arc::new(joined);
    if !memo.joined.as_ref().is_some_and(|before| same_run(before, &joined)) {
        memo.leave_run();
        books.leave_run();
    }
    let open = match &memo.training {
        Some(_) => None,
        None => {
            let joined = Arc::clone(&joined);
            worker.call(move |work| work.join(&joined)).await??
        }
    };
    memo.joined = Some(Arc::clone(&joined));
    let newest = Newest::of(rpc.watch(&joined.run).await?, rpc.clone());
    let Joined {
        client,
        run,
        task,
        rounds,
        instance,
        ..
    } = joined.as_ref().clone();
    events.send(Event::Connected {
        client,
        run,
        task,
        rounds,
        instance,
    });
    let known = known.filter(|_| open.as_ref().map(|open| &open.header.id) == asked.as_ref());
    let mut link = Link {
        config,
        worker,
        events,
        books,
        memo,
        rpc,
        joined,
    };
    if let Some(open) = open {
        link.deliver(open, known).await?;
    }
    link.follow(newest).await
}

struct Link<'a> {
    config: &'a ClientConfig,
    worker: &'a Worker,
    events: &'a Sink,
    books: &'a mut Books,
    memo: &'a mut Memo,
    rpc: Rpc,
    joined: Arc<Joined>,
}

impl Link<'_> {
    async fn follow(mut self, mut newest: Newest) -> Result<u64, Error> {
        let mut state = newest.next().await?;
        loop {
            if self.announce(&state) {
                self.memo.training = None;
                return Ok(state.round);
            }
            self.act(&state, &newest).await?;
            tokio::select! {
                next = newest.next() => state = next?,
                (asked, result) = finished(&mut self.memo.training) => {
                    self.memo.training = None;
                    self.conclude(asked, result).await?;
                }
            }
        }
    }

    /// Tells where the run stands; true if it is over.
    fn announce(&mut self, state: &RoundState) -> bool {
        if state.round > 0 {
            self.books.enter(state.round);
        }
        let seen = (state.round, state.selected);
        if state.round > 0 && self.memo.announced != Some(seen) {
            self.memo.announced = Some(seen);
            self.events.send(Event::Round {
                round: state.round,
                selected: state.selected,
            });
        }
        match state.phase {
            Phase::Done => self.events.send(Event::Done { round: state.round }),
            Phase::Failed => self.events.send(Event::Failed {
                message: state.message.clone(),
            }),
            _ => {}
        }
        state.phase == Phase::Done
    }

    /// Begins what the state asks for; what it does not ask for any more is given up.
    async fn act(&mut self, state: &RoundState, newest: &Newest) -> Result<(), Error> {
        if let Some(training) = self.memo.training.as_ref().filter(|training| training.is_for(state)) {
            training.asked_in(state.attempt);
            return Ok(());
        }
        if self.memo.training.take().is_some() {
            self.memo.unsettled = true;
        }
        let training = state.phase == Phase::Training;
        if !training || self.memo.spent != Some((state.round, state.attempt)) {
            self.memo.spent = None;
        }
        let train = training && state.selected && state.accepted.is_none() && self.memo.spent.is_none();
        let evaluate = state.evaluate && self.memo.evaluated != Some(state.version) && state.phase != Phase::Failed;
        if !train && !evaluate {
            return Ok(());
        }
        let prepared = tokio::select! {
            prepared = Box::pin(self.prepare(state, evaluate)) => prepared,
            () = newest.supersedes(state) => return Ok(()),
        };
        match prepared {
            Err(Error::NotNow(why)) => tracing::debug!(round = state.round, why, "the server is elsewhere, waiting"),
            Err(error) => return Err(error),
            Ok(()) if train => self.start(state),
            Ok(()) => {}
        }
        Ok(())
    }

    async fn prepare(&mut self, state: &RoundState, evaluate: bool) -> Result<(), Error> {
        if self.memo.unsettled {
            if let Some(left) = self.worker.call(|work| work.outgoing()).await? {
                self.deliver(left, None).await?;
            }
            self.memo.unsettled = false;
        }
        bring(
            &mut self.rpc,
            self.worker,
            self.events,
            &self.joined,
            (state.version, state.model),
        )
        .await?;
        if evaluate { self.evaluate(state).await } else { Ok(()) }
    }

    fn start(&mut self, state: &RoundState) {
        if self.memo.spent == Some((state.round, state.attempt)) {
            return;
        }
        let progress = Arc::new(Progress::default());
        self.events.send(Event::Training {
            round: state.round,
            progress: Arc::clone(&progress),
        });
        self.memo.training = Some(Training::start(self.worker, &self.config.gate, state, progress));
    }

    /// Sends what a training came to.
    async fn conclude(&mut self, asked: (u64, u32), result: Result<Outgoing, Error>) -> Result<(), Error> {
        match result {
            Ok(outgoing) => self.deliver(outgoing, Some(UpdateReply::Wanted { offset: 0 })).await,
            Err(Error::Learner(why)) => {
                let (round, _) = asked;
                tracing::warn!(round, why, "learner failed, leaving the round");
                self.memo.spent = Some(asked);
                let run = self.joined.run.clone();
                self.rpc.leave(&run, Departure::Round(round), why.clone()).await;
                self.events.send(Event::LeftRound { round, why });
                Ok(())
            }
            Err(Error::NotNow(_)) => {
                self.memo.unsettled = true;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn deliver(&mut self, outgoing: Outgoing, known: Option<UpdateReply>) -> Result<(), Error> {
        let (round, attempt) = (outgoing.header.id.round, outgoing.header.id.attempt);
        match deliver(&mut self.rpc, self.worker, self.events, outgoing, known).await {
            Ok(()) => self.memo.spent = Some((round, attempt)),
            Err(Error::NotNow(why)) => {
                tracing::debug!(round, why, "the update stays pending");
                self.memo.unsettled = true;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn evaluate(&mut self, state: &RoundState) -> Result<(), Error> {
        let permit = Arc::clone(&self.config.gate).acquire_owned().await.ok();
        let evaluated = self.worker.call(move |work| {
            let _permit = permit;
            work.evaluate()
        });
        match evaluated.await? {
            Ok(Some(report)) => {
                let EvaluationReport {
                    version,
                    examples,
                    loss,
                    correct,
                    ..
                } = report;
                let evaluation = Evaluation {
                    examples,
                    loss,
                    correct,
                };
                self.events.send(Event::Evaluated { version, evaluation });
                if !self.rpc.evaluate(report).await? {
                    tracing::debug!(version, "the evaluation came too late to count");
                }
            }
            Ok(None) => tracing::debug!("no held-out examples to evaluate on"),
            Err(Error::Learner(why)) => self.events.send(Event::LeftRound {
                round: state.round,
                why,
            }),
            Err(error) => return Err(error),
        }
        self.memo.evaluated = Some(state.version);
        Ok(())
    }
}

/// Round, attempt and result of the training, if there is one; otherwise never.
async fn finished(training: &mut Option<Training>) -> ((u64, u32), Result<Outgoing, Error>) {
    match training {
        Some(training) => {
            let result = training.finished().await;
            (training.asked(), result)
        }
        None => std::future::pending().await,
    }
}
