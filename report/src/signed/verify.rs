//! Verifies a signed report: its seals, its signature, who signed it, and whether its figures agree.

use std::borrow::Cow;

use serde::Deserialize;

use super::chain::{START, Seal, Sealer, content, split};
use super::consistency::{Differences, Figures};
use super::lines::{AuthorityLine, CertificateLine, SignatureLine};
use super::place::{Change, Place, about};
use super::signature::{Certificate, is_signed};
use super::{BEGINNING, VERSION};

/// What holds of a signed report.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    /// The run.
    pub run: String,
    /// Where the run stood.
    pub state: String,
    /// Lines of the file.
    pub lines: usize,
    /// The newest link of the store's chain of rounds, hexadecimal; empty if there is none.
    pub chain: String,
    /// Whose certificate signed it: its common name.
    pub signer: String,
    /// SHA-256 of that certificate.
    pub fingerprint: String,
    /// Common name of the authority in the file.
    pub authority: String,
    /// SHA-256 of its certificate.
    pub authority_fingerprint: String,
    /// Whether an authority was given, and issued the certificate. If not, the file proves that it was not changed since
    /// it was signed, and not by whom.
    pub trusted: bool,
    /// What a person should know besides, such as a certificate that has ended.
    pub warnings: Vec<String>,
    /// What does not agree within the report, although it was signed so. Empty in an honest one.
    pub differences: Differences,
}

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

/// Places that are named.
const NAMED: usize = 8;

/// Verifies a file. `trusted`: the authority's certificate, PEM; without it that in the file is taken. `now`: seconds
/// since 1970, for warnings only.
///
/// # Errors
/// See [`VerifyError`]; differences between figures that were signed so are no error but stand in the result.
pub fn verify(file: &[u8], trusted: Option<&str>, now: i64) -> Result<Verified, VerifyError> {
    let trusted = trusted.map(Certificate::read).transpose();
    let trusted = trusted.map_err(VerifyError::Authority)?;
    if trusted.as_ref().is_some_and(|given| !given.is_authority()) {
        return Err(VerifyError::Authority(
            "its certificate may not issue others".to_owned(),
        ));
    }
    recognise(file)?;
    let lines = sealed(file)?;
    let signed = signed(&lines, trusted.as_ref(), now)?;
    let mut figures = Figures::new(parsed(&lines, 0)?);
    for (at, line) in lines.iter().enumerate().take(lines.len() - LAST).skip(1) {
        let read = figures.read(line);
        read.map_err(|why| VerifyError::Malformed { line: at + 1, why })?;
    }
    let (header, differences) = figures.finish();
    Ok(Verified {
        run: header.run.name,
        state: header.run.state,
        chain: header.run.chain,
        lines: lines.len(),
        differences,
        ..signed
    })
}

/// Lines after the tables: authority, certificate, signature.
const LAST: usize = 3;

/// Whether this is a signed report of a version that is known, as far as its beginning tells.
fn recognise(file: &[u8]) -> Result<(), VerifyError> {
    if file.is_empty() {
        return Err(VerifyError::NotSigned("it is empty"));
    }
    let first = file.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if first.ends_with(b"\"}\r") && first.starts_with(BEGINNING.as_bytes()) {
        return Err(VerifyError::NotSigned(
            "its line ends were converted to those of Windows",
        ));
    }
    if let Some(rest) = first.strip_prefix(BEGINNING.as_bytes()) {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let found = std::str::from_utf8(&rest[..digits])
            .ok()
            .and_then(|digits| digits.parse().ok());
        return match found {
            Some(found) if found != VERSION && rest.get(digits) == Some(&b',') && !is_ours(first, &rest[digits..]) => {
                Err(VerifyError::Version { found })
            }
            _ => Ok(()),
        };
    }
    // A first line that is damaged is still sealed, and one that is cut short is still a beginning.
    if BEGINNING.as_bytes().starts_with(first) || split(first).is_some() {
        return Ok(());
    }
    Err(VerifyError::NotSigned("it does not begin with the header of one"))
}

/// Whether a first line was sealed as one of our version, so that only its version was changed.
fn is_ours(first: &[u8], after_version: &[u8]) -> bool {
    let ours = [BEGINNING.as_bytes(), VERSION.to_string().as_bytes(), after_version].concat();
    let seal = split(first).map(|(_, seal)| *seal);
    content(&ours).map(|content| Sealer::new().seal(&START, content)) == seal
}

/// The lines of a file, without their ends; and whether the last has one.
fn split_lines(file: &[u8]) -> (impl Iterator<Item = &[u8]>, bool) {
    let body = file.strip_suffix(b"\n");
    (body.unwrap_or(file).split(|byte| *byte == b'\n'), body.is_some())
}

/// Checks every seal, and that nothing is missing at the end. The lines.
fn sealed(file: &[u8]) -> Result<Vec<&[u8]>, VerifyError> {
    let (places, more) = broken(file);
    let (lines, ended) = split_lines(file);
    let (line, last) = lines
        .enumerate()
        .last()
        .map_or((0, &[][..]), |(at, last)| (at + 1, last));
    if !ended && more == 0 && places.iter().all(|place| place.line == line) {
        let missing = if split(last).is_some() {
            "its line end is"
        } else {
            "its rest is"
        };
        let replaced = last.split_last().is_some_and(|(_, before)| split(before).is_some());
        if !replaced {
            return Err(VerifyError::Truncated { line, missing });
        }
    }
    if !places.is_empty() {
        return Err(VerifyError::Edited { places, more });
    }
    if line <= LAST || !last.starts_with(br#"{"kind":"signature","#) {
        let missing = "the signature, which is the last line, is";
        return Err(VerifyError::Truncated { line, missing });
    }
    // Only now: a line that is sealed has some length, so that there are not many more than bytes in them.
    Ok(split_lines(file).0.collect())
}

