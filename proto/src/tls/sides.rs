//! Both sides of TLS 1.3, with and without a certificate of the client.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::{ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::rustls;

use crate::tls::certificate::{HTTP2, Issued, TlsError, certificates};

// The only version of TLS.
pub(super) const VERSIONS: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
// Sessions that a server remembers, so that clients resume them when they connect again. Each takes about 1 KiB.
const SESSIONS: usize = 16_384;

/// The server's side of mutual TLS 1.3, which admits only clients of `authority`. All arguments are PEM.
///
/// A client that was admitted once may resume its session (RFC 8446, section 2.2), in which no certificates travel: the server
/// remembers the certificate, and [`accept`](crate::accept) looks at its expiry again. Sessions are forgotten with the
/// returned value.
///
/// # Errors
/// `Pem` if a text holds no certificate or key, `Unusable` if they do not fit together.
pub fn server_tls(authority: &str, own: &Issued) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = own.read()?;
    let provider = provider();
    let roots = Arc::new(roots(authority)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
    // A client has one certificate, and needs no hint which to choose.
    let verifier = verifier.clear_root_hint_subjects().build();
    let verifier = verifier.map_err(|e| TlsError::pem("the authority's certificate", &e))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&VERSIONS)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![HTTP2.to_vec()];
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    // A client has one connection at a time, and gets another ticket when it comes back.
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

/// The server's side of TLS 1.3 for enrollment: the client has no certificate yet. The server sends the authority's
/// certificates with its own, so that a client which knows only an authority's fingerprint can check them
/// ([`pinned_client_tls`](super::pinned_client_tls)). Arguments are PEM.
///
/// # Errors
/// As [`server_tls`].
pub fn enrollment_tls(authority: &str, own: &Issued) -> Result<Arc<ServerConfig>, TlsError> {
    let (mut chain, key) = own.read()?;
    chain.extend(certificates(authority, "the authority's certificate")?);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&VERSIONS)?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![HTTP2.to_vec()];
    // Nobody enrolls twice.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The server's side of TLS 1.3 for a page: a caller may show a certificate of `authority`, or none. Arguments are PEM.
///
/// # Errors
/// As [`server_tls`].
pub fn page_tls(authority: &str, own: &Issued) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = own.read()?;
    let provider = provider();
    // The hints name the authority, so that a browser asks its user only for a certificate of this federation.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authority)?), Arc::clone(&provider))
        .allow_unauthenticated();
    let verifier = verifier
        .build()
        .map_err(|e| TlsError::pem("the authority's certificate", &e))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&VERSIONS)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    // Each connection shows its certificate, so that one that expired is noticed.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The client's side of mutual TLS 1.3, which accepts only the server of `authority`. All arguments are PEM. Whoever connects
/// with the same value again resumes the session, if the server remembers it.
///
/// # Errors
/// As [`server_tls`].
pub fn client_tls(authority: &str, own: &Issued) -> Result<Arc<ClientConfig>, TlsError> {
    let (chain, key) = own.read()?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&VERSIONS)?
        .with_root_certificates(roots(authority)?)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![HTTP2.to_vec()];
    Ok(Arc::new(config))
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(authority: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority, "the authority's certificate")? {
        roots
            .add(certificate)
            .map_err(|e| TlsError::pem("the authority's certificate", &e))?;
    }
    Ok(roots)
}
