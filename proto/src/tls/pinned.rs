//! TLS of a client that knows only the fingerprint of the federation's authority.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use tokio_rustls::rustls;

use crate::fingerprint::Fingerprint;
use crate::tls::certificate::{HTTP2, TlsError};
use crate::tls::sides::{VERSIONS, provider};

/// The server belongs to another authority than the expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server does not belong to the authority {0}")]
pub struct ForeignAuthority(pub Fingerprint);

/// The client's side of TLS 1.3 without a certificate. Accepts only a server whose certificate was issued by the authority
/// with the fingerprint `authority` and that sends that authority's certificate.
///
/// # Errors
/// `Unusable` if TLS cannot be set up.
pub fn pinned_client_tls(authority: Fingerprint) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = provider();
    let verifier = PinnedVerifier {
        authority,
        provider: Arc::clone(&provider),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&VERSIONS)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![HTTP2.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Verifies as rustls does, with the authority that the server sends, if it has the expected fingerprint.
#[derive(Debug)]
struct PinnedVerifier {
    authority: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let foreign = || {
            let error = OtherError(Arc::new(ForeignAuthority(self.authority)));
            rustls::Error::from(CertificateError::Other(error))
        };
        let root = intermediates.iter().find(|der| Fingerprint::of(der) == self.authority);
        let root = root.ok_or_else(foreign)?;
        let mut roots = RootCertStore::empty();
        roots.add(root.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            .map_err(|error| match error {
                // The server may send any authority's certificate; its own must be issued by it.
                rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
                    foreign()
                }
                error => error,
            })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::time_provider::TimeProvider;
    use time::OffsetDateTime;
    use tokio::io::duplex;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::tls::authority::Authority;
    use crate::tls::certificate::{Issued, SERVER_NAME};
    use crate::tls::sides::enrollment_tls;

    const NOW: u64 = 1_800_000_000;
    const YEAR: u64 = 366 * 24 * 3600;

    /// A device's clock.
    #[derive(Debug)]
    struct Clock(u64);

    impl TimeProvider for Clock {
        fn current_time(&self) -> Option<UnixTime> {
            Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0)))
        }
    }

    fn federation() -> (Issued, Issued) {
        let now = OffsetDateTime::from_unix_timestamp(NOW as i64).unwrap();
        let valid = time::Duration::days(100);
        let (authority, root) = Authority::create("fed", now, valid).unwrap();
        (root, authority.issue_server(now, valid).unwrap())
    }

    /// The error of the handshake of a device whose clock says `clock`; `authority`: what the server sends.
    async fn handshake(pinned: &str, authority: &str, own: &Issued, clock: u64) -> Option<rustls::Error> {
        let mut client = ClientConfig::clone(&pinned_client_tls(Fingerprint::of_pem(pinned).unwrap()).unwrap());
        client.time_provider = Arc::new(Clock(clock));
        let server = TlsAcceptor::from(enrollment_tls(authority, own).unwrap());
        let (near, far) = duplex(64 * 1024);
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        let connector = TlsConnector::from(Arc::new(client));
        let (connected, _) = tokio::join!(connector.connect(name, near), server.accept(far));
        let error = connected.err()?;
        error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            .cloned()
    }

    #[tokio::test]
    async fn only_a_server_of_the_known_authority_is_accepted() {
        let ((ours, own), (other, theirs)) = (federation(), federation());
        let both = ours.certificate.clone() + &other.certificate;
        let (ours, other) = (ours.certificate.as_str(), other.certificate.as_str());
        assert_eq!(handshake(ours, ours, &own, NOW).await, None);
        assert_eq!(handshake(ours, &both, &own, NOW).await, None, "during a rotation");
        // Another federation, also if it sends our authority beside its own.
        for authority in [other, &both] {
            let error = handshake(ours, authority, &theirs, NOW).await;
            let Some(rustls::Error::InvalidCertificate(CertificateError::Other(error))) = error else {
                panic!("{error:?}")
            };
            assert!(error.0.downcast_ref::<ForeignAuthority>().is_some());
        }
    }

    #[tokio::test]
    async fn a_clock_that_is_years_off_is_told_from_a_foreign_server() {
        let (root, own) = federation();
        let root = root.certificate.as_str();
        let slow = handshake(root, root, &own, NOW - 10 * YEAR).await;
        assert!(
            matches!(
                slow,
                Some(rustls::Error::InvalidCertificate(
                    CertificateError::NotValidYetContext { .. }
                ))
            ),
            "{slow:?}"
        );
        let fast = handshake(root, root, &own, NOW + 10 * YEAR).await;
        assert!(
            matches!(
                fast,
                Some(rustls::Error::InvalidCertificate(
                    CertificateError::ExpiredContext { .. }
                ))
            ),
            "{fast:?}"
        );
    }
}
