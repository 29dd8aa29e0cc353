//! Why a signed report is refused.

use crate::signed::format::VERSION;
use crate::signed::place::Place;

/// Why a signed report is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// It is something else.
    #[error("not a signed report: {0}; `fl-server report FED --sign -o FILE` writes one")]
    NotSigned(&'static str),
    /// It is of a version that is not known here.
    #[error(
        "line 1 says that it is of version {found} of the format, and this program knows {VERSION}: use a newer one"
    )]
    Version {
        /// The version.
        found: u32,
    },
    /// Lines are not what was signed.
    #[error("it is not what was signed: {}", listed(.places, *.more))]
    Edited {
        /// The first of them, at least one.
        places: Vec<Place>,
        /// How many there are besides.
        more: usize,
    },
    /// Its end is missing.
    #[error("it was cut short in line {line}: {missing} missing")]
    Truncated {
        /// Its last line.
        line: usize,
        /// What is missing, with its verb.
        missing: &'static str,
    },
    /// Its seals hold and a line is not what it must be: it was not written by a server of this version.
    #[error("line {line}: {why}")]
    Malformed {
        /// The line.
        line: usize,
        /// Why.
        why: String,
    },
    /// The authority that was given cannot be used.
    #[error("the authority that was given: {0}")]
    Authority(String),
    /// It is consistent in itself, and not what the certificate's key signed.
    #[error(
        "line {line}: the signature is not by the key of the certificate in the file: the lines agree with each other, but \
         were changed and sealed anew after they were signed, or the signature was"
    )]
    Signature {
        /// The signature's line.
        line: usize,
    },
    /// The certificate's authority is not the one that was given.
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
    /// The certificate is not the authority's that stands in the file.
    #[error("line {line}: the certificate of `{signer}` was not issued by the authority in the file")]
    NotIssued {
        /// The certificate's line.
        line: usize,
        /// Its common name.
        signer: String,
    },
    /// The certificate may not sign reports.
    #[error("line {line}: signed with the certificate of `{signer}`, which is not a server's")]
    NotAServer {
        /// The certificate's line.
        line: usize,
        /// Its common name.
        signer: String,
    },
}

impl VerifyError {
    /// Whether the file was changed or forged, rather than of another kind or version, or verified with a wrong argument.
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
