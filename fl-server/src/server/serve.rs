//! Serves one run: puts store, model, coordinator, calls and admin socket together, and takes them apart again.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fl_compress::Digest;
use fl_proto::trace::Collector;
use fl_proto::{Issued, open_files, server_builder, server_tls};
use fl_report::CostsPlan;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use crate::accounting::booked::Booked;
use crate::accounting::connections::Connections;
use crate::admin::live::{self, Live};
use crate::admin::socket::{Admin, Sources};
use crate::clock::{self, Wall};
use crate::config::plan::RunPlan;
use crate::config::server::Tuning;
use crate::coordinator::actor::Coordinator;
use crate::coordinator::fidelity::Watch;
use crate::coordinator::pace::Pace;
use crate::coordinator::presence::Present;
use crate::rpc::door::{Door, Nobody, Room, Seats, TurnAway};
use crate::rpc::{LargestOfStep, Limits, Service, Turns, federation};
use crate::server::recover::{Started, start};
use crate::state_machine::{EngineError, Phase, State};
use crate::storage::blobs::BlobError;
use crate::storage::disk::{DiskError, Fault};
use crate::storage::store::StoreError;
use crate::telemetry::event::Event;
use crate::telemetry::events::Events;
use crate::telemetry::status::LiveStatus;
use crate::telemetry::trace;
use crate::telemetry::turned_away::TurnedFor;

/// What to serve, and how.
#[derive(Debug)]
pub struct Serve {
    /// Folder of the store, the blobs and the admin socket; made if missing, used by one server at a time.
    pub data: PathBuf,
    /// The run.
    pub plan: RunPlan,
    /// Certificate of the federation's authority, PEM.
    pub authority: String,
    /// The server's certificate and key, PEM.
    pub own: Issued,
    /// List of clients that are not admitted; may be missing.
    pub revoked: PathBuf,
    /// Memory, disk and patience.
    pub tuning: Tuning,
    /// What tells the run from others of its name if it begins now, see `JoinReply.instance`; `None` draws it.
    pub instance: Option<Digest>,
    /// A fault to inject, for tests.
    pub fault: Option<Arc<Fault>>,
    /// Where the page of the run is served, if it is.
    pub live: Option<Live>,
    /// Where events go. Its reader must read: all but `UpdateReceiving` wait for room.
    pub events: Option<mpsc::Sender<Event>>,
    /// Whether to return once the run is over; otherwise clients that come later are still told so.
    pub exit_when_done: bool,
    /// Where traces of rounds are sent; `None` for nowhere.
    pub otlp: Option<Collector>,
    /// The time of day. It is read when serving begins; what it says later moves no deadline.
    pub clock: Wall,
    /// What bytes cost, for the page of the run; `None` for no prices.
    pub costs: Option<CostsPlan>,
}

impl Serve {
    /// The defaults, with the facts that have none. `authority` and `own` are PEM.
    pub fn new(data: PathBuf, plan: RunPlan, authority: String, own: Issued) -> Self {
        let revoked = data.join("revoked");
        let tuning = Tuning::default();
        Self {
            data,
            plan,
            authority,
            own,
            revoked,
            tuning,
            instance: None,
            fault: None,
            live: None,
            events: None,
            exit_when_done: true,
            otlp: None,
            clock: clock::system,
            costs: None,
        }
    }
}

/// How serving ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The run is over.
    Done,
    /// The run gave up; serving it again tries again.
    Failed {
        /// The round.
        round: u64,
        /// Why.
        why: String,
    },
    /// It was told to stop; serving it again continues.
    Stopped,
}

/// Where the run stands when serving has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// Newest model version.
    pub version: u64,
    /// Its digest.
    pub model: Digest,
    /// Bytes read from and written to all sockets since this start.
    pub socket: (u64, u64),
}

/// Why a run cannot be served, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A blob's.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The disk's.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The records contradict each other.
    #[error("the records of this run contradict each other: {0}")]
    Records(#[from] EngineError),
    /// The plan cannot be served from this folder, or its model cannot be used.
    #[error("{0}")]
    Plan(String),
    /// The model cannot be computed again as recorded.
    #[error("the model cannot be computed as recorded: {0}")]
    Model(String),
    /// Certificates, key or listener are not usable.
    #[error("cannot serve: {0}")]
    Transport(String),
    /// A bug in this program.
    #[error("internal failure: {0}")]
    Internal(String),
}

