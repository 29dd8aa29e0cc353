//! The certificate authority of one federation.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::names::ClientId;
use crate::tls::certificate::{CLOCK_SKEW, Issued, SERVER_NAME, TlsError};
use crate::tls::role::Role;
use crate::tls::signing_request::SigningRequest;

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
        Self::signed_by(None, federation, now, valid)
    }

    /// Creates the authority that takes this one's place. Its certificate has this one's signature, by which clients that trust this
    /// one know it.
    ///
    /// # Errors
    /// `Material` if no key can be made.
    pub fn successor(&self, federation: &str, now: OffsetDateTime, valid: Duration) -> Result<Issued, TlsError> {
        Ok(Self::signed_by(Some(self), federation, now, valid)?.1)
    }

    fn signed_by(
        by: Option<&Self>,
        federation: &str,
        now: OffsetDateTime,
        valid: Duration,
    ) -> Result<(Self, Issued), TlsError> {
        let key = KeyPair::generate()?;
        let mut params = params(&format!("{federation} authority"), now, valid);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = match by {
            Some(by) => by.signed(&params, &key)?,
            None => params.self_signed(&key)?,
        };
        let issued = Issued {
            certificate: certificate.pem(),
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
        let key = KeyPair::generate()?;
        let mut params = leaf(SERVER_NAME, ExtendedKeyUsagePurpose::ServerAuth, now, valid);
        params.subject_alt_names = vec![SanType::DnsName(SERVER_NAME.try_into()?)];
        self.issue(&key, &params)
    }

    /// Issues a client's certificate and its key.
    ///
    /// # Errors
    /// `Material` if the certificate cannot be made.
    pub fn issue_client(&self, name: &ClientId, now: OffsetDateTime, valid: Duration) -> Result<Issued, TlsError> {
        let params = client(name, Role::Client, now, valid);
        self.issue(&KeyPair::generate()?, &params)
    }

    /// Issues a certificate for the public key of `request`, DER. Nothing else is taken from the request.
    ///
    /// # Errors
    /// `Material` if the certificate cannot be made.
    pub fn sign(
        &self,
        request: &SigningRequest,
        name: &ClientId,
        role: Role,
        now: OffsetDateTime,
        valid: Duration,
    ) -> Result<Vec<u8>, TlsError> {
        let params = client(name, role, now, valid);
        Ok(self.signed(&params, request.public_key())?.der().to_vec())
    }

    fn issue(&self, key: &KeyPair, params: &CertificateParams) -> Result<Issued, TlsError> {
        Ok(Issued {
            certificate: self.signed(params, key)?.pem(),
            key: key.serialize_pem(),
        })
    }

    fn signed(&self, params: &CertificateParams, key: &impl PublicKeyData) -> Result<rcgen::Certificate, TlsError> {
        Ok(params.signed_by(key, &self.issuer)?)
    }
}

/// A certificate of a client. Certificates without a role are those of a [`Role::Client`], as all were before roles.
fn client(name: &ClientId, role: Role, now: OffsetDateTime, valid: Duration) -> CertificateParams {
    let mut params = leaf(name.as_str(), ExtendedKeyUsagePurpose::ClientAuth, now, valid);
    if role != Role::Client {
        let subject = &mut params.distinguished_name;
        subject.push(DnType::OrganizationalUnitName, role.as_str());
    }
    params
}

/// A certificate that signs no other.
fn leaf(name: &str, usage: ExtendedKeyUsagePurpose, now: OffsetDateTime, valid: Duration) -> CertificateParams {
    let mut params = params(name, now, valid);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    params
}

fn params(name: &str, now: OffsetDateTime, valid: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now.saturating_sub(CLOCK_SKEW);
    params.not_after = now.saturating_add(valid);
    params
}
