//! Signs with the authority's key, which stays in its file: it is read for each certificate and wiped after.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fl_proto::{
    Authority, ClientId, Fingerprint, Issued, Lifetime, Role, SignedCertificate, SigningRequest, certificate_pem,
    certificates_of, issuer_of, open_regular,
};
use time::Date;
use zeroize::Zeroizing;

use crate::clock::{Millis, moment};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signer {
    /// The authorities' certificates, PEM: the ones that clients trust.
    pub(crate) authority: PathBuf,
    /// The key of one of them, PEM.
    pub(crate) key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SignError {
    #[error(
        "this server has no authority's key ({}): run `fl-client request` on the device, sign the request with `fl-server sign` \
         where the key is, and carry the certificate back",
        .0.display()
    )]
    NoKey(PathBuf),
    #[error("the server cannot read {}: {why}", path.display())]
    File { path: PathBuf, why: std::io::Error },
    #[error("the server cannot sign: {0}")]
    Tls(#[from] fl_proto::TlsError),
    /// A certificate of another time would keep clients out whose clocks are right.
    #[error(
        "this machine's clock says {now}, and the authority is valid from {from} to {until}: set the clock, or rotate the authority \
         (`fl-server authority rotate`)"
    )]
    Clock { now: Date, from: Date, until: Date },
    #[error("the server cannot sign: {} is not the key of a certificate in {}", key.display(), authority.display())]
    OtherKey { key: PathBuf, authority: PathBuf },
}

/// Longest file that is read, in bytes.
const MAX_FILE: u64 = 64 * 1024;

/// A certificate, and what the registry notes of it.
#[derive(Debug)]
pub(crate) struct NewCertificate {
    pub(crate) certificate: SignedCertificate,
    pub(crate) fingerprint: Fingerprint,
    /// Fingerprint of the authority that signed it.
    pub(crate) authority: Fingerprint,
    pub(crate) expires: Millis,
}

impl Signer {
    pub(crate) fn sign(
        &self,
        request: &SigningRequest,
        name: &ClientId,
        role: Role,
        now: Millis,
        lifetime: Millis,
    ) -> Result<NewCertificate, SignError> {
        let authorities = self.authorities()?;
        let key = self.read(&self.key)?;
        let valid = validity(lifetime);
        for (index, der) in authorities.iter().enumerate() {
            let pem = certificate_pem(der);
            let Ok(authority) = authority_of(&pem, &key) else {
                continue;
            };
            let signed = authority.sign(request, name, role, moment(now), valid)?;
            if issuer_of(&certificate_pem(&signed), std::slice::from_ref(der)).is_err() {
                continue;
            }
            let mut all = authorities.clone();
            all.swap(0, index);
            return Ok(NewCertificate {
                fingerprint: Fingerprint::of(&signed),
                authority: Fingerprint::of(der),
                expires: now.saturating_add(lifetime),
                certificate: SignedCertificate {
                    certificate: signed,
                    authorities: all,
                },
            });
        }
        Err(self.other_key())
    }

    /// Issues a certificate and a new key for the server, by the authority that issued its present certificate, PEM: during a
    /// rotation clients trust that one, and its key is beside the new one. Without a present one, by the oldest that it can.
    ///
    /// # Errors
    /// `NoKey` if that key is not here; otherwise if a file cannot be read, or they do not fit together.
    pub(crate) fn issue_server(
        &self,
        present: Option<&str>,
        now: Millis,
        lifetime: Millis,
    ) -> Result<Issued, SignError> {
        let old = old_path(&self.key);
        let keys = [&old, &self.key].map(|path| path.exists().then(|| self.read(path)));
        let keys = keys.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() {
            return Err(SignError::NoKey(self.key.clone()));
        }
        for der in self.authorities()?.chunks(1) {
            if present.is_some_and(|present| issuer_of(present, der).is_err()) {
                continue;
            }
            let pem = certificate_pem(&der[0]);
            for key in &keys {
                let Ok(authority) = authority_of(&pem, key) else {
                    continue;
                };
                let now = moment(now);
                let of = Lifetime::of_pem(&pem)?;
                if of.is_early(now) || of.expires <= now {
                    return Err(SignError::Clock {
                        now: now.date(),
                        from: of.issued.date(),
                        until: of.expires.date(),
                    });
                }
                let own = authority.issue_server(now, validity(lifetime))?;
                if issuer_of(&own.certificate, der).is_ok() {
                    return Ok(own);
                }
            }
        }
        Err(self.other_key())
    }

    fn other_key(&self) -> SignError {
        SignError::OtherKey {
            key: self.key.clone(),
            authority: self.authority.clone(),
        }
    }

    /// The authorities' certificates, DER.
    pub(crate) fn authorities(&self) -> Result<Vec<Vec<u8>>, SignError> {
        Ok(certificates_of(&self.read(&self.authority)?)?)
    }

    pub(crate) fn has_key(&self) -> bool {
        self.key.exists()
    }

    fn read(&self, path: &Path) -> Result<Zeroizing<String>, SignError> {
        let mut text = Zeroizing::new(String::with_capacity(8 * 1024));
        let read = open_regular(File::options().read(true), path)
            .and_then(|file| file.take(MAX_FILE).read_to_string(&mut text));
        match read {
            Ok(_) => Ok(text),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound && path == self.key => {
                Err(SignError::NoKey(path.to_owned()))
            }
            Err(why) => Err(SignError::File {
                path: path.to_owned(),
                why,
            }),
        }
    }
}

/// Where a rotation keeps the key of the old authority.
pub(crate) fn old_path(key: &Path) -> PathBuf {
    let mut name = key.as_os_str().to_owned();
    name.push(".old");
    name.into()
}

fn validity(lifetime: Millis) -> time::Duration {
    time::Duration::try_from(Duration::from_millis(lifetime)).unwrap_or(time::Duration::ZERO)
}

fn authority_of(certificate: &str, key: &str) -> Result<Authority, fl_proto::TlsError> {
    let mut issued = Issued {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
    };
    let authority = Authority::from_pem(&issued);
    zeroize::Zeroize::zeroize(&mut issued.key);
    authority
}
