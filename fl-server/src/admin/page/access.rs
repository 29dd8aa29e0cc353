//! Who may read the page at this moment: by the token, or by an operator's certificate in its place.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::Extension;
use axum::http::HeaderMap;
use axum::middleware::AddExtension;
use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsAcceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tower::Layer;

use super::auth_guard::{AuthGuard, Entry};
use super::connection_limit::Limit;
use crate::config::live::LiveSettings;
use crate::identity::Certificates;
use crate::registry::credential::Credential;
use crate::registry::seen::Joining;
use crate::rpc::admission::{Admission, CallKind};

/// The caller's certificate, verified; an extension of the requests of its connection.
#[derive(Debug, Clone, Default)]
pub(super) struct CallerCertificate(Option<Arc<Credential>>);

/// What a request shows; an extension of it, so that a long answer can be looked at again.
#[derive(Debug, Clone)]
pub(super) struct Evidence {
    pub(super) shown: CallerCertificate,
    pub(super) headers: HeaderMap,
}

/// The rules of this moment: the token, the certificates and what is revoked may change.
#[derive(Debug, Clone)]
pub(super) struct Access {
    /// That of the start.
    pub(super) guard: AuthGuard,
    pub(super) settings: watch::Receiver<Arc<LiveSettings>>,
    pub(super) admission: Admission,
}

impl Access {
    pub(super) fn entry(&self, evidence: &Evidence) -> Entry {
        match self.operator(&evidence.shown) {
            Some(_) => Entry::Allowed,
            None => self.guard().entry(&evidence.headers),
        }
    }

    /// The operator, if the certificate is one's and is admitted.
    pub(super) fn operator<'a>(&self, CallerCertificate(shown): &'a CallerCertificate) -> Option<&'a Arc<Credential>> {
        let shown = shown.as_ref()?;
        self.admission.admit(CallKind::Page, shown).is_ok().then_some(shown)
    }

    /// The rule for requests without a certificate.
    pub(super) fn guard(&self) -> AuthGuard {
        match (&self.guard, &self.settings.borrow().token) {
            (AuthGuard::Token { .. }, Some(token)) => AuthGuard::with_token(token),
            (guard, _) => guard.clone(),
        }
    }
}

/// What the registry notes of an operator who reads the page from `address`.
pub(super) fn reading(operator: &Arc<Credential>, address: IpAddr) -> Joining {
    Joining {
        shown: Arc::clone(operator),
        address: address.to_canonical(),
        software: String::new(),
        device: String::new(),
    }
}

/// Reads the certificate of each TLS connection.
#[derive(Debug, Clone)]
pub(super) struct ReadsCertificate {
    pub(super) tls: RustlsAcceptor<Limit>,
    pub(super) certificates: watch::Receiver<Arc<Certificates>>,
}

impl<I, S> Accept<I, S> for ReadsCertificate
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Send + 'static,
{
    type Stream = <RustlsAcceptor<Limit> as Accept<I, S>>::Stream;
    type Service = AddExtension<<RustlsAcceptor<Limit> as Accept<I, S>>::Service, CallerCertificate>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, io: I, service: S) -> Self::Future {
        let accepted = self.tls.accept(io, service);
        let certificates = self.certificates.clone();
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            let chain = stream.get_ref().1.peer_certificates();
            let shown = chain.and_then(|chain| {
                let certificates = Arc::clone(&certificates.borrow());
                Credential::of(chain, &certificates.authorities).ok().map(Arc::new)
            });
            Ok((stream, Extension(CallerCertificate(shown)).layer(service)))
        })
    }
}