/// The lines whose seals do not hold: the first of them, and the number of the rest.
fn broken(file: &[u8]) -> (Vec<Place>, usize) {
    const NO_OTHERS: [(Option<Seal>, Change); 2] = [(None, Change::Seal), (None, Change::Foreign)];
    let sealer = Sealer::new();
    let (mut places, mut more) = (Vec::<Place>::new(), 0);
    // Seals after which a line may come: that of the line before it. If that line is broken, also the one which its
    // bytes should have, and the one before it; then it is known what is wrong with that line.
    let (mut stated, mut others) = (Some(START), NO_OTHERS);
    let (mut start, mut last): (_, &[u8]) = (0, &[]);
    for (at, line) in split_lines(file).0.enumerate() {
        let found = split(line);
        let follows = |before: &Seal| found.is_some_and(|(content, seal)| sealer.seal(before, content) == *seal);
        if stated.as_ref().is_some_and(follows) {
            others = NO_OTHERS;
        } else if let Some((_, change)) = others.iter().find(|(before, _)| before.as_ref().is_some_and(follows)) {
            let place = places.last_mut().filter(|place| place.line == at);
            if let Some(place) = place.filter(|place| place.change == Change::Content) {
                place.change = *change;
            }
            others = NO_OTHERS;
        } else {
            let before = stated.or(others[0].0);
            let proper = content(line).zip(before.as_ref());
            others[0].0 = proper.map(|(content, before)| sealer.seal(before, content));
            others[1].0 = before;
            if places.len() < NAMED {
                places.push(Place {
                    line: at + 1,
                    start,
                    end: start + line.len(),
                    about: about(line),
                    change: match found {
                        None => Change::Form,
                        Some(_) if last == line => Change::Doubled,
                        Some(_) => Change::Content,
                    },
                });
            } else {
                more += 1;
            }
        }
        stated = found.map(|(_, seal)| *seal);
        start += line.len() + 1;
        last = line;
    }
    (places, more)
}

/// A line as what it must be.
fn parsed<'a, T: Deserialize<'a>>(lines: &[&'a [u8]], at: usize) -> Result<T, VerifyError> {
    let line = at + 1;
    let missing = || VerifyError::Malformed {
        line,
        why: "it is missing".to_owned(),
    };
    serde_json::from_slice(lines.get(at).ok_or_else(missing)?).map_err(|e| VerifyError::Malformed {
        line,
        why: e.to_string(),
    })
}

/// Checks the last three lines.
fn signed(lines: &[&[u8]], trusted: Option<&Certificate>, now: i64) -> Result<Verified, VerifyError> {
    let first = lines.len().saturating_sub(LAST);
    let line = first + 2;
    let expect = |at: usize, kind: &str, found: &str| {
        let why = format!("it must be the `{kind}`");
        (kind == found)
            .then_some(())
            .ok_or(VerifyError::Malformed { line: at + 1, why })
    };
    let read = |at: usize, pem: &Cow<'_, str>| {
        let why = |why| VerifyError::Malformed { line: at + 1, why };
        Certificate::read(pem).map_err(why)
    };
    let stated: AuthorityLine<'_> = parsed(lines, first)?;
    expect(first, "authority", &stated.kind)?;
    let own: CertificateLine<'_> = parsed(lines, first + 1)?;
    expect(first + 1, "certificate", &own.kind)?;
    let signature: SignatureLine<'_> = parsed(lines, first + 2)?;
    expect(first + 2, "signature", &signature.kind)?;
    let authority = read(first, &stated.authority)?;
    let certificate = read(first + 1, &own.certificate)?;

    let seal = lines.get(first + 1).and_then(|line| split(line)).map(|(_, seal)| *seal);
    let is_signed = |seal: &Seal| is_signed(&certificate, &signature.algorithm, &signature.signature, seal);
    if !seal.as_ref().is_some_and(is_signed) {
        return Err(VerifyError::Signature { line: first + 3 });
    }
    let signer = certificate.name();
    if let Some(given) = trusted.filter(|given| !certificate.is_issued_by(given)) {
        return Err(VerifyError::OtherAuthority {
            line,
            signer,
            given: given.fingerprint(),
            found: authority.fingerprint(),
        });
    }
    if !certificate.is_issued_by(&authority) {
        return Err(VerifyError::NotIssued { line, signer });
    }
    if !certificate.may_serve() {
        return Err(VerifyError::NotAServer { line, signer });
    }
    let mut warnings = Vec::new();
    warnings.extend(out_of_time(
        &format!("the certificate of `{signer}`"),
        &certificate,
        now,
    ));
    warnings.extend(out_of_time("the authority's certificate", &authority, now));
    Ok(Verified {
        run: String::new(),
        state: String::new(),
        lines: lines.len(),
        chain: String::new(),
        signer,
        fingerprint: certificate.fingerprint(),
        authority: authority.name(),
        authority_fingerprint: authority.fingerprint(),
        trusted: trusted.is_some(),
        warnings,
        differences: Differences::default(),
    })
}

fn out_of_time(what: &str, certificate: &Certificate, now: i64) -> Option<String> {
    let (begins, ends) = certificate.validity()?;
    if now > ends {
        return Some(format!(
            "{what} has ended; the signature was made with its key all the same"
        ));
    }
    (now < begins).then(|| format!("{what} is not valid yet; is this machine's clock right?"))
}
