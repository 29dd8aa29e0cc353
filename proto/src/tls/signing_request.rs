//! Signing requests (PKCS #10, RFC 2986): a device makes its key, and the authority signs the public part.

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SubjectPublicKeyInfo};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::ParsedExtension;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer;
use zeroize::Zeroize as _;

use crate::fingerprint::Fingerprint;
use crate::names::ClientId;
use crate::tls::certificate::{Issued, TlsError, certificate_key, certificates_of};

// Longest request that is read, in bytes: one with a P-256 key has about 200.
const MAX_REQUEST: usize = 4096;

/// A key that was made on this device.
#[derive(Debug)]
pub struct NewKey(KeyPair);

/// The encoded key is wiped from memory.
impl Drop for NewKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl NewKey {
    /// Makes a key: ECDSA on the curve P-256.
    ///
    /// # Errors
    /// `Material` if the system has no random bytes.
    pub fn generate() -> Result<Self, TlsError> {
        Ok(Self(KeyPair::generate()?))
    }

    /// Reads a key as [`NewKey::to_pem`] writes it.
    ///
    /// # Errors
    /// `Material` if the text is not such a key.
    pub fn from_pem(pem: &str) -> Result<Self, TlsError> {
        Ok(Self(KeyPair::from_pem(pem)?))
    }

    /// The private key as PEM (PKCS #8).
    pub fn to_pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// A signing request, DER. `name`: the subject's common name, for a person who reads the request; the signer chooses the
    /// name in the certificate.
    ///
    /// # Errors
    /// `Material` if the request cannot be made.
    pub fn request(&self, name: Option<&ClientId>) -> Result<Vec<u8>, TlsError> {
        Ok(self.params(name).serialize_request(&self.0)?.der().to_vec())
    }

    /// As [`NewKey::request`], PEM.
    ///
    /// # Errors
    /// As [`NewKey::request`].
    pub fn request_pem(&self, name: Option<&ClientId>) -> Result<String, TlsError> {
        Ok(self.params(name).serialize_request(&self.0)?.pem()?)
    }

    fn params(&self, name: Option<&ClientId>) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(name) = name {
            params.distinguished_name.push(DnType::CommonName, name.as_str());
        }
        params
    }

    /// The digest of the public key, as [`SigningRequest::key`] gives it.
    pub fn key(&self) -> Fingerprint {
        Fingerprint::of(&rcgen::PublicKeyData::subject_public_key_info(&self.0))
    }
}

/// A signing request that was checked: the sender holds the private key, and the key is of a kind that certificates of this
/// platform have.
#[derive(Debug)]
pub struct SigningRequest {
    public_key: SubjectPublicKeyInfo,
    key: Fingerprint,
    name: Option<String>,
}

/// Why a signing request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// More bytes than a request has.
    #[error("the signing request has {0} bytes, more than the {MAX_REQUEST} it can have")]
    TooLong(usize),
    /// Not PKCS #10.
    #[error("not a signing request (PKCS #10): {0}; make it with `fl-client request`")]
    Malformed(String),
    /// The sender does not hold the private key.
    #[error("the signing request is not signed by its own key")]
    Signature,
    /// A key of another kind.
    #[error(
        "the signing request has a key of kind {0}; make one with `fl-client request`, or use ECDSA P-256 or P-384, or Ed25519"
    )]
    Key(String),
    /// The sender wants to sign certificates itself.
    #[error("the signing request asks for an authority's certificate (CA), which no client gets")]
    Authority,
}

impl SigningRequest {
    /// Reads and checks a request. `der`: one PKCS #10 request.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn from_der(der: &[u8]) -> Result<Self, RequestError> {
        if der.len() > MAX_REQUEST {
            return Err(RequestError::TooLong(der.len()));
        }
        let (rest, request) =
            X509CertificationRequest::from_der(der).map_err(|why| RequestError::Malformed(why.to_string()))?;
        if !rest.is_empty() {
            return Err(RequestError::Malformed("bytes follow it".to_owned()));
        }
        let info = &request.certification_request_info;
        let public_key = SubjectPublicKeyInfo::from_der(info.subject_pki.raw)
            .ok()
            .filter(|key| is_allowed(rcgen::PublicKeyData::algorithm(key)));
        let public_key = public_key.ok_or_else(|| RequestError::Key(kind(&info.subject_pki.algorithm.algorithm)))?;
        request.verify_signature().map_err(|_| RequestError::Signature)?;
        let is_authority =
            |extension: &ParsedExtension<'_>| matches!(extension, ParsedExtension::BasicConstraints(bc) if bc.ca);
        if request
            .requested_extensions()
            .is_some_and(|mut extensions| extensions.any(is_authority))
        {
            return Err(RequestError::Authority);
        }
        let name = info
            .subject
            .iter_common_name()
            .next()
            .and_then(|name| name.as_str().ok());
        Ok(Self {
            key: Fingerprint::of(info.subject_pki.raw),
            public_key,
            name: name.map(str::to_owned),
        })
    }

    /// As [`SigningRequest::from_der`], for PEM.
    ///
    /// # Errors
    /// As [`SigningRequest::from_der`].
    pub fn from_pem(pem: &str) -> Result<Self, RequestError> {
        // The bytes of PEM are at most 4/3 of DER's, with line ends and the lines around them.
        if pem.len() > 2 * MAX_REQUEST {
            return Err(RequestError::TooLong(pem.len()));
        }
        let (_, pem) = parse_x509_pem(pem.as_bytes()).map_err(|why| RequestError::Malformed(why.to_string()))?;
        Self::from_der(&pem.contents)
    }

    /// Digest of the public key (SHA-256 of its SubjectPublicKeyInfo, RFC 5280).
    pub fn key(&self) -> Fingerprint {
        self.key
    }

    /// The common name in the request's subject, as the sender wrote it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(super) fn public_key(&self) -> &SubjectPublicKeyInfo {
        &self.public_key
    }
}

