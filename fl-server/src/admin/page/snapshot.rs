//! Builds the live snapshot once a second and shares it with all viewers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fl_report::Costs;
use tokio::sync::{Semaphore, watch};
use tokio::time::MissedTickBehavior;

use super::access::Access;
use super::auth_guard::AuthGuard;
use super::view::{Throughput, View, ViewContext};
use crate::accounting::ledger::Flow;
use crate::clock::Millis;
use crate::config::live::LiveSettings;
use crate::config::server::PAGE_STREAMS;
use crate::coordinator::command::{Attendance, Command};
use crate::lock::lock;
use crate::reporting::inspect::{self, ServedRun};
use crate::reporting::moment::{Moment, RunBytes};
use crate::rpc::context::Service;
use crate::storage::store::Store;

/// How often the live snapshot is built.
const TICK: Duration = Duration::from_secs(1);

/// The sources of the page and the metrics.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) service: Arc<Service>,
    pub(crate) store: Store,
    /// Values of the model.
    pub(crate) parameters: usize,
}

#[derive(Debug)]
pub(super) struct Dashboard {
    pub(super) sources: Sources,
    pub(super) access: Access,
    pub(super) since: Millis,
    /// The nonce of the page's scripts, for its content security policy.
    pub(super) nonce: String,
    pub(super) ticks: watch::Receiver<Tick>,
    rates: Mutex<Rates>,
    /// The last report. One report is made at a time.
    reports: Semaphore,
    last: Mutex<Option<LastReport>>,
    /// One wrong token at a time.
    pub(super) logins: Semaphore,
    /// Streams of live data that may be opened: connections are left for other requests.
    pub(super) streams: Arc<Semaphore>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Tick {
    /// `live.json`.
    pub(super) live: Arc<str>,
    pub(super) mark: Fingerprint,
}

/// Changes when the report changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) version: u64,
    /// Updates and evaluations, which change between versions.
    progress: (u64, Option<u64>),
    is_over: bool,
    /// For a finished run, whether all clients have disconnected: only then is its last round compared.
    is_left: bool,
}

/// What a report is made of.
#[derive(Debug, PartialEq)]
struct ReportInputs {
    records: u64,
    rows: u64,
    /// Bytes on the sockets.
    meter: (u64, u64),
    /// Those that are not on disk.
    unkept: Flow,
    withheld: u64,
}

#[derive(Debug)]
struct LastReport {
    inputs: ReportInputs,
    /// Of these, the prices.
    settings: Arc<LiveSettings>,
    json: Bytes,
}

#[derive(Debug, Default)]
struct Rates {
    read_at: Millis,
    socket: (u64, u64),
    per_s: (u64, u64),
}

/// Starts the refresh loop. The task ends with the state's sender.
pub(super) fn start(sources: Sources, guard: AuthGuard) -> Arc<Dashboard> {
    let (shown, ticks) = watch::channel(Tick::default());
    let mut nonce = [0; 16];
    // Without random bytes the nonce is constant: the policy is a second defense, and the page has no foreign content.
    let _ = getrandom::fill(&mut nonce);
    let app = Arc::new(Dashboard {
        since: sources.service.clock.now(),
        access: Access {
            guard,
            settings: sources.service.settings.clone(),
            admission: sources.service.admission.clone(),
        },
        sources,
        nonce: blake3::hash(&nonce).to_hex()[..32].to_owned(),
        ticks,
        rates: Mutex::default(),
        reports: Semaphore::new(1),
        last: Mutex::default(),
        logins: Semaphore::new(1),
        streams: Arc::new(Semaphore::new(PAGE_STREAMS)),
    });
    tokio::spawn(refresh_loop(Arc::downgrade(&app), shown));
    app
}

async fn refresh_loop(app: std::sync::Weak<Dashboard>, shown: watch::Sender<Tick>) {
    let mut every = tokio::time::interval(TICK);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let Some(app) = app.upgrade() else { return };
        app.measure();
        // The dashboard itself has one receiver.
        if shown.receiver_count() > 1 {
            let (view, moment) = app.view_and_moment().await;
            let live = serde_json::to_string(&view).unwrap_or_default().into();
            let mark = app.mark(moment.as_ref());
            shown.send_replace(Tick { live, mark });
        }
    }
}

impl Dashboard {
    pub(super) async fn view(&self) -> View {
        self.view_and_moment().await.0
    }

