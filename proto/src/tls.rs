//! The federation's own certificate authority, and TLS that trusts nothing else.
//!
//! Every certificate says what it is for: a client's cannot serve, the server's cannot join. The server's carries the
//! fixed name [`SERVER_NAME`], which is what clients check, so that its address may change without a new certificate.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{CONNECT_TIMEOUT, ClientId, ProtocolError};

/// Name that every server certificate carries.
const SERVER_NAME: &str = "fl-server";
/// How far a certificate's validity begins in the past, for clients whose clock is behind.
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
    /// Makes a new authority, valid for `valid` from `now` on.
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

    /// Reads an authority back.
    ///
    /// # Errors
    /// `Material` if the PEM texts are not a certificate and its key.
    pub fn from_pem(issued: &Issued) -> Result<Self, TlsError> {
        let key = KeyPair::from_pem(&issued.key)?;
        Ok(Self {
            issuer: Issuer::from_ca_cert_pem(&issued.certificate, key)?,
        })
    }

    /// A certificate for the server.
    ///
    /// # Errors
    /// `Material` if it cannot be made.
    pub fn issue_server(&self, now: OffsetDateTime, valid: Duration) -> Result<Issued, TlsError> {
        self.issue(SERVER_NAME, ExtendedKeyUsagePurpose::ServerAuth, now, valid)
    }

    /// A certificate for a client.
    ///
    /// # Errors
    /// `Material` if it cannot be made.
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

/// The server's side of mutual TLS: only clients of `authority` get in. All arguments are PEM.
pub fn server_tls(authority: &str, own: &Issued) -> ServerTlsConfig {
    ServerTlsConfig::new()
        .identity(Identity::from_pem(&own.certificate, &own.key))
        .client_ca_root(Certificate::from_pem(authority))
        .timeout(CONNECT_TIMEOUT)
}

/// The client's side of mutual TLS: only the server of `authority` is spoken to. All arguments are PEM.
pub fn client_tls(authority: &str, own: &Issued) -> ClientTlsConfig {
    ClientTlsConfig::new()
        .identity(Identity::from_pem(&own.certificate, &own.key))
        .ca_certificate(Certificate::from_pem(authority))
        .domain_name(SERVER_NAME)
        .timeout(CONNECT_TIMEOUT)
}

/// Name of the client whose verified certificate this is. `der`: one X.509 certificate.
///
/// # Errors
/// `NotACertificate`, or `Name` if its common name is missing or not a client name.
pub fn peer_name(der: &[u8]) -> Result<ClientId, TlsError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|e| TlsError::NotACertificate(e.to_string()))?;
    let name = certificate
        .subject()
        .iter_common_name()
        .next()
        .and_then(|name| name.as_str().ok());
    Ok(name.ok_or(ProtocolError::Missing("common name"))?.parse()?)
}

/// When the certificate ends.
///
/// # Errors
/// `NotACertificate`.
pub fn peer_expiry(der: &[u8]) -> Result<OffsetDateTime, TlsError> {
    let bad = |text: String| TlsError::NotACertificate(text);
    let (_, certificate) = X509Certificate::from_der(der).map_err(|e| bad(e.to_string()))?;
    OffsetDateTime::from_unix_timestamp(certificate.validity().not_after.timestamp()).map_err(|e| bad(e.to_string()))
}

/// When the certificate ends. `pem`: one certificate.
///
/// # Errors
/// `NotACertificate`.
pub fn expiry(pem: &str) -> Result<OffsetDateTime, TlsError> {
    let bad = |text: String| TlsError::NotACertificate(text);
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).map_err(|e| bad(e.to_string()))?;
    peer_expiry(&pem.contents)
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
}
