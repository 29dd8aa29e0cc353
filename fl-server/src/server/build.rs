//! Builds a server in three parts: its [`Credentials`], the run that it serves ([`Core`]), and the tasks that serve it
//! ([`Tasks`]).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fl_compress::Digest;
use fl_proto::trace::Exporter;
use fl_proto::{open_files, server_builder};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use crate::accounting::connections::Connections;
use crate::accounting::sample::RowSums;
use crate::admin::page::snapshot::Sources as PageSources;
use crate::admin::socket::{Admin, Sources};
use crate::coordinator::actor::Coordinator;
use crate::coordinator::command::Command;
use crate::coordinator::fidelity::Watch;
use crate::coordinator::pace::Pace;
use crate::coordinator::presence::Present;
use crate::error::ServeError;
use crate::model::PersistenceError;
use crate::model::space::{StoredSpace, model_values};
use crate::registry::Registry;
use crate::registry::actor::{RegistryHandle, Settings};
use crate::rpc::admission::Admission;
use crate::rpc::calls::federation;
use crate::rpc::classes::Classes;
use crate::rpc::context::Service;
use crate::rpc::door::{Door, Room, Seats};
use crate::rpc::enrollment::EnrollmentPort;
use crate::rpc::health::health;
use crate::rpc::measure::HandedOut;
use crate::rpc::reload::Reloader;
use crate::rpc::shared::{SharedFrame, SharedReply};
use crate::rpc::transfers::Limits;
use crate::rpc::turns::Turns;
use crate::server::options::Serve;
use crate::server::own_certificate::OwnCertificate;
use crate::server::recover::{RecoveredRun, start};
use crate::server::task::Task;
use crate::state_machine::State;
use crate::telemetry::event::Event;
use crate::telemetry::events::Events;
use crate::telemetry::status::LiveStatus;
use crate::telemetry::trace;

/// Requests that wait for the coordinator, at most; beyond that, calls wait.
const QUEUE: usize = 256;

/// A server whose tasks run.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) service: Arc<Service>,
    pub(super) coordinator: Task<Result<Arc<State>, ServeError>>,
    pub(super) tasks: Tasks,
    /// Becomes true when the server is about to stop.
    pub(super) stopping: watch::Sender<bool>,
    /// Dropped to have the coordinator finish.
    pub(super) finish: oneshot::Sender<()>,
    pub(super) exporter: Option<Exporter>,
}

impl Server {
    /// Recovers the run of `options` and serves it on `listener`.
    pub(super) async fn build(listener: TcpListener, mut options: Serve) -> Result<Self, ServeError> {
        let listen = listener.local_addr().map_err(ServeError::Listener)?;
        let credentials = Credentials::prepare(&options).await?;
        let mut core = Core::recover(&mut options, &credentials.reloader, listen.port()).await?;
        let service = Arc::clone(&core.service);
        let tasks = Tasks::spawn(listener, listen, &mut options, &core, credentials);
        service.events.tell(Event::Ready).await;
        if let Some(text) = core.started.damage.take() {
            service.events.tell(Event::Damaged(text)).await;
        }
        let (finish, finished) = oneshot::channel();
        let coordinator = coordinator(&service, core.started, core.shown, options.first);
        Ok(Self {
            service,
            coordinator: Task::spawn(coordinator.run(core.queue, dropped(finished))),
            tasks,
            stopping: core.stopping,
            finish,
            exporter: core.exporter,
        })
    }
}

/// The certificates and settings of a server, which change while it runs.
struct Credentials {
    reloader: Arc<Reloader>,
    /// What renews the server's certificate.
    own: Option<OwnCertificate>,
    /// How long `own` waits before it looks again.
    wait: Duration,
}

