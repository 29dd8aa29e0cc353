//! `Watch`: one client's view of the run, at each change, and the answers to its small updates. A client is connected while it
//! watches.

use std::sync::Arc;
use std::time::Duration;

use fl_proto::{Availability, Phase, ProtocolError, Role, RoundState, RunName, wire};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::context::Peer;
use super::push::{Step, Steps};
use super::submit;
use crate::coordinator::command::Command;
use crate::rpc::admission::CallKind;
use crate::rpc::context::{Service, stopping};
use crate::state_machine::State;
use crate::telemetry::turned_away::TurnedFor;

type Messages = mpsc::Sender<Result<wire::RoundState, Status>>;
type Requests = Streaming<wire::WatchRequest>;

pub(super) async fn watch(
    service: Arc<Service>,
    peer: Peer,
    mut requests: Requests,
) -> Result<ReceiverStream<Result<wire::RoundState, Status>>, Status> {
    let first = requests.message().await?.ok_or(ProtocolError::Missing("run"))?;
    peer.counters.asked(&first);
    let run: RunName = first.run.parse()?;
    service.check_run(&run)?;
    // At most one message waits in the channel: a client that reads slowly gets the latest view, not a backlog.
    let (messages, stream) = mpsc::channel(1);
    let availability = reported(first.availability)?.unwrap_or_default();
    tokio::spawn(attend(service, peer, availability, requests, messages));
    Ok(ReceiverStream::new(stream))
}

/// The client counts as connected until the stream ends, for any reason. `requests`: what the client sends later.
async fn attend(service: Arc<Service>, peer: Peer, availability: Availability, requests: Requests, messages: Messages) {
    let Peer { client, counters, .. } = &peer;
    let role = peer.credential.role;
    let arrived = Command::Arrived(client.clone(), role, availability);
    if service.commands.send(arrived).await.is_err() {
        let _ = messages.send(Err(stopping())).await;
        return;
    }
    // The older watch ends only after this one has arrived, so that the client stays connected.
    let mut turn = service.turn(CallKind::Watch, &peer);
    tracing::debug!(%client, "watching");
    let view = |state: &State| match role {
        Role::Evaluator => state.view_of_evaluator(&service.plan, client, service.clock.now()),
        _ => state.view(&service.plan, client, service.clock.now()),
    };
    let admit = || {
        service.admit(CallKind::Watch, &peer)?;
        service.classes.check(client)
    };
    let followed = RunSignals {
        state: service.state.clone(),
        stop: service.stopping.clone(),
        ends: service.exit_when_done,
    };
    let steps = Steps::new(&service, &peer);
    let (watching, over) = oneshot::channel();
    tokio::spawn(answer(service.clone(), peer.clone(), requests, messages.clone(), over));
    let sent = |message: &wire::RoundState| {
        counters.told(message);
        if service.plan.measures_uploads() {
            service.handed_out.told(client, message);
        }
    };
    let told = tokio::select! {
        told = tell(followed, view, Some(steps), admit, sent, &messages) => told,
        status = turn.over() => Err(status),
    };
    let mut ended = Command::Left(client.clone());
    let told = told.inspect_err(|status| {
        if status.code() == Code::FailedPrecondition {
            ended = Command::Refused(client.clone());
            let why = status.message();
            service.events.turned_away(client.as_str(), TurnedFor::Learner, why);
        }
    });
    drop(watching);
    tracing::debug!(%client, "no longer watching");
    // Before the client knows: its next call finds that it has left.
    let _ = service.commands.send(ended).await;
    if let Err(status) = told {
        let _ = messages.try_send(Err(status));
    }
}

fn reported(availability: Option<wire::Availability>) -> Result<Option<Availability>, ProtocolError> {
    availability.map(Availability::try_from).transpose()
}

