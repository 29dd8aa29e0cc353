//! The fingerprint of a certificate. It distinguishes certificates of one name.

use std::fmt;
use std::str::FromStr;

/// SHA-256 of a certificate's DER. As text: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

// Prefix of a fingerprint as text.
const PREFIX: &str = "sha256:";

/// The text is not a fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a fingerprint: it must be `sha256:` and 64 hexadecimal digits, as `fl-server issue` prints it")]
pub struct FingerprintError;

impl Fingerprint {
    /// The fingerprint of one X.509 certificate. `der`: its bytes.
    pub fn of(der: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, der).as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    /// Parses what `Display` writes, and also upper case and colons between the digits, as `openssl x509 -fingerprint -sha256`
    /// prints them.
    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let (prefix, digits) = text.split_at_checked(PREFIX.len()).ok_or(FingerprintError)?;
        if !prefix.eq_ignore_ascii_case(PREFIX) {
            return Err(FingerprintError);
        }
        let mut digits = digits
            .chars()
            .filter(|c| *c != ':')
            .map(|c| c.to_digit(16).ok_or(FingerprintError));
        let mut bytes = [0; 32];
        for byte in &mut bytes {
            let mut digit = || digits.next().unwrap_or(Err(FingerprintError));
            *byte = (16 * digit()? + digit()?) as u8;
        }
        if digits.next().is_some() {
            return Err(FingerprintError);
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_is_displayed_and_as_openssl_prints_it() {
        // SHA-256 of "abc" (FIPS 180-2, appendix B.1).
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let found = Fingerprint::of(b"abc");
        assert_eq!(found.to_string(), text);
        assert_eq!(text.parse(), Ok(found));
        let pairs: Vec<_> = text.as_bytes()[7..]
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).unwrap())
            .collect();
        assert_eq!(format!("SHA256:{}", pairs.join(":").to_uppercase()).parse(), Ok(found));
        for wrong in [
            "",
            "sha256:",
            "camera-07",
            &text[7..],
            &text[..70],
            &format!("{text}0"),
            "sha256:é",
        ] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(FingerprintError), "{wrong}");
        }
    }
}