impl Credentials {
    async fn prepare(options: &Serve) -> Result<Self, ServeError> {
        let settings = options.live_settings();
        let reloader = Reloader::new(options.reload.clone(), &options.authority, &options.own, settings)?;
        let reloader = Arc::new(reloader);
        let mut own = None;
        let mut wait = Duration::ZERO;
        if let Some(identity) = &options.identity {
            let certificate = OwnCertificate::new(identity, &options.enrollment, reloader.settings(), options.clock);
            certificate.settle().await;
            // Before the first connection: a server that was off may have a certificate that nobody accepts.
            wait = certificate.look(&reloader, &mut None, true).await;
            own = Some(certificate);
        }
        Ok(Self { reloader, own, wait })
    }
}

/// A recovered run, and what its calls share.
struct Core {
    service: Arc<Service>,
    started: RecoveredRun,
    shown: watch::Sender<Arc<State>>,
    queue: mpsc::Receiver<Command>,
    stopping: watch::Sender<bool>,
    exporter: Option<Exporter>,
}

impl Core {
    /// `port`: the server's.
    async fn recover(options: &mut Serve, reloader: &Reloader, port: u16) -> Result<Self, ServeError> {
        let mut started = recover(options).await?;
        let Some(initial) = started.state.versions().model(0) else {
            let why = "the run has begun, but no record names its first model";
            return Err(PersistenceError::stored("records", why).into());
        };
        let (shown, state) = watch::channel(Arc::new(std::mem::take(&mut started.state)));
        let (stopping, stop) = watch::channel(false);
        let (commands, queue) = mpsc::channel(QUEUE);
        let plan = Arc::new(options.plan.clone().with_layout(&started.layout));
        let (tracer, exporter) = trace::start(options.otlp.as_ref(), &plan, started.instance);
        let settings = Settings {
            live: reloader.settings(),
            key: options.enrollment.authority_key.clone(),
            port,
            clock: options.clock,
        };
        let registry = RegistryHandle::start(Registry::open(started.store.clone())?, settings);
        let service = Service {
            plan,
            layout: Arc::clone(&started.layout),
            aside: started.aside.clone(),
            initial,
            instance: started.instance,
            state,
            stopping: stop,
            exit_when_done: options.exit_when_done,
            commands,
            blobs: started.blobs.clone().impatient(),
            traffic: Arc::new(Connections::new()),
            edge: Arc::default(),
            events: Events {
                channel: options.events.take(),
                status: Arc::new(LiveStatus::default()),
                clock: started.clock,
            },
            clock: started.clock,
            admission: Admission {
                list: options.revoked.clone(),
                standings: registry.standings().clone(),
                certificates: reloader.certificates(),
                clock: started.clock,
            },
            classes: Classes::default(),
            registry,
            settings: reloader.settings(),
            limits: Limits::new(&started.layout, &options.tuning),
            turns: Arc::new(Turns::default()),
            handed_out: HandedOut::default(),
            shared_frame: SharedFrame::default(),
            joined_run: SharedReply::default(),
            updates: Arc::clone(&started.updates),
            tracer,
        };
        Ok(Self {
            service: Arc::new(service),
            started,
            shown,
            queue,
            stopping,
            exporter,
        })
    }
}

/// The tasks that serve a run.
#[derive(Debug)]
pub(super) struct Tasks {
    pub(super) calls: Task<Result<(), tonic::transport::Error>>,
    /// Dropped to have the running calls finished.
    pub(super) drain: oneshot::Sender<()>,
    pub(super) door: Task<()>,
    pub(super) seats: Arc<Seats>,
    pub(super) admin: Option<Task<()>>,
    pub(super) page: Option<Task<()>>,
    /// The enrollment port.
    pub(super) port: Option<Task<()>>,
    /// Reloads at SIGHUP.
    pub(super) reloads: Task<()>,
    /// Renews the server's certificate.
    pub(super) own: Option<Task<()>>,
}

