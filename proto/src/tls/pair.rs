//! A certificate and its key are two files, which no file system replaces at once. A renewal writes the new ones beside them, with
//! `.next` at the end of their names, the key first; then it renames the certificate, and then the key. A reader takes the newest
//! certificate whose key is there, so a crash at any point leaves a pair.

use std::path::{Path, PathBuf};

use time::OffsetDateTime;

use crate::tls::certificate::{Issued, certificate_key, certificates_of};
use crate::tls::lifetime::Lifetime;
use crate::tls::signing_request::NewKey;

/// Which files hold the newest pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairFiles {
    /// The two files themselves.
    Both,
    /// The certificate, and the key with `.next`: a renewal did not end.
    NextKey,
    /// Both with `.next`: a renewal did not end.
    Next,
}

/// The path beside `path` where a renewal writes: with `.next` at its end.
pub fn next_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

/// The newest pair at these paths, read by `read`, and where it is. If no key fits its certificate, the two files are returned
/// as they are: the caller reports that.
///
/// # Errors
/// Those of `read`.
pub fn newest_pair<E>(
    certificate: &Path,
    key: &Path,
    read: impl Fn(&Path) -> Result<String, E>,
) -> Result<(Issued, PairFiles), E> {
    let issued = Issued {
        certificate: read(certificate)?,
        key: read(key)?,
    };
    let next_certificate = next_path(certificate);
    let next_key = next_path(key);
    if !next_key.exists() {
        return Ok((issued, PairFiles::Both));
    }
    let next_key = read(&next_key)?;
    let mut pairs = vec![(
        Issued {
            certificate: issued.certificate.clone(),
            key: next_key.clone(),
        },
        PairFiles::NextKey,
    )];
    if next_certificate.exists() {
        pairs.push((
            Issued {
                certificate: read(&next_certificate)?,
                key: next_key,
            },
            PairFiles::Next,
        ));
    }
    let begins = issued_if_fitting(&issued);
    let pairs = pairs
        .into_iter()
        .filter_map(|(pair, at)| Some((issued_if_fitting(&pair)?, pair, at)));
    // By the time of issuing: a shorter lifetime may replace a longer one. Of those issued in one second, the last.
    let newest = pairs.max_by_key(|(begins, ..)| *begins);
    Ok(match newest {
        Some((since, pair, at)) if begins.is_none_or(|begins| since >= begins) => (pair, at),
        _ => (issued, PairFiles::Both),
    })
}

/// When the certificate of a pair was issued; `None` if the key is not the certificate's.
fn issued_if_fitting(issued: &Issued) -> Option<OffsetDateTime> {
    let der = certificates_of(&issued.certificate).ok()?.into_iter().next()?;
    let key = NewKey::from_pem(&issued.key).ok()?;
    let fits = certificate_key(&der).is_ok_and(|of| of == key.key());
    fits.then(|| Lifetime::of(&der).ok()).flatten().map(|life| life.issued)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use time::Duration;

    use super::*;
    use crate::tls::Authority;

    const NAMES: [&str; 4] = ["server.pem", "server.key", "server.pem.next", "server.key.next"];

    fn pair(seconds: i64, days: i64) -> Issued {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000 + seconds).unwrap();
        let (authority, _) = Authority::create("fed", now, Duration::days(9999)).unwrap();
        authority.issue_server(now, Duration::days(days)).unwrap()
    }

    /// What a reader of a folder with these files takes.
    fn newest(files: [Option<&str>; 4]) -> (Issued, PairFiles) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in NAMES.iter().zip(files) {
            text.iter()
                .for_each(|text| std::fs::write(dir.path().join(name), text).unwrap());
        }
        let [certificate, key] = [0, 1].map(|at: usize| dir.path().join(NAMES[at]));
        newest_pair(&certificate, &key, |path| std::fs::read_to_string(path)).unwrap()
    }

    #[test]
    fn the_newest_certificate_wins_even_if_an_older_one_expires_later() {
        let (old, new) = (pair(0, 3650), pair(60, 90));
        let both = [&old, &new].map(|of| (Some(of.certificate.as_str()), Some(of.key.as_str())));
        let [(old_pem, old_key), (new_pem, new_key)] = both;
        for (files, expected, at) in [
            ([old_pem, old_key, None, None], &old, PairFiles::Both),
            ([old_pem, old_key, None, new_key], &old, PairFiles::Both),
            ([old_pem, old_key, new_pem, new_key], &new, PairFiles::Next),
            ([new_pem, old_key, None, new_key], &new, PairFiles::NextKey),
            ([new_pem, new_key, old_pem, old_key], &new, PairFiles::Both),
            ([old_pem, old_key, new_pem, None], &old, PairFiles::Both),
        ] {
            let found = newest(files);
            assert!(found == (expected.clone(), at), "{at:?}: {:?}", found.1);
        }
        let same_second = pair(0, 90);
        let next = [
            old_pem,
            old_key,
            Some(same_second.certificate.as_str()),
            Some(same_second.key.as_str()),
        ];
        assert!(newest(next) == (same_second.clone(), PairFiles::Next));
    }

    #[test]
    fn files_that_do_not_fit_are_returned_as_they_are_and_errors_of_reading_pass() {
        let (old, new) = (pair(0, 9), pair(1, 9));
        let (found, at) = newest([Some(&new.certificate), Some(&old.key), Some("junk"), Some("junk")]);
        assert_eq!(
            (found.certificate.clone(), found.key.clone(), at),
            (new.certificate.clone(), old.key.clone(), PairFiles::Both)
        );
        let (read, texts) = (RefCell::new(0), BTreeMap::from([("a", &old.certificate)]));
        let failing = |path: &Path| {
            *read.borrow_mut() += 1;
            texts
                .get(path.to_str().unwrap())
                .map(|&text| text.clone())
                .ok_or("no such file")
        };
        assert_eq!(
            newest_pair(Path::new("a"), Path::new("b"), failing).unwrap_err(),
            "no such file"
        );
        assert_eq!(*read.borrow(), 2);
    }
}
