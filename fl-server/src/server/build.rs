//! Builds a server: recovers its run, connects its tasks, and starts them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fl_compress::{Digest, Layout};
use fl_proto::trace::Exporter;
use fl_proto::{open_files, server_builder};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use crate::accounting::connections::Connections;
use crate::accounting::edge::Edge;
use crate::accounting::sample::Booked;
use crate::admin::page::sources::Sources as PageSources;
use crate::admin::socket::{Admin, Sources};
use crate::clock::{Clock, Wall};
use crate::config::live::LiveSettings;
use crate::config::plan::RunPlan;
use crate::config::server::Tuning;
use crate::coordinator::actor::Coordinator;
use crate::coordinator::command::Command;
use crate::coordinator::fidelity::Watch;
use crate::coordinator::pace::Pace;
use crate::coordinator::presence::Present;
use crate::error::ServeError;
use crate::identity::Certificates;
use crate::model::PersistenceError;
use crate::model::space::{StoredSpace, model_values};
use crate::registry::Registry;
use crate::registry::actor::{RegistryHandle, Settings};
use crate::rpc::admission::Admission;
use crate::rpc::calls::federation;
use crate::rpc::classes::Classes;
use crate::rpc::context::Service;
use crate::rpc::door::{Door, Nobody, Room, Seats, TurnAway};
use crate::rpc::enrollment::{EnrollmentPort, Listening};
use crate::rpc::health::health;
use crate::rpc::measure::HandedOut;
use crate::rpc::reload::Reloader;
use crate::rpc::shared_frame::SharedFrame;
use crate::rpc::shared_reply::SharedReply;
use crate::rpc::transfers::Limits;
use crate::rpc::turns::Turns;
use crate::server::options::{Enrollment, Serve};
use crate::server::own_certificate::OwnCertificate;
use crate::server::recover::{Started, start};
use crate::server::task::Task;
use crate::state_machine::State;
use crate::storage::store::Store;
use crate::telemetry::event::Event;
use crate::telemetry::events::Events;
use crate::telemetry::status::LiveStatus;
use crate::telemetry::trace::{self, Tracer};
use crate::telemetry::turned_away::TurnedFor;

/// Requests that wait for the coordinator, at most; beyond that, calls wait.
const QUEUE: usize = 256;

/// A server whose tasks run.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) coordinator: Task<Result<Arc<State>, ServeError>>,
    pub(super) calls: Task<Result<(), tonic::transport::Error>>,
    pub(super) door: Task<()>,
    pub(super) admin: Option<Task<()>>,
    pub(super) page: Option<Task<()>>,
    /// The enrollment port.
    pub(super) port: Option<Task<()>>,
    /// Reloads at SIGHUP.
    pub(super) reloads: Task<()>,
    /// Renews the server's certificate.
    pub(super) own: Option<Task<()>>,
    /// Becomes true when the server is about to stop.
    pub(super) stopping: watch::Sender<bool>,
    /// Dropped to have the running calls finished.
    pub(super) drain: oneshot::Sender<()>,
    /// Dropped to have the coordinator finish.
    pub(super) finish: oneshot::Sender<()>,
    pub(super) state: watch::Receiver<Arc<State>>,
    pub(super) seats: Arc<Seats>,
    pub(super) traffic: Arc<Connections>,
    pub(super) exporter: Option<Exporter>,
    pub(super) settings: watch::Receiver<Arc<LiveSettings>>,
    pub(super) exit_when_done: bool,
}