impl ServeError {
    #[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
    pub(crate) fn panicked(error: tokio::task::JoinError) -> Self {
        Self::Internal(error.to_string())
    }
}

/// Requests that wait for the coordinator, at most; beyond that, calls wait.
const QUEUE: usize = 256;

/// 32 random bytes.
fn draw() -> Result<Digest, ServeError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|e| ServeError::Internal(format!("the system gives no random bytes: {e}")))?;
    Ok(Digest(bytes))
}

/// Serves `options.plan` on `listener`: begins the run or continues it, until it is over or `shutdown` completes. Stops
/// gracefully: accepts no more, ends the watch streams, gives running calls some time, and books the last bytes.
///
/// # Errors
/// Whatever keeps the run from being served; clients are told to come back then, and nothing acknowledged is lost.
pub async fn serve(
    listener: TcpListener,
    options: Serve,
    shutdown: impl Future<Output = ()>,
) -> Result<Outcome, ServeError> {
    let Serve {
        data,
        plan,
        authority,
        own,
        revoked,
        tuning,
        instance,
        fault,
        live,
        events,
        exit_when_done,
        otlp,
        clock: wall,
        costs,
    } = options;
    let transport = |error: &dyn std::error::Error| ServeError::Transport(chain(error));
    let listen = listener.local_addr().map_err(|e| transport(&e))?;
    let tls = server_tls(&authority, &own).map_err(|e| transport(&e))?;
    let room = Room::new(&tuning, open_files());
    let instance = instance.map_or_else(draw, Ok)?;
    let started = {
        let (data, plan) = (data.clone(), plan.clone());
        tokio::task::spawn_blocking(move || start(&data, &plan, tuning, fault, instance, wall)).await
    };
    let Started {
        state,
        run,
        store,
        blobs,
        model_task,
        chain,
        history,
        layout,
        instance,
        damage,
        booked,
        clock,
    } = started.map_err(ServeError::panicked)??;
    let unknown = || ServeError::Internal("the run has begun, but nothing says from which model".to_owned());
    let initial = history.initial.ok_or_else(unknown)?;

    let plan = Arc::new(plan);
    let traffic = Arc::new(Connections::new());
    let state = Arc::new(state);
    let (shown, seen) = watch::channel(Arc::clone(&state));
    let (stopping, stop) = watch::channel(false);
    let (commands, queue) = mpsc::channel(QUEUE);
    let board = Arc::new(LiveStatus::default());
    let events = Events {
        channel: events,
        board: Arc::clone(&board),
        clock,
    };
    let (tracer, exporter) = trace::start(otlp.as_ref(), &plan, instance);
    let service = Service {
        plan: Arc::clone(&plan),
        layout: Arc::clone(&layout),
        initial,
        instance,
        state: seen.clone(),
        stopping: stop.clone(),
        commands: commands.clone(),
        blobs: blobs.clone().impatient(),
        traffic: Arc::clone(&traffic),
        events: events.clone(),
        clock,
        revoked,
        tuning,
        limits: Limits::new(&layout, &tuning),
        turns: Arc::new(Turns::default()),
        largest_of_step: LargestOfStep::default(),
        tracer: tracer.clone(),
    };
    let coordinator = Coordinator {
        plan: Arc::clone(&plan),
        parameters: layout.len(),
        state,
        shown,
        store: run,
        blobs,
        model_task,
        traffic: Arc::clone(&traffic),
        events: events.clone(),
        clock,
        present: Present::default(),
        chain,
        history,
        wake: None,
        waiting: None,
        tracer,
        booked,
        before: booked.metered,
        kept: Booked::default(),
        pace: Pace::default(),
        fidelity: Watch::new(Arc::clone(&layout)),
    };
    let bound = Admin::bind(&data);
    let admin = bound.map_err(|e| ServeError::Transport(format!("admin socket in {}: {e}", data.display())))?;
    let page = live.map(|page| {
        let sources = live::Sources {
            store: store.clone(),
            plan: Arc::clone(&plan),
            state: seen.clone(),
            commands: commands.clone(),
            stopping: stop.clone(),
            traffic: Arc::clone(&traffic),
            board: Arc::clone(&board),
            parameters: layout.len(),
            clock,
            own: live::expiries(&authority, &own),
            costs,
        };
        Task(tokio::spawn(page.serve(sources)))
    });
    let sources = Sources {
        store,
        commands,
        board,
        run: plan.name.to_string(),
        listen: listen.to_string(),
        parameters: layout.len(),
    };
    let admin = Task(tokio::spawn(admin.serve(sources)));

    let calls = server_builder().add_service(federation(service));
    let turned = events.clone();
    let turned_away = TurnAway::new(move |nobody, why| match nobody {
        Nobody::Uncertified(address) => turned.turned_away(&address.to_string(), TurnedFor::Certificate, why),
        // Told of as one: they are nobody's clients, and any number of them.
        Nobody::Stranger => turned.turned_away("strangers", TurnedFor::Stranger, why),
    });
    let (door, seats, incoming) = Door::new(listener, tls, Arc::clone(&traffic), &room, tuning.idle, turned_away);
    let door = Task(tokio::spawn(door.keep()));
    let (drain, drained) = oneshot::channel::<()>();
    let (finish, finished) = oneshot::channel::<()>();
    let mut calls = Task(tokio::spawn(
        calls.serve_with_incoming_shutdown(incoming, ended(drained)),
    ));
    tracing::info!(
        %listen,
        run = %plan.name,
        open_files = open_files(),
        connections = room.clients,
        handshakes = room.strangers,
        "serving"
    );
    events.tell(Event::Ready).await;
    if let Some(text) = damage {
        events.tell(Event::Damaged(text)).await;
    }
    let mut coordinator = Task(tokio::spawn(coordinator.run(queue, ended(finished))));

    let failed = tokio::select! {
        () = shutdown => None,
        () = over(seen, &seats, &tuning, exit_when_done) => None,
        state = &mut coordinator.0 => Some(state),
        done = &mut calls.0 => {
            let done = done.map_err(ServeError::panicked)?;
            return Err(done.err().map_or_else(|| ServeError::Transport("the listener ended".into()), |e| transport(&e)));
        }
    };
    stopping.send_replace(true);
    drop(drain);
    door.end().await;
    if tokio::time::timeout(tuning.stop_within, &mut calls.0).await.is_err() {
        tracing::warn!("some calls did not finish in time");
    }
    drop(calls);
    admin.end().await;
    if let Some(mut page) = page {
        // It ends by itself, soon: it has been told.
        let _ = (&mut page.0).await;
    }
    drop(finish);
    let state = match failed {
        Some(state) => state,
        None => (&mut coordinator.0).await,
    };
    let state = state.map_err(ServeError::panicked)??;
    let ending = match state.phase() {
        Phase::Done => Ending::Done,
        Phase::Failed { round, why } => Ending::Failed {
            round: *round,
            why: why.clone(),
        },
        _ => Ending::Stopped,
    };
    if let Some(exporter) = exporter {
        exporter.finish(trace::FINISH_WITHIN).await;
    }
    let socket = (traffic.total().read(), traffic.total().written());
    Ok(Outcome {
        ending,
        version: state.version(),
        model: state.model(),
        socket,
    })
}

/// A task that does not outlive its owner.
struct Task<T>(tokio::task::JoinHandle<T>);

impl<T> Task<T> {
    /// Ends the task and waits until it has let go of everything.
    async fn end(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Completes when the other side is dropped.
async fn ended(signal: oneshot::Receiver<()>) {
    let _ = signal.await;
}

/// Completes when the run is over, if that is waited for, and the clients have had time to fetch the last model and go.
async fn over(mut seen: watch::Receiver<Arc<State>>, seats: &Seats, tuning: &Tuning, exit_when_done: bool) {
    if !exit_when_done || seen.wait_for(|state| state.is_over()).await.is_err() {
        return std::future::pending().await;
    }
    let gone = async {
        while !seats.is_empty() {
            tokio::time::sleep(LOOK).await;
        }
    };
    let _ = tokio::time::timeout(tuning.stop_within, gone).await;
}

/// How often to look whether the clients are gone.
const LOOK: Duration = Duration::from_millis(10);

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
