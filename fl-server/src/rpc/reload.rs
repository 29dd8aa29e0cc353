//! Reloads the certificates and the settings of a running server: on SIGHUP, or when the command line asks.

use std::fmt;
use std::sync::{Arc, Mutex};

use fl_proto::{Issued, TlsError, enrollment_tls, server_tls};
use rustls::ServerConfig;
use tokio::sync::watch;

use crate::config::live::LiveSettings;
use crate::identity::Certificates;
use crate::lock::lock;

/// What is read again: the authorities' certificates, the server's own certificate and key, PEM, and the settings.
#[derive(Debug)]
pub struct ServerFiles {
    pub authority: String,
    pub own: Issued,
    /// The certificate and key of the admin page, if it uses TLS; `None`: those that it has.
    pub page: Option<Issued>,
    pub settings: LiveSettings,
    /// Keys of server.toml that changed since the last time and that the server takes over.
    pub changed: Vec<&'static str>,
    /// Keys that differ from those that the server was started with and that take a restart.
    pub ignored: Vec<&'static str>,
}

/// Reads the configuration again; a sentence says why it cannot be.
#[derive(Clone)]
pub struct Reload(Arc<ReadAgain>);

type ReadAgain = dyn Fn() -> Result<ServerFiles, String> + Send + Sync;

impl Reload {
    pub fn new(read: impl Fn() -> Result<ServerFiles, String> + Send + Sync + 'static) -> Self {
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
    certificates: watch::Sender<Arc<Certificates>>,
    settings: watch::Sender<Arc<LiveSettings>>,
    /// One change at a time: files that were read before a renewal must not replace what is newer.
    turn: Mutex<()>,
}

impl Reloader {
    pub(crate) fn new(
        read: Option<Reload>,
        authority: &str,
        own: &Issued,
        settings: LiveSettings,
    ) -> Result<Self, TlsError> {
        let certificates = Certificates::new(authority.to_owned(), own.clone(), None)?;
        Ok(Self {
            read,
            main: watch::Sender::new(server_tls(authority, own)?),
            enrollment: watch::Sender::new(enrollment_tls(authority, own)?),
            certificates: watch::Sender::new(Arc::new(certificates)),
            settings: watch::Sender::new(Arc::new(settings)),
            turn: Mutex::default(),
        })
    }

    pub(crate) fn main(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.main.subscribe()
    }

    pub(crate) fn enrollment(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.enrollment.subscribe()
    }

    pub(crate) fn certificates(&self) -> watch::Receiver<Arc<Certificates>> {
        self.certificates.subscribe()
    }

    pub(crate) fn settings(&self) -> watch::Receiver<Arc<LiveSettings>> {
        self.settings.subscribe()
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
        let _turn = lock(&self.turn);
        let unchanged = |why: String| format!("the settings of before stay in use: {why}");
        let files = read().map_err(unchanged)?;
        Certificates::new(files.authority, files.own, files.page)
            .and_then(|certificates| self.use_certificates(certificates))
            .map_err(|error| unchanged(error.to_string()))?;
        let before = Arc::clone(&self.settings.borrow());
        self.settings.send_replace(Arc::new(files.settings.after(&before)));
        let mut done =
            "the certificates and settings were read again; new connections and transfers use them".to_owned();
        for (about, keys) in [
            ("changed:", files.changed),
            ("restart the server to change", files.ignored),
        ] {
            if !keys.is_empty() {
                let keys: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
                done.push_str(&format!("; {about} {}", keys.join(", ")));
            }
        }
        Ok(done)
    }

    /// Replaces the server's certificate and key by what `renew` makes of them; with `page`, the admin page's too. Blocks. Open
    /// connections stay.
    ///
    /// # Errors
    /// Those of `renew`; the old ones stay then.
    pub(crate) fn renew<E: From<TlsError>>(
        &self,
        page: bool,
        renew: impl FnOnce(&Issued) -> Result<Issued, E>,
    ) -> Result<(), E> {
        let _turn = lock(&self.turn);
        let before = Arc::clone(&self.certificates.borrow());
        let own = renew(&before.own)?;
        let renewed = Certificates {
            authority: before.authority.clone(),
            page: if page { Some(own.clone()) } else { before.page.clone() },
            authorities: before.authorities.clone(),
            own,
        };
        Ok(self.use_certificates(renewed)?)
    }

    fn use_certificates(&self, certificates: Certificates) -> Result<(), TlsError> {
        let Certificates { authority, own, .. } = &certificates;
        let main = server_tls(authority, own)?;
        let enrollment = enrollment_tls(authority, own)?;
        self.main.send_replace(main);
        self.enrollment.send_replace(enrollment);
        self.certificates.send_replace(Arc::new(certificates));
        Ok(())
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
