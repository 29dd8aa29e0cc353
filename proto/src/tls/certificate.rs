//! Certificates and their text forms: what they say, who issued them.

use std::fmt;

use base64::Engine as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroize as _;

use crate::error::ProtocolError;
use crate::fingerprint::Fingerprint;
use crate::names::ClientId;
use crate::tls::role::Role;

// Name in every server certificate.
pub(crate) const SERVER_NAME: &str = "fl-server";
// How far in the past a certificate's validity begins, for clients whose clock is slow.
pub(super) const CLOCK_SKEW: Duration = Duration::hours(24);
// HTTP/2 in ALPN (RFC 7301).
pub(crate) const HTTP2: &[u8] = b"h2";

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
    /// The certificate of the authority that issued another is missing: its subject.
    #[error("`{0}` issued it, and its certificate is not here")]
    Issuer(String),
    /// Certificate, key and authority do not fit together.
    #[error("certificate and key: {0}")]
    Unusable(#[from] rustls::Error),
}

/// A certificate and its key, both PEM. `Debug` leaves out the key.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// The certificates of a PEM text, at least one.
pub(super) fn certificates(pem: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|e| TlsError::pem(what, &e))?;
    if all.is_empty() {
        return Err(TlsError::pem(what, &"the text holds no certificate"));
    }
    Ok(all)
}

/// The certificates of a PEM text as DER, at least one.
///
/// # Errors
/// `Pem`.
pub fn certificates_of(pem: &str) -> Result<Vec<Vec<u8>>, TlsError> {
    let all = certificates(pem, "the certificate")?;
    Ok(all.into_iter().map(|certificate| certificate.to_vec()).collect())
}

fn parsed(der: &[u8]) -> Result<X509Certificate<'_>, TlsError> {
    let parsed = X509Certificate::from_der(der).map_err(TlsError::not_one)?;
    Ok(parsed.1)
}

/// Digest of the public key of a DER certificate, as [`crate::SigningRequest::key`] gives it.
///
/// # Errors
/// `NotACertificate`.
pub fn certificate_key(der: &[u8]) -> Result<Fingerprint, TlsError> {
    let certificate = parsed(der)?;
    Ok(Fingerprint::of(certificate.public_key().raw))
}

impl Fingerprint {
    /// The fingerprint of the first certificate of a PEM text.
    ///
    /// # Errors
    /// `NotACertificate`.
    pub fn of_pem(pem: &str) -> Result<Self, TlsError> {
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).map_err(TlsError::not_one)?;
        Ok(Self::of(&pem.contents))
    }
}

