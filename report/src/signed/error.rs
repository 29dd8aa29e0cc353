//! Why a signed report is refused.

use crate::signed::format::VERSION;
use crate::signed::place::Place;

/// Why a signed report is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The file is not a signed report.
    #[error("not a signed report: {0}; `fl-server report FED --sign -o FILE` writes one")]
    NotSigned(&'static str),
    /// The file is of an unknown version.
    #[error(
        "line 1 names version {found} of the format, but this program knows version {VERSION}: use a newer program"
    )]
    Version {
        /// The version.
        found: u32,
    },
    /// Lines are not as they were signed.
    #[error("the file is not what was signed: {}", listed(.places, *.more))]
    Edited {
        /// The first of these lines, at least one.
        places: Vec<Place>,
        /// Number of further lines.
        more: usize,
    },
    /// The end of the file is missing.
    #[error("the file was cut short in line {line}: {missing} missing")]
    Truncated {
        /// Its last line.
        line: usize,
        /// What is missing, with its verb.
        missing: &'static str,
    },
    /// The seals hold, but a line is not of this format: no server of this version wrote the file.
    #[error("line {line}: {why}")]
    Malformed {
        /// The line.
        line: usize,
        /// Why.
        why: String,
    },
    /// The given authority cannot be used.
    #[error("the given authority: {0}")]
    Authority(String),
    /// The seals hold, but the key of the certificate did not sign them.
    #[error(
        "line {line}: the signature was not made with the key of the certificate in the file: the lines were changed and sealed \
         again after they were signed, or the signature was changed"
    )]
    Signature {
        /// The signature's line.
        line: usize,
    },
    /// The given authority did not issue the certificate.
    #[error(
        "line {line}: signed by `{signer}`, whose certificate the given authority ({given}) did not issue; its own \
         authority is {found}"
    )]
    OtherAuthority {
        /// The certificate's line.
        line: usize,
        /// Common name of the certificate.
        signer: String,
        /// SHA-256 of the given authority's certificate.
        given: String,
        /// SHA-256 of the authority's certificate in the file.
        found: String,
    },
    /// The authority in the file did not issue the certificate.
    #[error("line {line}: the certificate of `{signer}` was not issued by the authority in the file")]
    NotIssued {
        /// The certificate's line.
        line: usize,
        /// Its common name.
        signer: String,
    },
    /// The certificate is not for servers.
    #[error("line {line}: signed with the certificate of `{signer}`, which is not a server's")]
    NotAServer {
        /// The certificate's line.
        line: usize,
        /// Its common name.
        signer: String,
    },
}

impl VerifyError {
    /// Whether the file was changed or forged. False for files of another kind or version, and for a wrong argument.
    pub fn is_corruption(&self) -> bool {
        !matches!(self, Self::NotSigned(_) | Self::Version { .. } | Self::Authority(_))
    }
}

fn listed(places: &[Place], more: usize) -> String {
    let mut text: Vec<String> = places.iter().map(ToString::to_string).collect();
    if more > 0 {
        text.push(format!("and {more} more lines"));
    }
    text.join("; ")
}
