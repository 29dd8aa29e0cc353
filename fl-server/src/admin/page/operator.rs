//! An operator's certificate in place of the token.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::Extension;
use axum::middleware::AddExtension;
use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsAcceptor;
use fl_proto::{Fingerprint, Role, peer_expiry, peer_name, peer_role};
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Layer;

use super::connection_limit::Limit;
use crate::registry;
use crate::registry::seen::Joining;
use crate::rpc::admission::Admission;

/// The caller's certificate, verified; an extension of the requests of its connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown(Option<Arc<[u8]>>);

/// An operator who is not revoked.
#[derive(Debug)]
pub(super) struct Operator {
    shown: registry::client::Shown,
    certificate: Arc<[u8]>,
}

impl Shown {
    /// The operator, if the certificate is one's and is not revoked.
    pub(super) fn admitted(&self, admission: &Admission) -> Option<Operator> {
        let certificate = self.0.as_ref()?;
        let (client, role) = (peer_name(certificate).ok()?, peer_role(certificate).ok()?);
        let fingerprint = Fingerprint::of(certificate);
        if role != Role::Operator || admission.admit(&client, &fingerprint).is_err() {
            return None;
        }
        let expires = peer_expiry(certificate).ok()?.unix_timestamp();
        let shown = registry::client::Shown {
            client,
            fingerprint,
            role,
            expires: u64::try_from(expires).unwrap_or(0) * 1000,
            authority: None,
        };
        Some(Operator {
            shown,
            certificate: Arc::clone(certificate),
        })
    }
}

impl Operator {
    /// A reading from `address`, for the registry.
    pub(super) fn reading(self, address: IpAddr) -> Joining {
        Joining {
            shown: self.shown,
            certificate: self.certificate,
            address: address.to_canonical().to_string(),
            software: String::new(),
            device: String::new(),
        }
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
            let shown = chain.and_then(<[_]>::first).map(|der| Arc::from(der.as_ref()));
            Ok((stream, Extension(Shown(shown)).layer(service)))
        })
    }
}
