//! Makes and checks the signature of a report.

use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    UnparsedPublicKey, VerificationAlgorithm,
};
use x509_parser::pem::parse_x509_pem;

use crate::signed::certificate::{Certificate, blocks};
use crate::signed::chain::Seal;
use crate::signed::hex::{hex, unhex};

/// Why a report cannot be signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The private key cannot sign.
    #[error("the private key cannot sign: {0}; it must be PKCS#8 in PEM, ECDSA P-256 or Ed25519")]
    Key(String),
    /// A certificate cannot be used.
    #[error("{0}")]
    Certificate(String),
    /// A line cannot be written.
    #[error("a line cannot be written as JSON: {0}")]
    Json(String),
}

/// Signs reports: the server's key with its certificate and that of the authority.
#[derive(Debug)]
pub struct Signer {
    key: Key,
    authority: String,
    certificate: String,
}

#[derive(Debug)]
enum Key {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    /// Makes a signer. All arguments are PEM; of the first only the first certificate is used. After the server's certificate may be those
    /// of the authorities between it and the first.
    ///
    /// # Errors
    /// `Key` if the key is of another kind or does not belong to the certificate. `Certificate` if a certificate cannot be
    /// parsed, or if the server's was not issued by the authority or is not for servers.
    pub fn from_pem(authority: &str, certificate: &str, key: &str) -> Result<Self, SignError> {
        let bad = SignError::Certificate;
        let none = |what: &str| bad(format!("the {what} is not a certificate in PEM"));
        let authority = blocks(authority).next().ok_or_else(|| none("authority"))?;
        let certificate: String = blocks(certificate).collect();
        if certificate.is_empty() {
            return Err(none("server's certificate"));
        }
        let issuer = Certificate::read(&authority).map_err(|why| bad(format!("the authority: {why}")))?;
        let own = Certificate::read(&certificate).map_err(|why| bad(format!("the server's certificate: {why}")))?;
        if !own.is_issued_by(&issuer) {
            return Err(bad(
                "the server's certificate was not issued by the authority".to_owned()
            ));
        }
        if !own.may_serve() {
            return Err(bad(format!("the certificate of `{}` is not a server's", own.name())));
        }
        let key = Key::from_pem(key)?;
        if own.public_key().as_deref() != Some(key.public()) {
            return Err(SignError::Key(
                "it is not the key of the server's certificate".to_owned(),
            ));
        }
        Ok(Self {
            key,
            authority,
            certificate,
        })
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Signs the seal of the line before the signature. Returns the algorithm and the signature in hexadecimal.
    pub(super) fn sign(&self, seal: &Seal) -> Result<(&'static str, String), SignError> {
        let message = message(seal);
        match &self.key {
            Key::P256(key) => {
                let signature = key.sign(&SystemRandom::new(), &message);
                let signature = signature.map_err(|_| SignError::Key("signing failed".to_owned()))?;
                Ok((P256, hex(signature.as_ref(), "")))
            }
            Key::Ed25519(key) => Ok((ED, hex(key.sign(&message).as_ref(), ""))),
        }
    }
}

impl Key {
    fn from_pem(key: &str) -> Result<Self, SignError> {
        let pem = parse_x509_pem(key.as_bytes());
        let pem = pem.map_err(|_| SignError::Key("it is not PEM".to_owned()))?.1;
        if pem.label != "PRIVATE KEY" {
            return Err(SignError::Key(format!("it is a `{}`", pem.label.escape_debug())));
        }
        let ecdsa = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &pem.contents, &SystemRandom::new());
        if let Ok(key) = ecdsa {
            return Ok(Self::P256(key));
        }
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pem.contents)
            .map(Self::Ed25519)
            .map_err(|_| SignError::Key("it is of another kind".to_owned()))
    }

    fn public(&self) -> &[u8] {
        match self {
            Self::P256(key) => key.public_key().as_ref(),
            Self::Ed25519(key) => key.public_key().as_ref(),
        }
    }
}

const P256: &str = "ecdsa-p256-sha256";
const ED: &str = "ed25519";

/// The bytes that are signed. The prefix keeps signatures made for other purposes from passing as one of a report.
fn message(seal: &Seal) -> Vec<u8> {
    [b"fl-report signed report 1\n", &seal[..], b"\n"].concat()
}

/// Whether the key of `certificate` made a report's signature. `algorithm` and `signature` as in the last line.
pub(super) fn is_signed(certificate: &Certificate, algorithm: &str, signature: &str, seal: &Seal) -> bool {
    let algorithm: &dyn VerificationAlgorithm = match algorithm {
        P256 => &ECDSA_P256_SHA256_ASN1,
        ED => &ED25519,
        _ => return false,
    };
    let (Some(key), Some(signature)) = (certificate.public_key(), unhex(signature)) else {
        return false;
    };
    let key = UnparsedPublicKey::new(algorithm, key);
    key.verify(&message(seal), &signature).is_ok()
}