/// Least time between two reports of a client that are passed on: a client whose conditions change faster slows itself down.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Answers the updates that come on the stream, one after another, and passes on whether the client is available, until the
/// client's side ends or the watch is `over`. An update that was begun is answered first.
async fn answer(
    service: Arc<Service>,
    peer: Peer,
    mut requests: Requests,
    messages: Messages,
    mut over: oneshot::Receiver<()>,
) {
    let mut reports_from = Instant::now();
    loop {
        let request = tokio::select! {
            biased;
            _ = &mut over => return,
            request = requests.message() => request,
        };
        // The watch ends by itself when the connection breaks.
        let Ok(Some(request)) = request else {
            return;
        };
        if request.update.is_none()
            && let Ok(Some(availability)) = reported(request.availability.clone())
        {
            peer.counters.asked(&request);
            tokio::time::sleep_until(reports_from).await;
            reports_from = Instant::now() + REPORT_INTERVAL;
            let available = Command::Available(peer.client.clone(), availability);
            if service.commands.send(available).await.is_err() {
                return;
            }
            continue;
        }
        peer.call.turn().await;
        let wire::WatchRequest { update, frame, .. } = request;
        let reply = match update {
            Some(header) => submit::whole(service.clone(), peer.clone(), header, frame).await,
            None => Err(ProtocolError::Missing("update").into()),
        };
        let reply = reply.map_or_else(
            |status| {
                tracing::debug!(client = %peer.client, %status, "an update on the watch stream has no answer");
                wire::UpdateReply::default()
            },
            wire::UpdateReply::from,
        );
        let message = wire::RoundState {
            reply: Some(reply),
            ..wire::RoundState::default()
        };
        peer.counters.answered(&message);
        if messages.send(Ok(message)).await.is_err() {
            return;
        }
    }
}

/// How often to check that a client without news is still admitted.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

struct RunSignals {
    state: watch::Receiver<Arc<State>>,
    /// True when the server is about to stop.
    stop: watch::Receiver<bool>,
    /// Whether the server ends with the run. Otherwise a watch outlasts the run: a client that waits for the next one pays for
    /// pings alone, and hears at once that the server stops.
    ends: bool,
}