impl Server {
    /// Recovers the run of `options` and serves it on `listener`.
    ///
    /// # Errors
    /// Whatever keeps the run from being served.
    pub(super) async fn build(listener: TcpListener, options: Serve) -> Result<Self, ServeError> {
        let listen = listener.local_addr().map_err(ServeError::Listener)?;
        let reloader = Reloader::new(
            options.reload.clone(),
            &options.authority,
            &options.own,
            options.live_settings(),
        )?;
        let reloader = Arc::new(reloader);
        let own = options.identity.as_ref();
        let own =
            own.map(|identity| OwnCertificate::new(identity, &options.enrollment, reloader.settings(), options.clock));
        let mut wait = Duration::ZERO;
        if let Some(own) = &own {
            own.settle().await;
            // Before the first connection: a server that was off may have a certificate that nobody accepts.
            wait = own.look(&reloader, &mut None, true).await;
        }
        let room = Room::now(&reloader.settings().borrow());
        let mut started = recover(&options).await?;
        let (shown, state) = watch::channel(Arc::new(std::mem::take(&mut started.state)));
        let (stopping, stop) = watch::channel(false);
        let (commands, queue) = mpsc::channel(QUEUE);
        let tuning = options.tuning;
        let plan = Arc::new(options.plan.clone().with_layout(&started.layout));
        let (tracer, exporter) = trace::start(options.otlp.as_ref(), &plan, started.instance);
        let shared = Shared {
            model_values: model_values(StoredSpace::of(&plan), &started.layout, &started.aside.tensors),
            plan,
            layout: Arc::clone(&started.layout),
            store: started.store.clone(),
            traffic: Arc::new(Connections::new()),
            edge: Arc::default(),
            events: Events {
                channel: options.events,
                status: Arc::new(LiveStatus::default()),
                clock: started.clock,
            },
            clock: started.clock,
            state: state.clone(),
            stopping: stop,
            exit_when_done: options.exit_when_done,
            commands,
            tracer,
            tuning,
            first: options.first,
        };
        let registry = registry(
            &started.store,
            &options.enrollment,
            reloader.settings(),
            listen,
            options.clock,
        )?;
        let port = options.enrollment.listen.map(|address| {
            let (tls, edge) = (reloader.enrollment(), Arc::clone(&shared.edge));
            EnrollmentPort::new(address, tls, registry.clone(), edge, reloader.settings())
        });
        let (port, listening) = port.unzip();
        let admission = Admission {
            list: options.revoked,
            standings: registry.standings().clone(),
            certificates: reloader.certificates(),
            clock: shared.clock,
        };
        let service = shared.service(&started, admission, registry.clone(), reloader.settings());
        let service = Arc::new(service?);
        let admission = service.admission.clone();
        let admin = shared.admin(
            &options.data,
            listen.to_string(),
            registry.clone(),
            listening,
            Arc::clone(&reloader),
        );
        let page = options.live.map(|page| {
            let sources = shared.page_sources(reloader.certificates(), reloader.settings(), admission, registry);
            Task::spawn(page.serve(sources))
        });
        let turn_away = turn_away(shared.events.clone());
        let traffic = Arc::clone(&shared.traffic);
        let (door, seats, incoming) = Door::new(
            listener,
            (reloader.main(), reloader.certificates()),
            Arc::clone(&traffic),
            reloader.settings(),
            Arc::clone(&shared.edge.main),
            turn_away,
        );
        let door = Task::spawn(door.keep());
        let port = port.map(|port| Task::spawn(port.keep()));
        let own = own.map(|own| Task::spawn(own.keep(Arc::clone(&reloader), wait)));
        let settings = reloader.settings();
        let reloads = Task::spawn(reloader.keep());
        let (drain, drained) = oneshot::channel();
        let (finish, finished) = oneshot::channel();
        let streams = u32::try_from(room.calls).unwrap_or(u32::MAX);
        let calls = server_builder(streams, shared.tuning.ping_every)
            .add_service(health(Arc::clone(&service)))
            .add_service(federation(service));
        let calls = Task::spawn(calls.serve_with_incoming_shutdown(incoming, dropped(drained)));
        tracing::info!(
            %listen,
            run = %shared.plan.name,
            open_files = open_files(),
            connections = room.clients,
            handshakes = room.strangers,
            "serving"
        );
        shared.events.tell(Event::Ready).await;
        if let Some(text) = started.damage.take() {
            shared.events.tell(Event::Damaged(text)).await;
        }
        let coordinator = shared.coordinator(started, shown);
        Ok(Self {
            coordinator: Task::spawn(coordinator.run(queue, dropped(finished))),
            calls,
            door,
            admin,
            page,
            port,
            reloads,
            own,
            stopping,
            drain,
            finish,
            state,
            seats,
            traffic,
            exporter,
            settings,
            exit_when_done: options.exit_when_done,
        })
    }
}

/// What the parts of a server share.
struct Shared {
    plan: Arc<RunPlan>,
    layout: Arc<Layout>,
    /// Values of the model, of which those of `layout` travel.
    model_values: usize,
    store: Store,
    traffic: Arc<Connections>,
    edge: Arc<Edge>,
    events: Events,
    clock: Clock,
    state: watch::Receiver<Arc<State>>,
    stopping: watch::Receiver<bool>,
    exit_when_done: bool,
    commands: mpsc::Sender<Command>,
    tracer: Tracer,
    tuning: Tuning,
    first: usize,
}

