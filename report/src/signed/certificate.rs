//! X.509 certificates: names, fingerprints, and who issued them.

use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;

use crate::signed::hex::hex;

/// A parsed certificate, and those after it: of the authorities between it and the one that is trusted.
pub(super) struct Certificate {
    pem: Pem,
    between: Vec<Self>,
}

impl Certificate {
    /// Parses the certificates of a PEM text.
    ///
    /// # Errors
    /// Why the text is not one of certificates, for a person.
    pub(super) fn read(pem: &str) -> Result<Self, String> {
        // What else is in the text, such as a key, follows the first.
        let is_one =
            |(at, pem): &(usize, Result<Pem, _>)| *at == 0 || pem.as_ref().is_ok_and(|pem| pem.label == "CERTIFICATE");
        let all = Pem::iter_from_buffer(pem.as_bytes())
            .enumerate()
            .filter(is_one)
            .map(|(_, pem)| {
                let pem = pem.map_err(|_| "it is not PEM".to_owned())?;
                let why = pem.parse_x509().err();
                why.map_or(Ok(()), |why| Err(format!("it is not an X.509 certificate: {why}")))?;
                let between = Vec::new();
                Ok(Self { pem, between })
            });
        let mut all = all.collect::<Result<Vec<_>, String>>()?.into_iter();
        let first = all.next().ok_or("it is not PEM")?;
        let between = all.collect();
        Ok(Self { between, ..first })
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

    /// Whether `issuer` is an authority and issued this certificate, or that of the last of the authorities after it.
    pub(super) fn is_issued_by(&self, issuer: &Self) -> bool {
        let mut own = self;
        for next in &self.between {
            if own.is_signed_by(issuer) || !own.is_signed_by(next) {
                break;
            }
            own = next;
        }
        own.is_signed_by(issuer)
    }

    fn is_signed_by(&self, issuer: &Self) -> bool {
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

/// The certificates of a PEM text, each without the text around it, such as a private key.
pub(super) fn blocks(pem: &str) -> impl Iterator<Item = String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let begun = pem.match_indices(BEGIN).map(|(start, _)| &pem[start..]);
    let whole = begun.filter_map(|text| Some(&text[..text.find(END)? + END.len()]));
    whole.map(|block| {
        block
            .lines()
            .fold(String::new(), |text, line| text + line.trim() + "\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_file_with_a_key_only_the_certificate_is_taken() {
        let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----\n";
        let blocks = |text: &str| blocks(text).collect::<Vec<_>>();
        assert_eq!(
            blocks(&format!("{key}{certificate}{key}{certificate}")),
            [certificate; 2]
        );
        assert_eq!(blocks(&certificate.replace('\n', "\r\n")), [certificate]);
        assert!(blocks(key).is_empty() && blocks(&certificate[..40]).is_empty());
    }
}
