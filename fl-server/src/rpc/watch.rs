//! `Watch`: one client's view of the run, at each change. A client is connected while it watches.

use std::sync::Arc;
use std::time::Duration;

use fl_proto::{Phase, RoundState, RunName, wire};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};

use super::peer::{self, Peer};
use super::turns::Kind;
use crate::coordinator::command::Command;
use crate::rpc::context::{Service, stopping};
use crate::state_machine::State;
use crate::telemetry::turned_away::TurnedFor;

type Messages = mpsc::Sender<Result<wire::RoundState, Status>>;

pub(super) fn watch(
    service: Arc<Service>,
    request: Request<wire::WatchRequest>,
) -> Result<ReceiverStream<Result<wire::RoundState, Status>>, Status> {
    let peer = service.caller(&request)?;
    let run: RunName = request.into_inner().run.parse()?;
    service.check_run(&run)?;
    // At most one message waits in the channel: a client that reads slowly gets the latest view, not a backlog.
    let (messages, stream) = mpsc::channel(1);
    tokio::spawn(attend(service, peer, messages));
    Ok(ReceiverStream::new(stream))
}

/// The client counts as connected until the stream ends, for any reason.
async fn attend(service: Arc<Service>, peer: Peer, messages: Messages) {
    let Peer {
        client,
        fingerprint,
        counters,
        ..
    } = &peer;
    if service.commands.send(Command::Arrived(client.clone())).await.is_err() {
        let _ = messages.send(Err(stopping())).await;
        return;
    }
    // The older watch ends only after this one has arrived, so that the client stays connected.
    let mut turn = service.turns.take(client, Kind::Watch);
    tracing::debug!(%client, "watching");
    let view = |state: &State| state.view(&service.plan, client, service.clock.now());
    let admit = || peer::admit(&service.revoked, client, fingerprint);
    let (state, stop) = (service.state.clone(), service.stopping.clone());
    let sent = |message: &wire::RoundState| counters.answered(message);
    let told = tokio::select! {
        told = tell(state, stop, view, admit, sent, &messages) => told,
        status = turn.over() => Err(status),
    };
    if let Err(status) = told {
        if status.code() == tonic::Code::PermissionDenied {
            let events = &service.events;
            events.turned_away(client.as_str(), TurnedFor::Revoked, status.message());
        }
        let _ = messages.try_send(Err(status));
    }
    tracing::debug!(%client, "no longer watching");
    let _ = service.commands.send(Command::Left(client.clone())).await;
}

/// How often to check that a client without news is still admitted.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Sends the view of the state when it differs from the last one sent, until the run is over, the client disconnects or
/// the server stops. Calls `admit` before each message and every [`POLL_INTERVAL`]; not at each change of the state,
/// since each update changes it for each watching client. `sent` counts the messages.
///
/// # Errors
/// The error of `admit`; `UNAVAILABLE` when the server stops.
async fn tell(
    mut state: watch::Receiver<Arc<State>>,
    mut stop: watch::Receiver<bool>,
    view: impl Fn(&State) -> RoundState,
    admit: impl Fn() -> Result<(), Status>,
    sent: impl Fn(&wire::RoundState),
    messages: &Messages,
) -> Result<(), Status> {
    let mut look = tokio::time::interval(POLL_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut due): (Option<RoundState>, Option<RoundState>) = (None, None);
    let mut over = false;
    let taken_back = |state: &State| state.version() - state.depth();
    let joined = taken_back(&state.borrow());
    loop {
        // A client learns the number of rounds when it joins.
        if taken_back(&state.borrow()) != joined {
            return Err(Status::unavailable("the run was rolled back; join it again"));
        }
        // A newer view replaces one that is not read yet.
        if !over {
            let now = view(&state.borrow_and_update());
            over = matches!(now.phase, Phase::Done | Phase::Failed);
            due = Some(now).filter(|now| last.as_ref().is_none_or(|last| differs(last, now)));
        }
        tokio::select! {
            permit = messages.reserve(), if due.is_some() => {
                let Ok(permit) = permit else { return Ok(()) };
                admit()?;
                if let Some(view) = due.take() {
                    let message = view.clone().into();
                    sent(&message);
                    permit.send(Ok(message));
                    last = Some(view);
                }
                if over {
                    return Ok(());
                }
            }
            changed = state.changed(), if !over => changed.map_err(|_| stopping())?,
            _ = stop.wait_for(|stop| *stop) => return Err(stopping()),
            () = messages.closed() => return Ok(()),
            _ = look.tick() => admit()?,
        }
    }
}

/// Whether two views differ in more than the time left.
fn differs(last: &RoundState, now: &RoundState) -> bool {
    let still = |state: &RoundState| RoundState {
        left: None,
        ..state.clone()
    };
    still(last) != still(now)
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
            let text = "name = \"t\"\ntask = \"t\"\nrounds = 3\nmodel = \"m\"\n[cohort]\nmin = 3\ntarget = 3";
            let plan = RunPlan::from_toml(text, Path::new("")).unwrap();
            let mut state = State::new();
            [samples::started(), opened(1)]
                .iter()
                .for_each(|record| state.apply(record).unwrap());
            let (shown, seen) = watch::channel(Arc::new(state));
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
                tell(seen, stopping, view, admit, |_| {}, &sender).await
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
        watched.apply(&accepted("anna"));
        assert_eq!(watched.next().await.accepted, Some(Digest::of(b"anna")));
        watched.apply(&accepted("carl"));
        assert!(watched.is_silent().await);
        watched.apply(&opened(2));
        assert!(
            watched.next().await.left.is_some(),
            "another attempt has another deadline"
        );
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
        watched.apply(&accepted("anna"));
        let ended = (&mut watched.ended).await.unwrap();
        assert_eq!(ended.unwrap_err().code(), tonic::Code::PermissionDenied);
        assert!(watched.messages.recv().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_gets_the_latest() {
        let mut watched = Watched::new();
        tokio::time::sleep(Duration::from_secs(5)).await;
        watched.apply(&accepted("anna"));
        watched.apply(&samples::closing(1, 0));
        assert_eq!(watched.next().await.phase, Phase::Training);
        assert_eq!(watched.next().await.phase, Phase::Closing);
        assert!(watched.is_silent().await);
    }
}
