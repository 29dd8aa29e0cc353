//! Reloads the certificates and the least rate of transfers of a running server: on SIGHUP, or when the command line asks.

use std::fmt;
use std::sync::Arc;

use fl_proto::{Issued, TlsError, enrollment_tls, server_tls};
use rustls::ServerConfig;
use tokio::sync::watch;

use crate::config::server::Tuning;

/// What is read again: the authorities' certificates, and the server's own certificate and key, PEM; and a sentence about each
/// change that takes a restart.
#[derive(Debug)]
pub struct Reloaded {
    pub authority: String,
    pub own: Issued,
    /// Of these, `stall` and `least_rate` are taken over.
    pub tuning: Tuning,
    /// Keys of server.toml that changed and cannot change while the server runs.
    pub ignored: Vec<&'static str>,
}

/// Reads the configuration again; a sentence says why it cannot be.
#[derive(Clone)]
pub struct Reload(Arc<ReadAgain>);

type ReadAgain = dyn Fn() -> Result<Reloaded, String> + Send + Sync;

impl Reload {
    pub fn new(read: impl Fn() -> Result<Reloaded, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reload")
    }
}

/// The server's side of TLS, which new connections take.
#[derive(Debug)]
pub(crate) struct Reloader {
    read: Option<Reload>,
    main: watch::Sender<Arc<ServerConfig>>,
    enrollment: watch::Sender<Arc<ServerConfig>>,
    authority: watch::Sender<String>,
    tuning: watch::Sender<Tuning>,
}

impl Reloader {
    /// # Errors
    /// If the certificates cannot be used.
    pub(crate) fn new(read: Option<Reload>, authority: &str, own: &Issued, tuning: Tuning) -> Result<Self, TlsError> {
        let (main, _) = watch::channel(server_tls(authority, own)?);
        let (enrollment, _) = watch::channel(enrollment_tls(authority, own)?);
        let (authority, _) = watch::channel(authority.to_owned());
        Ok(Self {
            read,
            main,
            enrollment,
            authority,
            tuning: watch::Sender::new(tuning),
        })
    }

    /// The side of the main port.
    pub(crate) fn main(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.main.subscribe()
    }

    /// The side of the enrollment port.
    pub(crate) fn enrollment(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.enrollment.subscribe()
    }

    /// The authorities' certificates, PEM.
    pub(crate) fn authority(&self) -> watch::Receiver<String> {
        self.authority.subscribe()
    }

    /// The limits of transfers.
    pub(crate) fn tuning(&self) -> watch::Receiver<Tuning> {
        self.tuning.subscribe()
    }

    /// Reads the files again. Blocks. Connections and transfers that are open stay as they are; new ones take what is new.
    /// Returns what happened, as a sentence.
    ///
    /// # Errors
    /// Why they cannot be read or used, as a sentence: the old ones stay then.
    pub(crate) fn reload(&self) -> Result<String, String> {
        let Some(Reload(read)) = &self.read else {
            return Err("this server was started without files that it could read again".to_owned());
        };
        let unchanged = |why: String| format!("the settings of before stay in use: {why}");
        let reloaded = read().map_err(unchanged)?;
        let Reloaded {
            authority,
            own,
            tuning,
            ignored,
        } = reloaded;
        let unusable = |error: TlsError| unchanged(error.to_string());
        let (main, enrollment) = (
            server_tls(&authority, &own).map_err(unusable)?,
            enrollment_tls(&authority, &own).map_err(unusable)?,
        );
        self.main.send_replace(main);
        self.enrollment.send_replace(enrollment);
        self.authority.send_replace(authority);
        self.tuning.send_modify(|before| {
            (before.stall, before.least_rate) = (tuning.stall, tuning.least_rate);
        });
        let mut done =
            "the certificates, `stall` and `least_rate` were read again; new connections and transfers use them"
                .to_owned();
        if !ignored.is_empty() {
            done.push_str("; restart the server to change ");
            done.push_str(
                &ignored
                    .iter()
                    .map(|key| format!("`{key}`"))
                    .collect::<Vec<_>>()
                    .join(", "),
            );
        }
        Ok(done)
    }

    /// Reloads at each SIGHUP, until the future is dropped.
    pub(crate) async fn keep(self: Arc<Self>) {
        #[cfg(unix)]
        if let Ok(mut hang_up) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()) {
            while hang_up.recv().await.is_some() {
                let reloader = Arc::clone(&self);
                match tokio::task::spawn_blocking(move || reloader.reload()).await {
                    Ok(Ok(done)) => tracing::info!("{done}"),
                    Ok(Err(why)) => tracing::error!("not reloaded: {why}"),
                    Err(error) => tracing::error!(%error, "not reloaded"),
                }
            }
        }
        std::future::pending().await
    }
}
