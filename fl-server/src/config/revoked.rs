//! The list of revoked clients: a file with a name or fingerprint in each line, or a folder with a file for each.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use fl_proto::{ClientId, Fingerprint};
use tokio::time::Instant;

use crate::lock::lock;
use crate::rate_limited::LogLimit;

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Name(ClientId),
    Certificate(Fingerprint),
}

/// The entries, and the lines that are neither a name nor a fingerprint.
#[derive(Debug, Default, PartialEq, Eq)]
struct List {
    entries: Vec<Entry>,
    unknown: Vec<String>,
}

/// The prefix in the output of `openssl x509 -fingerprint -sha256`, in lower case and without spaces.
const OPENSSL: &str = "sha256fingerprint=";

impl List {
    /// Reads lines; `#` begins a comment.
    fn of<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut list = Self::default();
        for line in lines {
            let text = line.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            match entry(text) {
                Some(entry) => list.entries.push(entry),
                None => list.unknown.push(text.chars().take(80).collect()),
            }
        }
        list
    }
}

fn entry(text: &str) -> Option<Entry> {
    let packed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let packed = packed.to_ascii_lowercase();
    let digits = packed.strip_prefix(OPENSSL).unwrap_or(&packed);
    let digits = digits.strip_prefix("sha256:").unwrap_or(digits);
    if let Ok(fingerprint) = format!("sha256:{digits}").parse() {
        return Some(Entry::Certificate(fingerprint));
    }
    text.parse().ok().map(Entry::Name)
}

/// Reads the list at `path`; empty if it does not exist.
fn read(path: &Path) -> io::Result<List> {
    let found = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(List::default()),
        found => found?,
    };
    if found.is_dir() {
        let names = std::fs::read_dir(path)?.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
        let names = names.collect::<io::Result<Vec<_>>>()?;
        return Ok(List::of(names.iter().map(String::as_str)));
    }
    if !found.is_file() {
        // Reading a pipe would wait for a writer.
        return Err(io::Error::other("neither a file nor a folder"));
    }
    Ok(List::of(
        fl_compress::text::read(std::fs::File::open(path)?, u64::MAX)?.lines(),
    ))
}

/// Whether the list at `path` has the client or its certificate. Logs lines that are neither a name nor a fingerprint.
pub(crate) fn names(path: &Path, client: &ClientId, fingerprint: &Fingerprint) -> io::Result<bool> {
    static WARNED: Mutex<Option<LogLimit>> = Mutex::new(None);
    let list = read(path).inspect_err(|error| {
        tracing::error!(path = %path.display(), %error, "cannot read the list of revoked clients: no client is admitted");
    })?;
    if !list.unknown.is_empty() {
        let mut warned = lock(&WARNED);
        if warned.get_or_insert_default().due(Instant::now()).is_some() {
            tracing::error!(path = %path.display(), lines = ?list.unknown, "{UNKNOWN}");
        }
    }
    Ok(list.entries.iter().any(|entry| match entry {
        Entry::Name(name) => name == client,
        Entry::Certificate(listed) => listed == fingerprint,
    }))
}

const UNKNOWN: &str = "lines in the list of revoked clients are neither a name nor a fingerprint and have no effect";

/// The errors in the list at `path`: a sentence for each line without effect. `issued`: names of clients with a certificate,
/// if known.
pub(crate) fn faults(path: &Path, issued: Option<&BTreeSet<String>>) -> Vec<String> {
    let list = match read(path) {
        Ok(list) => list,
        Err(error) => return vec![format!("{}: {error}; no client is admitted", path.display())],
    };
    let shown = path.display();
    let unknown = list
        .unknown
        .iter()
        .map(|line| format!("{shown}: `{line}` is neither a name nor a fingerprint and has no effect"));
    let stranger = list.entries.iter().filter_map(|entry| match entry {
        Entry::Name(name) if issued.is_some_and(|issued| !issued.contains(name.as_str())) => {
            Some(format!("{shown}: no certificate was issued for `{name}`"))
        }
        _ => None,
    });
    unknown.chain(stranger).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "b1ca0000000000000000000000000000000000000000000000000000000000ff";

    #[test]
    fn names_and_fingerprints_are_read_as_people_write_them() {
        let colons: Vec<&str> = (0..32).map(|at| &DIGITS[2 * at..2 * at + 2]).collect();
        let colons = colons.join(":").to_uppercase();
        let fingerprint = Entry::Certificate(format!("sha256:{DIGITS}").parse().unwrap());
        for text in [
            format!("sha256:{DIGITS}"),
            DIGITS.to_owned(),
            colons.clone(),
            format!("sha256 Fingerprint={colons}"),
            format!("SHA256 Fingerprint={colons}  # stolen"),
        ] {
            assert_eq!(
                List::of([text.as_str()].into_iter()).entries,
                std::slice::from_ref(&fingerprint),
                "{text}"
            );
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revoked");
        std::fs::write(&path, "\u{feff}anna\r\n\n# gone\nberta # stolen").unwrap();
        let list = read(&path).unwrap();
        let names = ["anna", "berta"].map(|name| Entry::Name(name.parse().unwrap()));
        assert_eq!((list.entries.as_slice(), list.unknown.len()), (&names[..], 0));
    }

    #[test]
    fn lines_that_revoke_nobody_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revoked");
        assert_eq!(faults(&path, None), [""; 0]);
        std::fs::write(&path, "anna,berta\nsha256:12\ncleo\n").unwrap();
        let issued = BTreeSet::from(["anna".to_owned()]);
        let found = faults(&path, Some(&issued)).join("\n");
        for part in [
            "`anna,berta` is neither",
            "`sha256:12` is neither",
            "no certificate was issued for `cleo`",
        ] {
            assert!(found.contains(part), "{found}");
        }
    }
}
