//! What to serve and how, and how serving ended.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fl_compress::Digest;
use fl_proto::Issued;
use fl_proto::trace::Collector;
use fl_report::CostsPlan;
use tokio::sync::mpsc;

use crate::admin::page::listener::Live;
use crate::clock::{self, Wall};
use crate::config::live::{LiveSettings, OwnPaths};
use crate::config::plan::RunPlan;
use crate::config::server::Tuning;
use crate::identity::LIFETIME_DAYS;
use crate::rpc::reload::Reload;
use crate::storage::disk::Fault;
use crate::telemetry::event::Event;

#[derive(Debug)]
pub struct Serve {
    /// Folder of the store, the blobs and the admin socket. Created if missing; used by one server at a time.
    pub data: PathBuf,
    pub plan: RunPlan,
    /// Certificate of the federation's authority, PEM.
    pub authority: String,
    /// The server's certificate and key, PEM.
    pub own: Issued,
    /// Path of the list of revoked clients; the file may be missing.
    pub revoked: PathBuf,
    pub enrollment: Enrollment,
    /// Files of `own`, which the server renews; `None`: it stays as it is.
    pub identity: Option<Identity>,
    /// Reads the certificates again at SIGHUP, or when the command line asks; `None`: they stay.
    pub reload: Option<Reload>,
    pub tuning: Tuning,
    /// Identifies the run among those of its name if it begins now, see `JoinReply.instance`. `None`: random.
    pub instance: Option<Digest>,
    /// Until this number of clients is connected, none counts as connected: so the first cohort does not depend on who is
    /// fastest. For simulations; 0 for a server that does not know its clients.
    pub first: usize,
    pub fault: Option<Arc<Fault>>,
    /// The listener of the page, if there is to be a page.
    pub live: Option<Live>,
    /// Where events go. The receiver must be read: events that are not best effort wait for room in the channel.
    pub events: Option<mpsc::Sender<Event>>,
    /// Whether to return once the run is over. Otherwise the server stays up and tells clients that the run is over.
    pub exit_when_done: bool,
    /// Where traces of rounds are sent, if anywhere.
    pub otlp: Option<Collector>,
    /// The time of day. It is read when serving begins; later jumps move no deadline.
    pub clock: Wall,
    /// Prices, for the page of the run.
    pub costs: Option<CostsPlan>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrollment {
    /// Where devices enroll while a token is open; `None`: nowhere.
    pub listen: Option<SocketAddr>,
    /// Where enrolled devices reach the server: `host:port`, or `:port` for the host at which the device enrolled. Empty: the
    /// port of the listener.
    pub server: String,
    pub authority: PathBuf,
    /// File of the authority's key, which signs. May be missing: nothing is signed here then.
    pub authority_key: PathBuf,
    pub lifetime: Duration,
}

/// The files of the server's certificate and key, which the server renews at two thirds of its lifetime where the authority's key
/// is beside them.
#[derive(Debug, Clone)]
pub struct Identity {
    pub paths: OwnPaths,
    pub lifetime: Duration,
    /// For how long the wall clock must have gone as fast as the monotonic one before a running server renews by it: a clock that
    /// is wrong for seconds must not replace the certificate by one of another year.
    pub steady: Duration,
    pub fault: Option<Arc<Fault>>,
}

impl Identity {
    /// The files in `folder` with the names that `fl-server init` gives them.
    pub fn new(folder: &Path) -> Self {
        Self {
            paths: OwnPaths {
                certificate: folder.join("server.pem"),
                key: folder.join("server.key"),
                page: false,
            },
            lifetime: Duration::from_secs(u64::from(LIFETIME_DAYS) * 24 * 3600),
            steady: Duration::from_secs(180),
            fault: None,
        }
    }
}

impl Enrollment {
    /// No enrollment, with the authority's files in `folder`.
    pub fn new(folder: &Path) -> Self {
        Self {
            listen: None,
            server: String::new(),
            authority: folder.join("authority.pem"),
            authority_key: folder.join("authority.key"),
            lifetime: Duration::from_secs(30 * 24 * 3600),
        }
    }
}

impl Serve {
    /// The default options. `authority` and `own` are PEM.
    pub fn new(data: PathBuf, plan: RunPlan, authority: String, own: Issued) -> Self {
        let revoked = data.join("revoked");
        let enrollment = Enrollment::new(&data);
        Self {
            data,
            plan,
            authority,
            own,
            revoked,
            enrollment,
            identity: None,
            reload: None,
            tuning: Tuning::default(),
            instance: None,
            first: 0,
            fault: None,
            live: None,
            events: None,
            exit_when_done: true,
            otlp: None,
            clock: clock::system,
            costs: None,
        }
    }

    /// The settings that a [`Reload`] may change.
    pub fn live_settings(&self) -> LiveSettings {
        LiveSettings {
            tuning: self.tuning,
            server: self.enrollment.server.clone(),
            lifetime: self.enrollment.lifetime,
            authority: self.enrollment.authority.clone(),
            own: self.identity.as_ref().map(|identity| identity.paths.clone()),
            costs: self.costs.clone(),
            token: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Done,
    /// The run failed; serving it again tries again.
    Failed {
        round: u64,
        why: String,
    },
    Stopped,
}

/// The state of the run when serving has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub ending: Ending,
    pub version: u64,
    pub model: Digest,
    /// Bytes read from and written to all sockets since this start.
    pub socket: (u64, u64),
}
