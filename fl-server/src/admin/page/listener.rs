//! Listens for browsers and for programs that read metrics.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use fl_proto::{Issued, TlsError, page_tls};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;

use crate::admin::page::access::ReadsCertificate;
use crate::admin::page::auth_guard::{self, AuthGuard};
use crate::admin::page::connection_limit::Limit;
use crate::admin::page::snapshot::Sources;
use crate::admin::page::{routes, snapshot};
use crate::config::server::PAGE_CONNECTIONS;
use crate::identity::Certificates;

/// The listener of the page, and who may read it.
#[derive(Debug)]
pub struct Live {
    listener: TcpListener,
    address: SocketAddr,
    gate: AuthGuard,
    /// The certificate and key of a page with TLS.
    own: Option<Issued>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LiveError {
    /// The address is in use, not this machine's, or not permitted.
    #[error("cannot listen on {address} for the admin page: {why}")]
    Address { address: SocketAddr, why: String },
    #[error("{0}")]
    Token(String),
    #[error("the admin page's certificate or key: {0}")]
    Certificate(String),
}

impl Live {
    /// Listens on `address`. If it is not a loopback address, the page uses TLS with `own` and requires `token`, of at
    /// least 32 characters.
    ///
    /// # Errors
    /// `Address` if it cannot be listened on; `Token`; `Certificate`.
    pub fn bind(address: SocketAddr, token: Option<&str>, own: &Issued) -> Result<Self, LiveError> {
        let gate = Self::check(address, token, own)?;
        let own = matches!(gate, AuthGuard::Token { .. }).then(|| own.clone());
        let failed = |error: std::io::Error| {
            let why = match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    "another process listens there; choose another with `admin` in server.toml, or \"off\"".to_owned()
                }
                _ => error.to_string(),
            };
            LiveError::Address { address, why }
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            gate,
            own,
        })
    }

    /// Checks what [`Live::bind`] needs to serve at `address`, without listening.
    pub(crate) fn check(address: SocketAddr, token: Option<&str>, own: &Issued) -> Result<AuthGuard, LiveError> {
        Ok(if address.ip().is_loopback() {
            AuthGuard::Loopback
        } else {
            let token = token.map(str::trim).filter(|token| token.len() >= auth_guard::LEAST);
            let Some(token) = token else {
                return Err(LiveError::Token(format!(
                    "{address} can be reached from other machines: that needs a token of at least {} characters",
                    auth_guard::LEAST
                )));
            };
            check_certificate(own).map_err(LiveError::Certificate)?;
            AuthGuard::with_token(token)
        })
    }

    /// The address of the page for a browser on this machine: `http://127.0.0.1:7071/`.
    pub fn url(&self) -> String {
        let scheme = if self.own.is_some() { "https" } else { "http" };
        if self.address.ip().is_unspecified() {
            return format!("{scheme}://localhost:{}/", self.address.port());
        }
        format!("{scheme}://{}/", self.address)
    }

    /// Serves the page until the server stops, then closes every connection, so that none keeps the store open.
    pub(crate) async fn serve(self, sources: Sources) {
        let url = self.url();
        let certificates = sources.service.admission.certificates.clone();
        let tls = match self.own.map(|own| operators_tls(own, certificates.clone())).transpose() {
            Ok(tls) => tls,
            Err(error) => return tracing::error!(%error, url, "the admin page is not served"),
        };
        let mut stopping = sources.service.stopping.clone();
        let app = snapshot::start(sources, self.gate);
        let service = routes::router(app).into_make_service_with_connect_info::<SocketAddr>();
        let handle = Handle::new();
        let stop = handle.clone();
        tokio::spawn(async move {
            let _ = stopping.wait_for(|stopping| *stopping).await;
            stop.graceful_shutdown(Some(CLOSE_TIMEOUT));
        });
        let limit = Limit::new(PAGE_CONNECTIONS);
        let served = match tls {
            None => match axum_server::from_tcp(self.listener) {
                Ok(server) => {
                    let mut server = server.acceptor(limit).handle(handle).http1_only();
                    impatient(server.http_builder());
                    server.serve(service).await
                }
                Err(error) => Err(error),
            },
            Some(tls) => match axum_server::from_tcp_rustls(self.listener, tls) {
                Ok(server) => {
                    let mut server = server
                        .map(|tls| {
                            let tls = tls.acceptor(limit);
                            ReadsCertificate { tls, certificates }
                        })
                        .handle(handle)
                        .http1_only();
                    impatient(server.http_builder());
                    server.serve(service).await
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = served {
            tracing::error!(%error, url, "the admin page is no longer served; the run goes on");
        }
    }
}

fn impatient(builder: &mut Builder<TokioExecutor>) {
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN);
}

/// TLS 1.3 that asks for an operator's certificate, and follows changes of the certificates. `own`: the page's own, until they
/// name another.
fn operators_tls(own: Issued, mut certificates: watch::Receiver<Arc<Certificates>>) -> Result<RustlsConfig, TlsError> {
    let tls = move |now: &Certificates| page_tls(&now.authority, now.page.as_ref().unwrap_or(&own));
    let first = tls(&certificates.borrow_and_update())?;
    let config = RustlsConfig::from_config(first);
    let changed = config.clone();
    tokio::spawn(async move {
        while certificates.changed().await.is_ok() {
            match tls(&certificates.borrow_and_update()) {
                Ok(newer) => changed.reload_from_config(newer),
                Err(error) => tracing::warn!(%error, "the admin page keeps the certificates of before"),
            }
        }
    });
    Ok(config)
}

/// Whether a certificate and its key (PEM) can be used.
fn check_certificate(own: &Issued) -> Result<(), String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(own.certificate.as_bytes()).collect();
    let chain = chain.map_err(|error| error.to_string())?;
    if chain.is_empty() {
        return Err("the certificate's file holds none".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes());
    let key = key.map_err(|error| format!("the key's file holds none ({error})"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| format!("the key is not that of the certificate, or neither can be used ({error})"))?;
    Ok(())
}

/// Timeout for the head of a request, from the first one on.
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// Timeout for responses in progress when the server stops.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
