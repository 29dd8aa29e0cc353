//! A renewal writes the new certificate and key beside the old ones, `client.pem.next` and `client.key.next`, and puts them in their
//! place when they were used; [`newest_pair`] says which pair counts meanwhile.

use std::path::Path;

use fl_proto::{Issued, NewKey, PairFiles, newest_pair, next_path};

use crate::error::Error;
use crate::identity::files::IdentityFiles;

/// The newest pair at these paths, read by `read`.
pub(crate) fn newest(
    certificate: &Path,
    key: &Path,
    read: impl Fn(&Path) -> Result<String, Error>,
) -> Result<Issued, Error> {
    Ok(newest_pair(certificate, key, read)?.0)
}

pub(crate) fn pending_key(files: &IdentityFiles) -> Option<NewKey> {
    let text = std::fs::read_to_string(next_path(&files.key)).ok()?;
    NewKey::from_pem(&text).ok()
}

pub(crate) fn save_next_key(files: &IdentityFiles, key: &NewKey) -> Result<(), Error> {
    files.write(&next_path(&files.key), &key.to_pem())
}

/// Writes the certificate of a renewal: from now on [`newest`] returns the new pair.
pub(crate) fn save_next_certificate(files: &IdentityFiles, pem: &str) -> Result<(), Error> {
    files.write(&next_path(&files.certificate), pem)
}

/// Whether a new pair waits for its first use.
pub(crate) fn is_pending(files: &IdentityFiles) -> bool {
    next_path(&files.certificate).exists()
}

/// Removes a new pair that the server does not accept: the old one is in use again.
pub(crate) fn discard(files: &IdentityFiles) -> Result<(), Error> {
    for path in [next_path(&files.certificate), next_path(&files.key)] {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(&path, "remove", &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a new certificate is in its place and its key is not yet: a promotion was interrupted.
pub(crate) fn is_half_promoted(files: &IdentityFiles) -> bool {
    if is_pending(files) || !next_path(&files.key).exists() {
        return false;
    }
    let found = newest_pair(&files.certificate, &files.key, |path| std::fs::read_to_string(path));
    found.is_ok_and(|(_, at)| at == PairFiles::NextKey)
}

/// Puts a new pair, which was used, in the place of the old one. On an error, the pair stays readable.
pub(crate) fn promote(files: &IdentityFiles) -> Result<(), Error> {
    let certificate = next_path(&files.certificate);
    let key = next_path(&files.key);
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
        // A shorter lifetime may replace a longer one.
        let (old, new) = (pair(2), pair(1));
        let (mut faults, mut halves) = (0, 0);
        for at in 1.. {
            let dir = tempfile::tempdir().unwrap();
            let plain = files(dir.path(), None);
            plain.write(&plain.certificate, &old.certificate).unwrap();
            plain.write(&plain.key, &old.key).unwrap();
            let failed = renew(&files(dir.path(), Some(&format!("full@{at}"))), &new).is_err();
            let found = newest(&plain.certificate, &plain.key, read).unwrap();
            assert!(found == old || found.certificate == new.certificate, "fault {at}");
            assert!(fl_proto::is_pair(&found), "fault {at}");
            if is_half_promoted(&plain) {
                promote(&plain).unwrap();
                let key = std::fs::read_to_string(&plain.key).unwrap();
                assert!(key == new.key && !is_half_promoted(&plain), "fault {at}");
                halves += 1;
            }
            renew(&plain, &new).unwrap();
            let found = newest(&plain.certificate, &plain.key, read).unwrap();
            assert_eq!(found.certificate, new.certificate, "fault {at}");
            assert!(!is_pending(&plain), "fault {at}");
            if !failed {
                break;
            }
            faults = at;
        }
        assert!(faults > 8 && halves > 0, "{faults}, {halves}");
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