/// Sends the view of the state when it has news for the client, until the client disconnects, the server stops, or the run is over
/// that the server ends with. Calls `admit` before each message and every [`POLL_INTERVAL`]. Wakes at changes that may be news to a
/// client, not at each update of another: a round would wake every client once for every client. `steps` are the model
/// updates that travel with views; `sent` counts the messages.
///
/// # Errors
/// The error of `admit`; `UNAVAILABLE` when the server stops.
async fn tell(
    followed: RunSignals,
    view: impl Fn(&State) -> RoundState,
    steps: Option<Steps<'_>>,
    admit: impl Fn() -> Result<(), Status>,
    sent: impl Fn(&wire::RoundState),
    messages: &Messages,
) -> Result<(), Status> {
    let RunSignals {
        mut state,
        mut stop,
        ends,
    } = followed;
    let mut look = tokio::time::interval(POLL_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<RoundState> = None;
    let news = |now: &RoundState, last: &Option<RoundState>| last.as_ref().is_none_or(|last| is_news(last, now));
    let taken_back = |state: &State| state.version() - state.depth();
    let joined = taken_back(&state.borrow());
    loop {
        // A client learns the number of rounds when it joins.
        if taken_back(&state.borrow()) != joined {
            return Err(Status::unavailable("the run was rolled back; join it again"));
        }
        // A newer view replaces one that is not read yet.
        let now = view(&state.borrow_and_update());
        let due = news(&now, &last);
        if ends && !due && matches!(now.phase, Phase::Done | Phase::Failed) {
            return Ok(());
        }
        let permit = tokio::select! {
            permit = messages.reserve(), if due => match permit {
                Ok(permit) => permit,
                Err(_) => return Ok(()),
            },
            changed = state.changed() => {
                changed.map_err(|_| stopping())?;
                continue;
            }
            _ = stop.wait_for(|stop| *stop) => return Err(stopping()),
            () = messages.closed() => return Ok(()),
            _ = look.tick() => {
                admit()?;
                continue;
            }
        };
        admit()?;
        // Not every change wakes this task, and the client may have read slowly: it gets the latest.
        let shown = Arc::clone(&state.borrow());
        let view = view(&shown);
        if taken_back(&shown) != joined {
            continue;
        }
        if news(&view, &last) {
            let step = match &steps {
                Some(steps) => steps.with(&view).await,
                None => None,
            };
            let message = RoundState {
                step: step.as_ref().map(Step::bytes).unwrap_or_default(),
                ..view.clone()
            }
            .into();
            sent(&message);
            permit.send(Ok(message));
            if let Some(step) = step {
                step.sent();
            }
            last = Some(view);
        }
    }
}

/// Whether a client that was `told` one view needs the view `now`. The time left is no news; nor is what the client knows
/// from the answers to its own calls, that its update is accepted or its evaluation counted; nor that a round closes in which
/// it has nothing more to do.
pub(crate) fn is_news(told: &RoundState, now: &RoundState) -> bool {
    let idle = now.accepted.is_some() || !now.selected;
    let closes = (told.phase, now.phase) == (Phase::Training, Phase::Closing) && told.round == now.round;
    let known = RoundState {
        phase: if closes && idle { told.phase } else { now.phase },
        accepted: told.accepted.and(now.accepted),
        evaluate: now.evaluate || (told.evaluate && told.version == now.version),
        left: told.left,
        ..now.clone()
    };
    known != *told
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    use fl_compress::Digest;
    use fl_proto::ClientId;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::config::plan::RunPlan;
    use crate::storage::record::{Accepted, Record, samples};

    fn client(name: &str) -> ClientId {
        name.parse().unwrap()
    }

    fn accepted(name: &str) -> Record {
        let update = Accepted::sample(Digest::of(name.as_bytes()));
        Record::UpdateAccepted {
            round: 1,
            client: client(name),
            update,
        }
    }

    fn opened(attempt: u32) -> Record {
        samples::opened(1, attempt, &["anna", "berta", "carl"], 0, 1_000)
    }

    /// The views that anna gets while she watches round 1, and the status that ends the stream.
    struct Watched {
        shown: watch::Sender<Arc<State>>,
        revoked: Arc<AtomicBool>,
        messages: mpsc::Receiver<Result<wire::RoundState, Status>>,
        ended: JoinHandle<Result<(), Status>>,
        _stop: watch::Sender<bool>,
    }

    impl Watched {
        fn new() -> Self {
            let mut state = State::new();
            [samples::started(), opened(1)]
                .iter()
                .for_each(|record| state.apply(record).unwrap());
            Self::of(&state, false)
        }

        fn of(state: &State, ends: bool) -> Self {
            let text = "name = \"t\"\ntask = \"t\"\nrounds = 3\nmodel = \"m\"\n[cohort]\nmin = 3\ntarget = 3";
            let plan = RunPlan::from_toml(text, Path::new("")).unwrap();
            let (shown, seen) = watch::channel(Arc::new(state.clone()));
            let (stop, stopping) = watch::channel(false);
            let (sender, messages) = mpsc::channel(1);
            let revoked = Arc::new(AtomicBool::new(false));
            let denied = Arc::clone(&revoked);
            let ended = tokio::spawn(async move {
                let view = |state: &State| state.view(&plan, &client("anna"), 5);
                let admit = || match denied.load(Ordering::Relaxed) {
                    true => Err(Status::permission_denied("revoked")),
                    false => Ok(()),
                };
                let followed = RunSignals {
                    state: seen,
                    stop: stopping,
                    ends,
                };
                tell(followed, view, None, admit, |_| {}, &sender).await
            });
            Self {
                shown,
                revoked,
                messages,
                ended,
                _stop: stop,
            }
        }

        fn apply(&self, record: &Record) {
            self.shown
                .send_modify(|state| Arc::make_mut(state).apply(record).unwrap());
        }

        async fn next(&mut self) -> RoundState {
            RoundState::try_from(self.messages.recv().await.unwrap().unwrap()).unwrap()
        }

        async fn is_silent(&mut self) -> bool {
            tokio::time::timeout(Duration::from_secs(60), self.messages.recv())
                .await
                .is_err()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_do_is_not_told() {
        let mut watched = Watched::new();
        assert!(watched.next().await.selected && watched.is_silent().await);
        watched.apply(&accepted("berta"));
        assert!(watched.is_silent().await);
        watched.apply(&opened(2));
        assert!(
            watched.next().await.left.is_some(),
            "another attempt has another deadline"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_client_knows_from_its_own_calls_is_not_told_unless_it_watches_anew() {
        let mut watched = Watched::new();
        watched.next().await;
        watched.apply(&accepted("anna"));
        watched.apply(&samples::closing(1, 0));
        assert!(watched.is_silent().await);
        let state = watched.shown.borrow().clone();
        let view = Watched::of(&state, false).next().await;
        assert_eq!((view.accepted, view.phase), (Some(Digest::of(b"anna")), Phase::Closing));
    }

    #[test]
    fn what_wakes_no_watch_is_news_to_nobody() {
        let text = "name = \"t\"\ntask = \"t\"\nrounds = 3\nmodel = \"m\"\n[cohort]\nmin = 3\ntarget = 3";
        let plan = RunPlan::from_toml(text, Path::new("")).unwrap();
        let mut state = State::new();
        let round = [accepted("berta"), samples::closing(1, 0), samples::closed(1, 0)];
        let opened = [samples::started(), opened(1)].into_iter().chain(round);
        let next = samples::opened(2, 1, &["anna", "berta", "carl"], 0, 1_000);
        opened.chain([next]).for_each(|record| state.apply(&record).unwrap());
        let evaluated = samples::evaluated(1, &client("anna"));
        let update = Accepted::sample(Digest::of(b"anna"));
        let (round, client) = (2, client("anna"));
        let counted = Record::UpdateAccepted { round, client, update };
        for record in [evaluated, counted] {
            assert!(!record.is_told());
            let before = state.clone();
            state.apply(&record).unwrap();
            for name in ["anna", "berta", "carl", "dora"] {
                let view = |state: &State| state.view(&plan, &name.parse().unwrap(), 5);
                assert!(!is_news(&view(&before), &view(&state)), "{name}: {record:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_still_trains_is_told_that_the_round_closes() {
        let mut watched = Watched::new();
        watched.next().await;
        watched.apply(&accepted("berta"));
        watched.apply(&samples::closing(1, 0));
        assert_eq!(watched.next().await.phase, Phase::Closing);
    }

    #[tokio::test(start_paused = true)]
    async fn revocation_ends_a_watch_in_which_nothing_happens() {
        for read in [true, false] {
            let mut watched = Watched::new();
            if read {
                watched.next().await;
            }
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            assert!(!watched.ended.is_finished());
            watched.revoked.store(true, Ordering::Relaxed);
            let ended = tokio::time::timeout(2 * POLL_INTERVAL, watched.ended).await.unwrap();
            assert_eq!(ended.unwrap().unwrap_err().code(), tonic::Code::PermissionDenied);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_told_to_a_client_after_its_revocation() {
        let mut watched = Watched::new();
        watched.next().await;
        watched.revoked.store(true, Ordering::Relaxed);
        watched.apply(&opened(2));
        let ended = (&mut watched.ended).await.unwrap();
        assert_eq!(ended.unwrap_err().code(), tonic::Code::PermissionDenied);
        assert!(watched.messages.recv().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_gets_the_latest() {
        let mut watched = Watched::new();
        tokio::time::sleep(Duration::from_secs(5)).await;
        watched.apply(&accepted("berta"));
        watched.apply(&samples::closing(1, 0));
        assert_eq!(watched.next().await.phase, Phase::Training);
        assert_eq!(watched.next().await.phase, Phase::Closing);
        assert!(watched.is_silent().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_outlasts_the_run_unless_the_server_ends_with_it() {
        let mut state = State::new();
        let why = "nobody came".to_owned();
        [
            samples::started(),
            opened(1),
            Record::RunFailed { round: 1, why, at: 5 },
        ]
        .iter()
        .for_each(|record| state.apply(record).unwrap());
        for ends in [false, true] {
            let mut watched = Watched::of(&state, ends);
            assert_eq!(watched.next().await.phase, Phase::Failed);
            assert_eq!(watched.is_silent().await, !ends);
            assert_eq!(watched.ended.is_finished(), ends);
        }
    }
}
