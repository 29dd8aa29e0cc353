//! The federation's own certificate authority, and TLS that trusts nothing else.
//!
//! Every certificate states its purpose: a client's certificate cannot serve, the server's cannot join. The server's
//! certificate carries the fixed name [`SERVER_NAME`], which clients check, so that the server's address may change without a
//! new certificate. Both sides speak TLS 1.3 only, whatever versions the features of a dependency compile in.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::error::ProtocolError;
use crate::names::ClientId;

/// Name in every server certificate.
pub(crate) const SERVER_NAME: &str = "fl-server";
/// The only version of TLS.
const VERSIONS: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
/// HTTP/2 in ALPN (RFC 7301).
pub(crate) const HTTP2: &[u8] = b"h2";
/// Sessions that a server remembers, so that clients resume them when they connect again. Each takes about 1 KiB.
const SESSIONS: usize = 16_384;
/// How far in the past a certificate's validity begins, for clients whose clock is slow.
const CLOCK_SKEW: Duration = Duration::hours(24);

/// Why a certificate or key cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate or key could not be made or read.
    #[error("certificate or key: {0}")]
    Material(#[from] rcgen::Error),
    /// The bytes are not an X.509 certificate.
    #[error("not an X.509 certificate: {0}")]
    NotACertificate(String),
    /// The certificate's common name is not a client name.
    #[error("certificate subject: {0}")]
    Name(#[from] ProtocolError),
    /// A PEM text has the wrong content.
    #[error("{what}: {why}")]
    Pem {
        /// The text.
        what: &'static str,
        /// What is wrong with the text.
        why: String,
    },
    /// Certificate, key and authority do not fit together.
    #[error("certificate and key: {0}")]
    Unusable(#[from] rustls::Error),
}

/// A certificate and its key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// The certificate authority of one federation.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates a new authority, valid for `valid` from `now` on.
    ///
    /// # Errors
    /// `Material` if no key can be made.
    pub fn create(federation: &str, now: OffsetDateTime, valid: Duration) -> Result<(Self, Issued), TlsError> {
        let key = KeyPair::generate()?;
        let mut params = params(&format!("{federation} authority"), now, valid);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issued = Issued {
            certificate: params.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
        };
        Ok((
            Self {
                issuer: Issuer::new(params, key),
            },
            issued,
        ))
    }

    /// Reads an authority from PEM.
    ///
    /// # Errors
    /// `Material` if the PEM texts are not a certificate and its key.
    pub fn from_pem(issued: &Issued) -> Result<Self, TlsError> {
        let key = KeyPair::from_pem(&issued.key)?;
        Ok(Self {
            issuer: Issuer::from_ca_cert_pem(&issued.certificate, key)?,
        })
    }

    /// Issues the server's certificate.
    ///
    /// # Errors
    /// `Material` if the certificate cannot be made.
    pub fn issue_server(&self, now: OffsetDateTime, valid: Duration) -> Result<Issued, TlsError> {
        self.issue(SERVER_NAME, ExtendedKeyUsagePurpose::ServerAuth, now, valid)
    }

    /// Issues a client's certificate.
    ///
    /// # Errors
    /// `Material` if the certificate cannot be made.
    pub fn issue_client(&self, name: &ClientId, now: OffsetDateTime, valid: Duration) -> Result<Issued, TlsError> {
        self.issue(name.as_str(), ExtendedKeyUsagePurpose::ClientAuth, now, valid)
    }

    fn issue(
        &self,
        name: &str,
        usage: ExtendedKeyUsagePurpose,
        now: OffsetDateTime,
        valid: Duration,
    ) -> Result<Issued, TlsError> {
        let key = KeyPair::generate()?;
        let mut params = params(name, now, valid);
        params.subject_alt_names = vec![rcgen::SanType::DnsName(SERVER_NAME.try_into()?)];
        if usage == ExtendedKeyUsagePurpose::ClientAuth {
            params.subject_alt_names.clear();
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Issued {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

fn params(name: &str, now: OffsetDateTime, valid: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + valid;
    params
}

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

fn provider() -> Arc<CryptoProvider> {
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

/// The certificates of a PEM text, at least one.
fn certificates(pem: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|e| TlsError::pem(what, &e))?;
    if all.is_empty() {
        return Err(TlsError::pem(what, &"the text holds no certificate"));
    }
    Ok(all)
}

impl TlsError {
    pub(crate) fn not_one(why: impl std::fmt::Display) -> Self {
        Self::NotACertificate(why.to_string())
    }

    fn pem(what: &'static str, why: &dyn std::fmt::Display) -> Self {
        Self::Pem {
            what,
            why: why.to_string(),
        }
    }
}

impl Issued {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let chain = certificates(&self.certificate, "the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes());
        Ok((chain, key.map_err(|e| TlsError::pem("the key", &e))?))
    }
}

/// The name of the client in a verified certificate. `der`: one X.509 certificate.
///
/// # Errors
/// `NotACertificate`, or `Name` if the common name is missing or not a client name.
pub fn peer_name(der: &[u8]) -> Result<ClientId, TlsError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(TlsError::not_one)?;
    let name = certificate
        .subject()
        .iter_common_name()
        .next()
        .and_then(|name| name.as_str().ok());
    Ok(name.ok_or(ProtocolError::Missing("common name"))?.parse()?)
}

/// Expiry of a DER certificate.
///
/// # Errors
/// `NotACertificate`.
pub fn peer_expiry(der: &[u8]) -> Result<OffsetDateTime, TlsError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(TlsError::not_one)?;
    OffsetDateTime::from_unix_timestamp(certificate.validity().not_after.timestamp()).map_err(TlsError::not_one)
}

/// Expiry of a PEM certificate.
///
/// # Errors
/// `NotACertificate`.
pub fn expiry(pem: &str) -> Result<OffsetDateTime, TlsError> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).map_err(TlsError::not_one)?;
    peer_expiry(&pem.contents)
}

/// Whether the first certificate of one PEM text is signed by the first certificate of the other, which is an authority.
///
/// # Errors
/// `NotACertificate`.
pub fn is_issued_by(certificate: &str, authority: &str) -> Result<bool, TlsError> {
    let pem = |text: &str| x509_parser::pem::parse_x509_pem(text.as_bytes()).map(|(_, pem)| pem);
    let (own, authority) = (
        pem(certificate).map_err(TlsError::not_one)?,
        pem(authority).map_err(TlsError::not_one)?,
    );
    let own = own.parse_x509().map_err(TlsError::not_one)?;
    let authority = authority.parse_x509().map_err(TlsError::not_one)?;
    Ok(authority.is_ca() && own.verify_signature(Some(authority.public_key())).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
    }

    #[test]
    fn a_client_is_who_its_certificate_says() {
        let (authority, _) = Authority::create("fed", now(), Duration::days(10)).unwrap();
        let name: ClientId = "camera-07".parse().unwrap();
        let issued = authority.issue_client(&name, now(), Duration::days(2)).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(issued.certificate.as_bytes()).unwrap();
        assert_eq!(peer_name(&pem.contents).unwrap(), name);
        assert_eq!(expiry(&issued.certificate).unwrap(), now() + Duration::days(2));
    }

    #[test]
    fn an_authority_read_back_issues_under_the_same_name() {
        let (_, issued) = Authority::create("fed", now(), Duration::days(10)).unwrap();
        let again = Authority::from_pem(&issued).unwrap();
        let client = again
            .issue_client(&"a".parse().unwrap(), now(), Duration::days(1))
            .unwrap();
        let (_, ca) = x509_parser::pem::parse_x509_pem(issued.certificate.as_bytes()).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(client.certificate.as_bytes()).unwrap();
        let (ca, leaf) = (ca.parse_x509().unwrap(), pem.parse_x509().unwrap());
        assert_eq!(leaf.issuer(), ca.subject());
        assert!(!leaf.is_ca());
    }

    #[test]
    fn what_is_not_a_certificate_is_named_so() {
        assert!(matches!(peer_name(b"hello"), Err(TlsError::NotACertificate(_))));
        assert!(matches!(
            expiry("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            Err(TlsError::NotACertificate(_))
        ));
    }

    #[test]
    fn a_certificate_is_of_the_authority_that_signed_it_and_of_no_other_of_its_name() {
        let days = time::Duration::days(30);
        let [(ours, root), (_, other)] = [(); 2].map(|()| Authority::create("fed", now(), days).unwrap());
        let own = ours.issue_server(now(), days).unwrap();
        assert!(is_issued_by(&own.certificate, &root.certificate).unwrap());
        assert!(!is_issued_by(&own.certificate, &other.certificate).unwrap());
        assert!(
            !is_issued_by(&own.certificate, &own.certificate).unwrap(),
            "it is no authority"
        );
        assert!(is_issued_by("nothing", &root.certificate).is_err());
    }
}
