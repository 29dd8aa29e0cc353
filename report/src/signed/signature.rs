//! Keys and certificates: who signed, and who says so.

use std::fmt::Write as _;

use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    UnparsedPublicKey, VerificationAlgorithm,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::{Pem, parse_x509_pem};

use super::chain::Seal;

/// Why a report cannot be signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The key cannot sign.
    #[error("the private key cannot sign: {0}; it must be PKCS#8 in PEM, ECDSA P-256 or Ed25519")]
    Key(String),
    /// A certificate cannot be used.
    #[error("{0}")]
    Certificate(String),
    /// A line cannot be written.
    #[error("a line cannot be written as JSON: {0}")]
    Json(String),
}

/// What signs reports: the server's key with its certificate and the authority's.
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
    /// A signer. All arguments are PEM; of the first two only the first certificate is taken, and nothing else.
    ///
    /// # Errors
    /// `Key` if the key is of another kind or is not the certificate's; `Certificate` if a certificate is none, the
    /// server's is not the authority's or may not serve.
    pub fn from_pem(authority: &str, certificate: &str, key: &str) -> Result<Self, SignError> {
        let bad = SignError::Certificate;
        let taken = |what: &str, pem| block(pem).ok_or_else(|| bad(format!("the {what} is not a certificate in PEM")));
        let authority = taken("authority", authority)?;
        let certificate = taken("server's certificate", certificate)?;
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

    /// Signs the seal of the line before the signature: the algorithm, and the signature's digits.
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
        let bad = |why: &str| SignError::Key(why.to_owned());
        let (_, pem) = parse_x509_pem(key.as_bytes()).map_err(|_| bad("it is not PEM"))?;
        if pem.label != "PRIVATE KEY" {
            return Err(SignError::Key(format!("it is a `{}`", pem.label.escape_debug())));
        }
        let ecdsa = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &pem.contents, &SystemRandom::new());
        if let Ok(key) = ecdsa {
            return Ok(Self::P256(key));
        }
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pem.contents)
            .map(Self::Ed25519)
            .map_err(|_| bad("it is of another kind"))
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

/// What is signed, so that no signature made for something else can be taken for one of a report.
fn message(seal: &Seal) -> Vec<u8> {
    [b"fl-report signed report 1\n", &seal[..], b"\n"].concat()
}

/// Whether the signature of a report is that of `certificate`. `algorithm` and `signature` as in the last line.
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

/// One certificate, whose fields can be read.
pub(super) struct Certificate {
    pem: Pem,
}

impl Certificate {
    /// Reads one.
    ///
    /// # Errors
    /// Why it is none, for a person.
    pub(super) fn read(pem: &str) -> Result<Self, String> {
        let (_, pem) = parse_x509_pem(pem.as_bytes()).map_err(|_| "it is not PEM".to_owned())?;
        let read = Self { pem };
        match read.pem.parse_x509() {
            Ok(_) => Ok(read),
            Err(why) => Err(format!("it is not an X.509 certificate: {why}")),
        }
    }

    fn x509(&self) -> Option<X509Certificate<'_>> {
        self.pem.parse_x509().ok()
    }

    /// Its common name.
    pub(super) fn name(&self) -> String {
        let name = self.x509().and_then(|x509| {
            let name = x509.subject().iter_common_name().next()?;
            name.as_str().ok().map(|name| name.escape_debug().to_string())
        });
        name.unwrap_or_else(|| "-".to_owned())
    }

    /// SHA-256 of its DER, as `openssl x509 -fingerprint -sha256` shows it.
    pub(super) fn fingerprint(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, &self.pem.contents);
        hex(digest.as_ref(), ":").to_uppercase()
    }

    /// The first and the last second of its validity, since 1970.
    pub(super) fn validity(&self) -> Option<(i64, i64)> {
        let x509 = self.x509()?;
        let validity = x509.validity();
        Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
    }

    /// Whether it may issue certificates.
    pub(super) fn is_authority(&self) -> bool {
        self.x509().is_some_and(|x509| x509.is_ca())
    }

    /// Whether it is made for servers.
    pub(super) fn may_serve(&self) -> bool {
        self.x509().is_some_and(|x509| {
            let usage = x509.extended_key_usage().ok().flatten();
            usage.is_some_and(|usage| usage.value.server_auth)
        })
    }

    /// Whether `issuer`, an authority, issued it.
    pub(super) fn is_issued_by(&self, issuer: &Self) -> bool {
        let (Some(own), Some(theirs)) = (self.x509(), issuer.x509()) else {
            return false;
        };
        theirs.is_ca()
            && own.issuer().as_raw() == theirs.subject().as_raw()
            && own.verify_signature(Some(theirs.public_key())).is_ok()
    }

    fn public_key(&self) -> Option<Vec<u8>> {
        let x509 = self.x509()?;
        Some(x509.tbs_certificate.subject_pki.subject_public_key.data.to_vec())
    }
}

/// The first certificate of a PEM text, without anything that stands around it, such as a private key.
fn block(pem: &str) -> Option<String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let start = pem.find(BEGIN)?;
    let len = pem[start..].find(END)? + END.len();
    let lines = pem[start..start + len].lines().map(str::trim);
    Some(lines.fold(String::new(), |text, line| text + line + "\n"))
}

fn hex(bytes: &[u8], between: &str) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        let _ = write!(text, "{}{byte:02x}", if at == 0 { "" } else { between });
    }
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    rest.is_empty().then(|| bytes.collect()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_back_and_nothing_else_is() {
        assert_eq!(unhex(&hex(&[0, 17, 255], "")), Some(vec![0, 17, 255]));
        for bad in ["0", "0g", "AB", "é"] {
            assert_eq!(unhex(bad), None);
        }
    }

    #[test]
    fn of_a_file_with_a_key_only_the_certificate_is_taken() {
        let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----\n";
        assert_eq!(block(&format!("{key}{certificate}{key}")).as_deref(), Some(certificate));
        assert_eq!(block(&certificate.replace('\n', "\r\n")).as_deref(), Some(certificate));
        assert_eq!(block(key), None);
    }
}