    /// The run and its ledger now; `None` if the server is stopping.
    async fn moment(&self) -> Option<Moment> {
        let service = &self.sources.service;
        service.ask(|reply| Command::Moment { reply }).await.ok()
    }

    /// The live view of the run, and the moment that it shows.
    pub(super) async fn view_and_moment(&self) -> (View, Option<Moment>) {
        let service = &self.sources.service;
        let attendance = service.ask(|reply| Command::Present { reply }).await;
        let Attendance {
            present,
            paused,
            waiting,
            ..
        } = attendance.unwrap_or_default();
        let moment = self.moment().await;
        let total = service.traffic.total();
        let meter = moment
            .as_ref()
            .map_or_else(|| (total.read(), total.written()), |moment| moment.meter);
        let throughput = {
            let rates = lock(&self.rates);
            Throughput {
                up_per_s: rates.per_s.0,
                down_per_s: rates.per_s.1,
                socket_up: meter.0,
                socket_down: meter.1,
            }
        };
        let state = moment.as_ref().map(|moment| Arc::clone(&moment.state));
        let state = state.unwrap_or_else(|| service.state());
        let known = moment.as_ref().map(|moment| moment.known.clone());
        let own = service.admission.certificates.borrow().lifetimes();
        let around = ViewContext {
            plan: &service.plan,
            now: service.clock.now(),
            wall: service.clock.wall(),
            known: known.unwrap_or_else(|| service.events.status.known()),
            moved: moment
                .as_ref()
                .map(|moment| RunBytes::of(moment, self.sources.parameters)),
            present: present.into_iter().collect(),
            paused,
            waiting,
            throughput,
            certificates: service.registry.ending().await,
            own: &own,
        };
        (View::new(&state, around), moment)
    }

    /// The report of the served run, as JSON for the page. Cached until something changes.
    pub(super) async fn report(self: &Arc<Self>) -> Result<Bytes, String> {
        let _turn = self.reports.acquire().await.map_err(|e| e.to_string())?;
        let service = &self.sources.service;
        let run = service.plan.name.to_string();
        let served = self.moment().await.map(|moment| ServedRun { run, moment });
        let inputs = served.as_ref().map(|ServedRun { moment, .. }| ReportInputs {
            records: moment.records,
            rows: moment.rows,
            meter: moment.meter,
            unkept: moment.unkept(),
            withheld: moment.withheld,
        });
        let prices = Arc::clone(&service.settings.borrow());
        if let Some(last) = lock(&self.last).as_ref()
            && Some(&last.inputs) == inputs.as_ref()
            && last.settings.costs == prices.costs
        {
            return Ok(last.json.clone());
        }
        let app = Arc::clone(self);
        let settings = Arc::clone(&prices);
        let json = tokio::task::spawn_blocking(move || {
            let report = inspect::report(
                &app.sources.store,
                Some(app.sources.service.plan.name.as_str()),
                served.as_ref(),
            );
            let mut report = report.map_err(|e| e.to_string())?;
            report.costs = settings.costs.as_ref().map(|plan| Costs::of(&report, plan));
            fl_report::page_json(&report).map_err(|e| e.to_string())
        });
        let json: Bytes = json.await.map_err(|e| e.to_string())??.into();
        *lock(&self.last) = inputs.map(|inputs| LastReport {
            inputs,
            settings: prices,
            json: json.clone(),
        });
        Ok(json)
    }

    fn mark(&self, moment: Option<&Moment>) -> Fingerprint {
        let service = &self.sources.service;
        let state = service.state();
        Fingerprint {
            is_left: state.is_over() && moment.is_some_and(|moment| moment.withheld == 0),
            version: state.version(),
            progress: service.events.status.progress(),
            is_over: state.is_over(),
        }
    }

    fn measure(&self) {
        let service = &self.sources.service;
        let now = service.clock.now();
        let total = service.traffic.total();
        let socket = (total.read(), total.written());
        let mut rates = lock(&self.rates);
        let passed = now.saturating_sub(rates.read_at).max(1);
        let per_s = |now: u64, before: u64| now.saturating_sub(before).saturating_mul(1000) / passed;
        rates.per_s = match rates.read_at {
            0 => (0, 0),
            _ => (per_s(socket.0, rates.socket.0), per_s(socket.1, rates.socket.1)),
        };
        rates.read_at = now;
        rates.socket = socket;
    }
}
