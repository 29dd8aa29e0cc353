//! The line that a person carries from the server to a device.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

use crate::enrollment::Secret;
use crate::fingerprint::Fingerprint;

/// Where to enroll, which authority to trust, and the secret that admits the device.
///
/// As text: `fl1:` and, in base64url without padding (RFC 4648, section 5), 4 bytes of checksum, 16 of secret, 32 of
/// fingerprint, and the address. The checksum is the beginning of the SHA-256 of all bytes after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrollmentLine {
    /// `host:port` of the enrollment listener.
    pub address: String,
    /// The federation's authority.
    pub authority: Fingerprint,
    /// Admits the device.
    pub secret: Secret,
}

const PREFIX: &str = "fl1:";
// A mistyped line passes once in 2^32.
const CHECKSUM: usize = 4;
// The length of SHA-256.
const FINGERPRINT: usize = 32;
// Longest address, in bytes: `fl-client enroll ` and the line stay within 200 characters.
const MAX_ADDRESS: usize = 82;

/// Why a text is not an enrollment line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Another kind of text.
    #[error("not an enrollment line: it must begin with `fl1:`, as `fl-server enroll` prints it")]
    Other,
    /// A line of a newer program.
    #[error("an enrollment line of version {0}, and this program knows version 1; update fl-client")]
    Version(String),
    /// A character is missing or wrong.
    #[error(
        "a character of the enrollment line is missing or wrong; copy the whole line again, and put it in quotes if it is \
         broken over two lines"
    )]
    Damaged,
    /// The line would be too long.
    #[error("the address `{0}` is longer than the 82 bytes that fit into an enrollment line; use a shorter host name")]
    Address(String),
}

impl EnrollmentLine {
    /// The line for these parts.
    ///
    /// # Errors
    /// `Address` if it is too long.
    pub fn new(address: String, authority: Fingerprint, secret: Secret) -> Result<Self, LineError> {
        if address.len() > MAX_ADDRESS {
            return Err(LineError::Address(address));
        }
        Ok(Self {
            address,
            authority,
            secret,
        })
    }
}

impl fmt::Display for EnrollmentLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = [self.secret.as_bytes(), &self.authority.0[..], self.address.as_bytes()].concat();
        let bytes = [&checksum(&content), &content[..]].concat();
        write!(f, "{PREFIX}{}", BASE64.encode(bytes))
    }
}

impl FromStr for EnrollmentLine {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        // Mail programs and terminals wrap the line; its alphabet has no white space.
        let text: String = text.split_whitespace().collect();
        let Some(encoded) = text.strip_prefix(PREFIX) else {
            let version = text.strip_prefix("fl").and_then(|rest| rest.split_once(':'));
            return Err(match version {
                Some((version, _)) if !version.is_empty() && version.bytes().all(|c| c.is_ascii_digit()) => {
                    LineError::Version(version.chars().take(8).collect())
                }
                _ => LineError::Other,
            });
        };
        let bytes = BASE64.decode(encoded).map_err(|_| LineError::Damaged)?;
        let (sum, content) = bytes.split_first_chunk::<CHECKSUM>().ok_or(LineError::Damaged)?;
        if *sum != checksum(content) {
            return Err(LineError::Damaged);
        }
        let (secret, rest) = content
            .split_first_chunk::<{ Secret::LEN }>()
            .ok_or(LineError::Damaged)?;
        let (authority, address) = rest.split_first_chunk::<FINGERPRINT>().ok_or(LineError::Damaged)?;
        let address = std::str::from_utf8(address).map_err(|_| LineError::Damaged)?;
        let secret = Secret::from_bytes(secret).map_err(|_| LineError::Damaged)?;
        Self::new(address.to_owned(), Fingerprint(*authority), secret)
    }
}

fn checksum(content: &[u8]) -> [u8; CHECKSUM] {
    let [a, b, c, d, ..] = Fingerprint::of(content).0;
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line() -> EnrollmentLine {
        let secret = Secret::from_bytes(&[7; 16]).unwrap();
        EnrollmentLine::new("192.168.1.5:7072".to_owned(), Fingerprint([9; 32]), secret).unwrap()
    }

    #[test]
    fn a_line_of_version_1_keeps_its_bytes() {
        let golden = "fl1:Q8X9tAcHBwcHBwcHBwcHBwcHBwcJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCTE5Mi4xNjguMS41OjcwNzI";
        assert_eq!(line().to_string(), golden);
        assert_eq!(golden.parse(), Ok(line()));
        assert_eq!(format!(" {golden}\n").parse(), Ok(line()));
        let wrapped = format!("{}\r\n   {}", &golden[..60], &golden[60..]);
        assert_eq!(wrapped.parse(), Ok(line()), "wrapped by a mail program");
    }

    #[test]
    fn one_wrong_character_anywhere_is_noticed() {
        let text = line().to_string();
        for at in 4..text.len() {
            for other in [b'A', b'B', b'-', b'!'] {
                let mut wrong = text.clone().into_bytes();
                if wrong[at] != other {
                    wrong[at] = other;
                    let wrong = String::from_utf8(wrong).unwrap();
                    assert_eq!(wrong.parse::<EnrollmentLine>(), Err(LineError::Damaged), "{wrong}");
                }
            }
            assert_eq!(text[..at].parse::<EnrollmentLine>(), Err(LineError::Damaged));
        }
    }

    #[test]
    fn other_texts_and_versions_are_named() {
        for other in ["", "hello", "fl", "fl:x", "http://x", "flx:abc"] {
            assert_eq!(other.parse::<EnrollmentLine>(), Err(LineError::Other), "{other}");
        }
        assert_eq!(
            "fl2:abc".parse::<EnrollmentLine>(),
            Err(LineError::Version("2".to_owned()))
        );
    }

    #[test]
    fn the_longest_line_fits_a_terminal_and_a_qr_code() {
        let secret = Secret::from_bytes(&[0xff; 16]).unwrap();
        let line = EnrollmentLine::new("h".repeat(82), Fingerprint([0xff; 32]), secret.clone()).unwrap();
        assert!(format!("fl-client enroll {line}").len() <= 200);
        assert!(EnrollmentLine::new("h".repeat(83), Fingerprint([0; 32]), secret.clone()).is_err());
        assert!(format!("{line:?}").contains("Secret(..)"));
    }

    proptest! {
        #[test]
        fn every_line_is_read_as_it_was_written(
            secret: [u8; 16], authority: [u8; 32], address in "[a-z0-9.:-]{1,82}",
        ) {
            let line = EnrollmentLine::new(address, Fingerprint(authority), Secret::from_bytes(&secret).unwrap()).unwrap();
            prop_assert_eq!(line.to_string().parse(), Ok(line));
        }

        #[test]
        fn no_text_panics(text in "(fl1:)?.{0,300}") {
            let _ = text.parse::<EnrollmentLine>();
        }
    }
}