/// A DER certificate as PEM (RFC 7468).
pub fn certificate_pem(der: &[u8]) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in encoded.as_bytes().chunks(64) {
        pem.push_str(std::str::from_utf8(line).unwrap_or_default());
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Issued");
        shown.field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The key is wiped from memory.
impl Drop for Issued {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl TlsError {
    pub(crate) fn not_one(why: impl std::fmt::Display) -> Self {
        Self::NotACertificate(why.to_string())
    }

    pub(super) fn pem(what: &'static str, why: &dyn std::fmt::Display) -> Self {
        Self::Pem {
            what,
            why: why.to_string(),
        }
    }
}

impl Issued {
    pub(super) fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
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
    let certificate = parsed(der)?;
    let name = certificate
        .subject()
        .iter_common_name()
        .next()
        .and_then(|name| name.as_str().ok());
    Ok(name.ok_or(ProtocolError::Missing("common name"))?.parse()?)
}

/// The common name of a DER certificate.
///
/// # Errors
/// `NotACertificate` if there is none.
pub fn common_name(der: &[u8]) -> Result<String, TlsError> {
    let certificate = parsed(der)?;
    let name = certificate.subject().iter_common_name().next();
    let name = name.and_then(|name| name.as_str().ok());
    name.map(str::to_owned)
        .ok_or_else(|| TlsError::not_one("it has no common name"))
}

/// The role in a verified certificate; [`Role::Client`] if it names none. `der`: one X.509 certificate.
///
/// # Errors
/// `NotACertificate`, or `Name` if the role is unknown.
pub fn peer_role(der: &[u8]) -> Result<Role, TlsError> {
    let certificate = parsed(der)?;
    let mut units = certificate.subject().iter_organizational_unit();
    match units.next().map(|unit| unit.as_str()) {
        None => Ok(Role::Client),
        Some(unit) => Ok(unit.map_err(TlsError::not_one)?.parse()?),
    }
}

/// When a DER certificate was issued and when it expires. Issuing is a day after the beginning of its validity, which leaves
/// room for slow clocks.
///
/// # Errors
/// `NotACertificate`.
pub fn peer_lifetime(der: &[u8]) -> Result<(OffsetDateTime, OffsetDateTime), TlsError> {
    let certificate = parsed(der)?;
    let begin = certificate.validity().not_before.timestamp();
    let begin = OffsetDateTime::from_unix_timestamp(begin).map_err(TlsError::not_one)?;
    Ok((begin.saturating_add(CLOCK_SKEW), peer_expiry(der)?))
}

/// Expiry of a DER certificate.
///
/// # Errors
/// `NotACertificate`.
pub fn peer_expiry(der: &[u8]) -> Result<OffsetDateTime, TlsError> {
    let certificate = parsed(der)?;
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

/// The authority at the end of a chain: one that signed the first certificate of a PEM text, or signed another one of the text that
/// leads to the first. DER.
///
/// # Errors
/// `Issuer` if it is none of `authorities`; `NotACertificate`, `Pem`.
pub fn issuer_of<'a>(chain: &str, authorities: &'a [Vec<u8>]) -> Result<&'a [u8], TlsError> {
    let mut others = certificates_of(chain)?;
    let mut own = others.remove(0);
    loop {
        let last = parsed(&own)?;
        let signed = |der: &&Vec<u8>| {
            let issuer = X509Certificate::from_der(der);
            issuer.is_ok_and(|(_, by)| by.is_ca() && last.verify_signature(Some(by.public_key())).is_ok())
        };
        if let Some(found) = authorities.iter().find(signed) {
            return Ok(found);
        }
        // Each is used once, so a circle ends.
        let Some(at) = others.iter().position(|der| signed(&der)) else {
            return Err(TlsError::Issuer(last.issuer().to_string()));
        };
        own = others.swap_remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Authority;

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
    fn a_key_is_not_printed() {
        let (_, issued) = Authority::create("fed", now(), Duration::days(10)).unwrap();
        let shown = format!("{issued:?}");
        assert!(
            shown.contains("BEGIN CERTIFICATE") && !shown.contains("PRIVATE KEY"),
            "{shown}"
        );
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
    fn a_certificate_is_the_same_in_both_forms() {
        let days = Duration::days(10);
        let [(_, a), (_, b)] = [(); 2].map(|()| Authority::create("fed", now(), days).unwrap());
        let both = certificates_of(&(a.certificate.clone() + &b.certificate)).unwrap();
        assert_eq!(both.len(), 2);
        assert_eq!(certificates_of(&certificate_pem(&both[1])).unwrap(), both[1..]);
        assert_eq!(Fingerprint::of(&both[0]), Fingerprint::of_pem(&a.certificate).unwrap());
        assert!(certificates_of("").is_err());
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
        let [root, other] = [root, other].map(|one| certificates_of(&one.certificate).unwrap());
        let both = [other.clone(), root.clone()].concat();
        assert_eq!(issuer_of(&own.certificate, &both).unwrap(), root[0]);
        let missing = |authorities: &[Vec<u8>]| match issuer_of(&own.certificate, authorities) {
            Err(TlsError::Issuer(name)) => name,
            found => panic!("{found:?}"),
        };
        assert_eq!(missing(&other), "CN=fed authority");
        let itself = certificates_of(&own.certificate).unwrap();
        assert_eq!(missing(&itself), "CN=fed authority", "it is no authority");
        assert!(issuer_of("nothing", &root).is_err());
    }

    #[test]
    fn a_chain_leads_to_its_last_authority_in_any_order_and_a_missing_link_is_named() {
        use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

        let keys: Vec<KeyPair> = (0..4).map(|_| KeyPair::generate().unwrap()).collect();
        let params = |at: usize| {
            let mut params = CertificateParams::default();
            params
                .distinguished_name
                .push(DnType::CommonName, format!("authority {at}"));
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let root = params(0).self_signed(&keys[0]).unwrap().pem();
        let signed = |at: usize, by: usize| {
            let issuer = Issuer::new(params(by), &keys[by]);
            params(at).signed_by(&keys[at], &issuer).unwrap().pem()
        };
        let [one, two, leaf] = [signed(1, 0), signed(2, 1), signed(3, 2)];
        let roots = certificates_of(&root).unwrap();
        for chain in [format!("{leaf}{two}{one}"), format!("{leaf}{one}{two}{root}")] {
            assert_eq!(issuer_of(&chain, &roots).unwrap(), roots[0]);
        }
        // A circle ends.
        for chain in [
            format!("{leaf}{two}"),
            format!("{leaf}{two}{}{}", signed(1, 2), signed(2, 1)),
        ] {
            let missing = issuer_of(&chain, &roots).unwrap_err().to_string();
            assert!(missing.contains("authority "), "{missing}");
        }
        assert!(
            issuer_of(&leaf, &roots)
                .unwrap_err()
                .to_string()
                .contains("CN=authority 2")
        );
    }
}
