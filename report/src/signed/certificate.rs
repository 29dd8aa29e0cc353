//! X.509 certificates: names, fingerprints, and who issued them.

use x509_parser::certificate::X509Certificate;
use x509_parser::pem::{Pem, parse_x509_pem};

use crate::signed::hex::hex;

/// A parsed certificate.
pub(super) struct Certificate {
    pem: Pem,
}

impl Certificate {
    /// Parses the first certificate of a PEM text.
    ///
    /// # Errors
    /// Why the text is not a certificate, for a person.
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

    /// The subject's common name, escaped; `-` if there is none.
    pub(super) fn name(&self) -> String {
        let name = self.x509().and_then(|x509| {
            let name = x509.subject().iter_common_name().next()?;
            name.as_str().ok().map(|name| name.escape_debug().to_string())
        });
        name.unwrap_or_else(|| "-".to_owned())
    }

    /// SHA-256 of the DER, as `openssl x509 -fingerprint -sha256` shows it.
    pub(super) fn fingerprint(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, &self.pem.contents);
        hex(digest.as_ref(), ":").to_uppercase()
    }

    /// First and last second of validity, since 1970.
    pub(super) fn validity(&self) -> Option<(i64, i64)> {
        let x509 = self.x509()?;
        let validity = x509.validity();
        Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
    }

    /// Whether the certificate may issue others.
    pub(super) fn is_authority(&self) -> bool {
        self.x509().is_some_and(|x509| x509.is_ca())
    }

    /// Whether the certificate is for TLS servers.
    pub(super) fn may_serve(&self) -> bool {
        self.x509().is_some_and(|x509| {
            let usage = x509.extended_key_usage().ok().flatten();
            usage.is_some_and(|usage| usage.value.server_auth)
        })
    }

    /// Whether `issuer` is an authority and issued this certificate.
    pub(super) fn is_issued_by(&self, issuer: &Self) -> bool {
        let (Some(own), Some(theirs)) = (self.x509(), issuer.x509()) else {
            return false;
        };
        theirs.is_ca()
            && own.issuer().as_raw() == theirs.subject().as_raw()
            && own.verify_signature(Some(theirs.public_key())).is_ok()
    }

    pub(super) fn public_key(&self) -> Option<Vec<u8>> {
        let x509 = self.x509()?;
        Some(x509.tbs_certificate.subject_pki.subject_public_key.data.to_vec())
    }
}

/// The first certificate of a PEM text, without the text around it, such as a private key.
pub(super) fn block(pem: &str) -> Option<String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let start = pem.find(BEGIN)?;
    let len = pem[start..].find(END)? + END.len();
    let lines = pem[start..start + len].lines().map(str::trim);
    Some(lines.fold(String::new(), |text, line| text + line + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_file_with_a_key_only_the_certificate_is_taken() {
        let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----\n";
        assert_eq!(block(&format!("{key}{certificate}{key}")).as_deref(), Some(certificate));
        assert_eq!(block(&certificate.replace('\n', "\r\n")).as_deref(), Some(certificate));
        assert_eq!(block(key), None);
    }
}
