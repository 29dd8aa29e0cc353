//! Verifies a signed report: its seals, its signature, its signer, and whether its figures agree.

use serde::Deserialize;

use crate::signed::certificate::Certificate;
use crate::signed::chain::split;
use crate::signed::consistency::Figures;
use crate::signed::differences::Differences;
use crate::signed::error::VerifyError;
use crate::signed::format::LAST;
use crate::signed::lines::{AuthorityLine, CertificateLine, SignatureLine};
use crate::signed::seals::{recognize, sealed};
use crate::signed::signer::is_signed;

/// What a signed report proves.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    /// The run.
    pub run: String,
    /// State of the run.
    pub state: String,
    /// Number of lines.
    pub lines: usize,
    /// Newest entry of the hash chain of rounds, hexadecimal; empty if there is none.
    pub chain: String,
    /// Common name of the certificate that signed.
    pub signer: String,
    /// SHA-256 of that certificate.
    pub fingerprint: String,
    /// Common name of the authority in the file.
    pub authority: String,
    /// SHA-256 of its certificate.
    pub authority_fingerprint: String,
    /// Whether an authority was given and issued the certificate. If not, the file proves only that it was not changed since it
    /// was signed, not who signed it.
    pub trusted: bool,
    /// Warnings for a person, such as an expired certificate.
    pub warnings: Vec<String>,
    /// Figures that do not agree with each other, although they were signed. Empty in an honest report.
    pub differences: Differences,
}

/// Verifies a file. `trusted`: the authority's certificate in PEM; `None` uses the one in the file. `now`: seconds since 1970,
/// for warnings only.
///
/// # Errors
/// See [`VerifyError`]. Differences between figures that were signed are not an error; the result lists them.
pub fn verify(file: &[u8], trusted: Option<&str>, now: i64) -> Result<Verified, VerifyError> {
    let trusted = trusted.map(Certificate::read).transpose();
    let trusted = trusted.map_err(VerifyError::Authority)?;
    if trusted.as_ref().is_some_and(|given| !given.is_authority()) {
        return Err(VerifyError::Authority(
            "its certificate may not issue others".to_owned(),
        ));
    }
    recognize(file)?;
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

/// Parses a line.
fn parsed<'a, T: Deserialize<'a>>(lines: &[&'a [u8]], at: usize) -> Result<T, VerifyError> {
    let line = at + 1;
    let parsed = match lines.get(at) {
        Some(line) => serde_json::from_slice(line).map_err(|e| e.to_string()),
        None => Err("it is missing".to_owned()),
    };
    parsed.map_err(|why| VerifyError::Malformed { line, why })
}

/// Checks the last three lines.
fn signed(lines: &[&[u8]], trusted: Option<&Certificate>, now: i64) -> Result<Verified, VerifyError> {
    let first = lines.len().saturating_sub(LAST);
    let line = first + 2;
    let stated: AuthorityLine<'_> = parsed(lines, first)?;
    expect(first + 1, "authority", &stated.kind)?;
    let own: CertificateLine<'_> = parsed(lines, first + 1)?;
    expect(line, "certificate", &own.kind)?;
    let signature: SignatureLine<'_> = parsed(lines, first + 2)?;
    expect(first + 3, "signature", &signature.kind)?;
    let authority = certificate(first + 1, &stated.authority)?;
    let certificate = certificate(line, &own.certificate)?;

    let seal = lines.get(first + 1).and_then(|line| split(line)).map(|(_, seal)| *seal);
    if !seal.is_some_and(|seal| is_signed(&certificate, &signature.algorithm, &signature.signature, &seal)) {
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
    let own = out_of_time(&format!("the certificate of `{signer}`"), &certificate, now);
    let warnings = own
        .into_iter()
        .chain(out_of_time("the authority's certificate", &authority, now));
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
        warnings: warnings.collect(),
        differences: Differences::default(),
    })
}

fn expect(line: usize, kind: &str, found: &str) -> Result<(), VerifyError> {
    let why = format!("it must be the `{kind}`");
    (kind == found)
        .then_some(())
        .ok_or(VerifyError::Malformed { line, why })
}

fn certificate(line: usize, pem: &str) -> Result<Certificate, VerifyError> {
    Certificate::read(pem).map_err(|why| VerifyError::Malformed { line, why })
}

fn out_of_time(what: &str, certificate: &Certificate, now: i64) -> Option<String> {
    let (begins, ends) = certificate.validity()?;
    if now > ends {
        return Some(format!(
            "{what} has expired; the signature was nevertheless made with its key"
        ));
    }
    (now < begins).then(|| format!("{what} is not valid yet; is this machine's clock right?"))
}