impl Tasks {
    fn spawn(
        listener: TcpListener,
        listen: SocketAddr,
        options: &mut Serve,
        core: &Core,
        Credentials { reloader, own, wait }: Credentials,
    ) -> Self {
        let service = &core.service;
        let store = &core.started.store;
        // Values of the model, of which those of the layout travel.
        let parameters = model_values(StoredSpace::of(&service.plan), &service.layout, &service.aside.tensors);
        let port = options.enrollment.listen.map(|address| {
            EnrollmentPort::new(
                address,
                reloader.enrollment(),
                service.registry.clone(),
                Arc::clone(&service.edge),
                reloader.settings(),
            )
        });
        let (port, listening) = port.unzip();
        // Some file systems have no sockets; the run needs none.
        let admin = Admin::bind(&options.data).inspect_err(|error| {
            let data = options.data.display();
            tracing::warn!("no socket can be made in {data}: {error}; `fl-server status` and other commands do not reach this server");
        });
        let admin = admin.ok().map(|admin| {
            Task::spawn(admin.serve(Sources {
                service: Arc::clone(service),
                store: store.clone(),
                listen: listen.to_string(),
                parameters,
                reloader: Arc::clone(&reloader),
                listening,
            }))
        });
        let page = options.live.take().map(|page| {
            Task::spawn(page.serve(PageSources {
                service: Arc::clone(service),
                store: store.clone(),
                parameters,
            }))
        });
        let (door, seats, incoming) = Door::new(
            listener,
            (reloader.main(), reloader.certificates()),
            Arc::clone(&service.traffic),
            reloader.settings(),
            Arc::clone(&service.edge.main),
            service.events.clone(),
        );
        let room = Room::now(&reloader.settings().borrow());
        let (drain, drained) = oneshot::channel();
        let streams = u32::try_from(room.calls).unwrap_or(u32::MAX);
        let calls = server_builder(streams, options.tuning.ping_every)
            .add_service(health(Arc::clone(service)))
            .add_service(federation(Arc::clone(service)));
        let tasks = Self {
            calls: Task::spawn(calls.serve_with_incoming_shutdown(incoming, dropped(drained))),
            drain,
            door: Task::spawn(door.keep()),
            seats,
            admin,
            page,
            port: port.map(|port| Task::spawn(port.keep())),
            own: own.map(|own| Task::spawn(own.keep(Arc::clone(&reloader), wait))),
            reloads: Task::spawn(reloader.keep()),
        };
        tracing::info!(
            %listen,
            run = %service.plan.name,
            open_files = open_files(),
            connections = room.clients,
            handshakes = room.strangers,
            "serving"
        );
        tasks
    }
}

/// `first`: as of [`Serve`].
fn coordinator(
    service: &Service,
    started: RecoveredRun,
    shown: watch::Sender<Arc<State>>,
    first: usize,
) -> Coordinator {
    let state = Arc::clone(&shown.borrow());
    Coordinator {
        plan: Arc::clone(&service.plan),
        parameters: service.layout.len(),
        state,
        shown,
        store: started.run,
        blobs: started.blobs,
        model_task: started.model_task,
        traffic: Arc::clone(&service.traffic),
        events: service.events.clone(),
        clock: service.clock,
        present: Present::from(first),
        chain: started.chain,
        history: started.history,
        wake: None,
        waiting: None,
        said: BTreeMap::new(),
        tracer: service.tracer.clone(),
        booked: started.booked,
        before: started.booked.metered,
        kept: RowSums::default(),
        pace: Pace::default(),
        fidelity: Watch::new(Arc::clone(&service.layout)),
    }
}

async fn recover(options: &Serve) -> Result<RecoveredRun, ServeError> {
    let instance = options.instance.map_or_else(random_instance, Ok)?;
    let data = options.data.clone();
    let plan = options.plan.clone();
    let fault = options.fault.clone();
    let tuning = options.tuning;
    let wall = options.clock;
    tokio::task::spawn_blocking(move || start(&data, &plan, tuning, fault, instance, wall)).await?
}

fn random_instance() -> Result<Digest, ServeError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(Digest(bytes))
}

/// Completes when the other side is dropped.
async fn dropped(signal: oneshot::Receiver<()>) {
    let _ = signal.await;
}
