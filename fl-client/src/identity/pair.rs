//! A certificate and its key are two files, which no file system replaces at once. A renewal writes the new ones beside them,
//! `client.pem.next` and `client.key.next`; whoever reads takes the newest certificate whose key is there. Any crash leaves
//! a pair.

use std::path::Path;

use fl_proto::{Issued, NewKey, certificate_key, certificates_of, peer_expiry};

use crate::error::Error;
use crate::identity::files::{IdentityFiles, next};

/// The newest pair at these paths, read by `read`.
///
/// # Errors
/// Those of `read` for the certificate or the key. If no key fits its certificate, they are returned as they are: the
/// caller reports that.
pub(crate) fn newest(
    certificate: &Path,
    key: &Path,
    read: impl Fn(&Path) -> Result<String, Error>,
) -> Result<Issued, Error> {
    let issued = Issued {
        certificate: read(certificate)?,
        key: read(key)?,
    };
    let (next_certificate, next_key) = (next(certificate), next(key));
    if !next_key.exists() {
        return Ok(issued);
    }
    let next_key = read(&next_key)?;
    // With the old certificate's name: the new one was promoted, and its key not yet.
    let mut pairs = vec![
        issued.clone(),
        Issued {
            certificate: issued.certificate.clone(),
            key: next_key.clone(),
        },
    ];
    if next_certificate.exists() {
        pairs.push(Issued {
            certificate: read(&next_certificate)?,
            key: next_key,
        });
    }
    let fitting = pairs
        .into_iter()
        .filter_map(|pair| Some((expiry_if_fitting(&pair)?, pair)));
    let newest = fitting.max_by_key(|(expires, _)| *expires);
    Ok(newest.map_or(issued, |(_, pair)| pair))
}

/// When the certificate of a pair expires; `None` if the key is not the certificate's.
fn expiry_if_fitting(issued: &Issued) -> Option<time::OffsetDateTime> {
    let der = certificates_of(&issued.certificate).ok()?.into_iter().next()?;
    let key = NewKey::from_pem(&issued.key).ok()?;
    let fits = certificate_key(&der).is_ok_and(|of| of == key.key());
    fits.then(|| peer_expiry(&der).ok()).flatten()
}

/// The key of a renewal that has begun, if there is one.
pub(crate) fn pending_key(files: &IdentityFiles) -> Option<NewKey> {
    let text = std::fs::read_to_string(next(&files.key)).ok()?;
    NewKey::from_pem(&text).ok()
}

/// Writes the key of a renewal, before it is sent for.
///
/// # Errors
/// `State`; the pair in use is unchanged.
pub(crate) fn save_next_key(files: &IdentityFiles, key: &NewKey) -> Result<(), Error> {
    files.write(&next(&files.key), &key.to_pem())
}

/// Writes the certificate of a renewal: from now on [`newest`] returns the new pair.
///
/// # Errors
/// `State`; the pair in use is unchanged.
pub(crate) fn save_next_certificate(files: &IdentityFiles, pem: &str) -> Result<(), Error> {
    files.write(&next(&files.certificate), pem)
}

/// Whether a new pair waits for its first use.
pub(crate) fn is_pending(files: &IdentityFiles) -> bool {
    next(&files.certificate).exists()
}

/// Removes a new pair that the server does not accept: the old one is in use again.
///
/// # Errors
/// `State`.
pub(crate) fn discard(files: &IdentityFiles) -> Result<(), Error> {
    for path in [next(&files.certificate), next(&files.key)] {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(&path, "remove", &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Puts a new pair, which was used, in the place of the old one.
///
/// # Errors
/// `State`; the pair stays readable.
pub(crate) fn promote(files: &IdentityFiles) -> Result<(), Error> {
    let (certificate, key) = (next(&files.certificate), next(&files.key));
    if certificate.exists() {
        files.rename(&certificate, &files.certificate)?;
    }
    if key.exists() {
        files.rename(&key, &files.key)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fl_proto::Authority;
    use time::{Duration, OffsetDateTime};

    use super::*;

    fn files(folder: &Path, fault: Option<&str>) -> IdentityFiles {
        IdentityFiles {
            authority: folder.join("authority.pem"),
            certificate: folder.join("client.pem"),
            key: folder.join("client.key"),
            fault: fault.map(|fault| Arc::new(fault.parse().unwrap())),
        }
    }

    fn pair(valid: i64) -> Issued {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let (authority, _) = Authority::create("fed", now, Duration::days(99)).unwrap();
        let name = "anna".parse().unwrap();
        authority.issue_client(&name, now, Duration::days(valid)).unwrap()
    }

    fn read(path: &Path) -> Result<String, Error> {
        std::fs::read_to_string(path).map_err(|error| Error::io(path, "read", &error))
    }

    /// Writes the old pair, then the new one as a renewal does.
    fn renew(files: &IdentityFiles, new: &Issued) -> Result<(), Error> {
        save_next_key(files, &NewKey::from_pem(&new.key).unwrap())?;
        save_next_certificate(files, &new.certificate)?;
        promote(files)
    }

    #[test]
    fn every_full_disk_during_a_renewal_leaves_a_pair_and_the_next_try_succeeds() {
        let (old, new) = (pair(1), pair(2));
        let mut faults = 0;
        for at in 1.. {
            let dir = tempfile::tempdir().unwrap();
            let plain = files(dir.path(), None);
            plain.write(&plain.certificate, &old.certificate).unwrap();
            plain.write(&plain.key, &old.key).unwrap();
            let failed = renew(&files(dir.path(), Some(&format!("full@{at}"))), &new).is_err();
            let found = newest(&plain.certificate, &plain.key, read).unwrap();
            assert!(found == old || found.certificate == new.certificate, "fault {at}");
            assert!(expiry_if_fitting(&found).is_some(), "fault {at}");
            renew(&plain, &new).unwrap();
            let found = newest(&plain.certificate, &plain.key, read).unwrap();
            assert_eq!(found.certificate, new.certificate, "fault {at}");
            assert!(!is_pending(&plain), "fault {at}");
            if !failed {
                break;
            }
            faults = at;
        }
        assert!(faults > 8, "{faults}");
    }

    #[test]
    fn a_key_without_its_certificate_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path(), None);
        let old = pair(1);
        files.write(&files.certificate, &old.certificate).unwrap();
        files.write(&files.key, &old.key).unwrap();
        let key = NewKey::generate().unwrap();
        save_next_key(&files, &key).unwrap();
        assert_eq!(newest(&files.certificate, &files.key, read).unwrap(), old);
        assert_eq!(pending_key(&files).unwrap().key(), key.key());
    }
}