impl Shared {
    fn service(
        &self,
        started: &Started,
        admission: Admission,
        registry: RegistryHandle,
        settings: watch::Receiver<Arc<LiveSettings>>,
    ) -> Result<Service, ServeError> {
        let unknown = || PersistenceError::stored("records", "the run has begun, but no record names its first model");
        Ok(Service {
            plan: Arc::clone(&self.plan),
            layout: Arc::clone(&self.layout),
            aside: started.aside.clone(),
            initial: started.history.initial.ok_or_else(unknown)?,
            instance: started.instance,
            state: self.state.clone(),
            stopping: self.stopping.clone(),
            exit_when_done: self.exit_when_done,
            commands: self.commands.clone(),
            blobs: started.blobs.clone().impatient(),
            traffic: Arc::clone(&self.traffic),
            edge: Arc::clone(&self.edge),
            events: self.events.clone(),
            clock: self.clock,
            admission,
            classes: Classes::default(),
            registry,
            settings,
            limits: Limits::new(&self.layout, &self.tuning),
            turns: Arc::new(Turns::default()),
            handed_out: HandedOut::default(),
            shared_frame: SharedFrame::default(),
            joined_run: SharedReply::default(),
            updates: Arc::clone(&started.updates),
            tracer: self.tracer.clone(),
        })
    }

    fn coordinator(&self, started: Started, shown: watch::Sender<Arc<State>>) -> Coordinator {
        let state = Arc::clone(&shown.borrow());
        Coordinator {
            plan: Arc::clone(&self.plan),
            parameters: self.layout.len(),
            state,
            shown,
            store: started.run,
            blobs: started.blobs,
            model_task: started.model_task,
            traffic: Arc::clone(&self.traffic),
            events: self.events.clone(),
            clock: self.clock,
            present: Present::from(self.first),
            chain: started.chain,
            history: started.history,
            wake: None,
            waiting: None,
            said: BTreeMap::new(),
            tracer: self.tracer.clone(),
            booked: started.booked,
            before: started.booked.metered,
            kept: Booked::default(),
            pace: Pace::default(),
            fidelity: Watch::new(Arc::clone(&self.layout)),
        }
    }

    fn admin(
        &self,
        data: &Path,
        listen: String,
        registry: RegistryHandle,
        listening: Option<watch::Receiver<Listening>>,
        reloader: Arc<Reloader>,
    ) -> Option<Task<()>> {
        // Some file systems have no sockets; the run needs none.
        let admin = Admin::bind(data).inspect_err(|error| {
            let data = data.display();
            tracing::warn!("no socket can be made in {data}: {error}; `fl-server status` and other commands do not reach this server");
        });
        let admin = admin.ok()?;
        let sources = Sources {
            store: self.store.clone(),
            commands: self.commands.clone(),
            registry,
            listening,
            reloader,
            status: Arc::clone(&self.events.status),
            run: self.plan.name.to_string(),
            listen,
            parameters: self.model_values,
        };
        Some(Task::spawn(admin.serve(sources)))
    }

    fn page_sources(
        &self,
        certificates: watch::Receiver<Arc<Certificates>>,
        settings: watch::Receiver<Arc<LiveSettings>>,
        admission: Admission,
        registry: RegistryHandle,
    ) -> PageSources {
        PageSources {
            store: self.store.clone(),
            plan: Arc::clone(&self.plan),
            state: self.state.clone(),
            commands: self.commands.clone(),
            stopping: self.stopping.clone(),
            traffic: Arc::clone(&self.traffic),
            edge: Arc::clone(&self.edge),
            status: Arc::clone(&self.events.status),
            parameters: self.model_values,
            clock: self.clock,
            certificates,
            settings,
            admission,
            registry,
        }
    }
}

/// Recovers the run on a blocking thread.
async fn recover(options: &Serve) -> Result<Started, ServeError> {
    let instance = options.instance.map_or_else(random_instance, Ok)?;
    let (data, plan, fault) = (options.data.clone(), options.plan.clone(), options.fault.clone());
    let (tuning, wall) = (options.tuning, options.clock);
    tokio::task::spawn_blocking(move || start(&data, &plan, tuning, fault, instance, wall)).await?
}

/// Starts the task of the registry in this store.
fn registry(
    store: &Store,
    enrollment: &Enrollment,
    live: watch::Receiver<Arc<LiveSettings>>,
    listen: SocketAddr,
    clock: Wall,
) -> Result<RegistryHandle, ServeError> {
    let settings = Settings {
        live,
        key: enrollment.authority_key.clone(),
        port: listen.port(),
        clock,
    };
    Ok(RegistryHandle::start(Registry::open(store.clone())?, settings))
}

fn random_instance() -> Result<Digest, ServeError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(Digest(bytes))
}

/// Records connections that are closed before they count as a client's.
fn turn_away(events: Events) -> TurnAway {
    TurnAway::new(move |nobody, why| match nobody {
        Nobody::Uncertified(address) => events.turned_away(&address.to_string(), TurnedFor::Certificate, why),
        // All of them share one entry: their number is unbounded.
        Nobody::Stranger => events.turned_away("unknown", TurnedFor::Stranger, why),
    })
}

/// Completes when the other side is dropped.
async fn dropped(signal: oneshot::Receiver<()>) {
    let _ = signal.await;
}