/// Whether a key is the certificate's, both PEM.
pub fn is_pair(issued: &Issued) -> bool {
    let certificate = certificates_of(&issued.certificate).ok();
    let of = certificate.and_then(|all| certificate_key(all.first()?).ok());
    let key = NewKey::from_pem(&issued.key).ok();
    of.is_some() && of == key.map(|key| key.key())
}

/// Keys of at least 128 bits of security whose signatures `ring` verifies in TLS.
fn is_allowed(algorithm: &rcgen::SignatureAlgorithm) -> bool {
    [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
    ]
    .into_iter()
    .any(|allowed| allowed == algorithm)
}

fn kind(algorithm: &x509_parser::der_parser::oid::Oid<'_>) -> String {
    match algorithm.to_id_string().as_str() {
        "1.2.840.113549.1.1.1" => "RSA".to_owned(),
        "1.2.840.10045.2.1" => "ECDSA on another curve".to_owned(),
        "1.2.840.10040.4.1" => "DSA".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, IsCa};
    use time::{Duration, OffsetDateTime};

    use super::*;
    use crate::tls::{Authority, Role, peer_lifetime, peer_name, peer_role};

    #[test]
    fn only_the_public_key_of_a_request_reaches_the_certificate() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let (authority, _) = Authority::create("fed", now, Duration::days(10)).unwrap();
        let key = NewKey::generate().unwrap();
        let der = key.request(Some(&"admin".parse().unwrap())).unwrap();
        let request = SigningRequest::from_der(&der).unwrap();
        assert_eq!((request.key(), request.name()), (key.key(), Some("admin")));
        let name: ClientId = "camera-07".parse().unwrap();
        for role in Role::ALL {
            let valid = Duration::days(2);
            let signed = authority.sign(&request, &name, role, now, valid).unwrap();
            assert_eq!(peer_name(&signed).unwrap(), name);
            assert_eq!(peer_role(&signed).unwrap(), role);
            assert_eq!(peer_lifetime(&signed).unwrap(), (now, now + valid));
        }
    }

    #[test]
    fn a_key_is_the_same_after_it_was_written() {
        let key = NewKey::generate().unwrap();
        assert_eq!(NewKey::from_pem(&key.to_pem()).unwrap().key(), key.key());
        let pem = key.request_pem(None).unwrap();
        assert_eq!(SigningRequest::from_pem(&pem).unwrap().key(), key.key());
    }

    #[test]
    fn requests_of_strangers_are_refused_with_the_reason() {
        let refused = |der: &[u8]| SigningRequest::from_der(der).unwrap_err();
        assert_eq!(refused(&[0x30; 1 << 20]), RequestError::TooLong(1 << 20));
        assert!(matches!(refused(b"hello"), RequestError::Malformed(_)));
        let key = NewKey::generate().unwrap();
        let der = key.request(None).unwrap();
        assert!(matches!(
            refused(&[&der[..], &[0]].concat()),
            RequestError::Malformed(_)
        ));
        // The signature is at the end.
        let mut forged = der.clone();
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(refused(&forged), RequestError::Signature);
        let mut params = key.params(None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.serialize_request(&key.0).unwrap().der().to_vec();
        assert_eq!(refused(&der), RequestError::Authority);
        assert!(matches!(
            SigningRequest::from_pem("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"),
            Err(RequestError::Malformed(_))
        ));
    }

    /// A request with an RSA key of 2048 bits, as `openssl req -newkey rsa:2048` makes it.
    const RSA: &str = include_str!("../../tests/fixtures/rsa.csr");

    #[test]
    fn a_key_of_another_kind_is_named() {
        assert_eq!(
            SigningRequest::from_pem(RSA).unwrap_err(),
            RequestError::Key("RSA".to_owned())
        );
    }
}
