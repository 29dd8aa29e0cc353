//! An operator's certificate in place of the token.

use std::io;
use std::pin::Pin;

use axum::Extension;
use axum::middleware::AddExtension;
use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsAcceptor;
use fl_proto::{ClientId, Fingerprint, Role, peer_name, peer_role};
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Layer;

use super::connection_limit::Limit;
use crate::rpc::admission::Admission;

/// The caller's certificate, verified; an extension of the requests of its connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown(Option<(ClientId, Fingerprint)>);

impl Shown {
    /// The operator's, if the certificate is one.
    fn of(der: &[u8]) -> Self {
        let is_operator = peer_role(der).is_ok_and(|role| role == Role::Operator);
        let name = peer_name(der).ok().filter(|_| is_operator);
        Self(name.map(|name| (name, Fingerprint::of(der))))
    }

    /// Whether it is an operator's that is not revoked.
    pub(super) fn is_admitted(&self, admission: &Admission) -> bool {
        let admitted = |(name, fingerprint): &(ClientId, Fingerprint)| admission.admit(name, fingerprint).is_ok();
        self.0.as_ref().is_some_and(admitted)
    }
}

/// Reads the certificate of each TLS connection.
#[derive(Debug, Clone)]
pub(super) struct ReadsCertificate(pub(super) RustlsAcceptor<Limit>);

impl<I, S> Accept<I, S> for ReadsCertificate
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Send + 'static,
{
    type Stream = <RustlsAcceptor<Limit> as Accept<I, S>>::Stream;
    type Service = AddExtension<<RustlsAcceptor<Limit> as Accept<I, S>>::Service, Shown>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, io: I, service: S) -> Self::Future {
        let accepted = self.0.accept(io, service);
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            let chain = stream.get_ref().1.peer_certificates();
            let shown = chain
                .and_then(<[_]>::first)
                .map(|der| Shown::of(der))
                .unwrap_or_default();
            Ok((stream, Extension(shown).layer(service)))
        })
    }
}
