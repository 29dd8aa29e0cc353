//! The list of certificates that a federation has issued: the file `issued`, with a line `NAME FINGERPRINT DATE` for each. The
//! server does not read it; operators take the fingerprints to revoke from it.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use fl_proto::{ClientId, Fingerprint};
use time::OffsetDateTime;

use crate::cli::failure::{Failure, Outcome};

#[derive(Debug)]
pub(super) struct IssuedList(PathBuf);

impl IssuedList {
    /// The list in the federation's folder. May be missing.
    pub(super) fn of(folder: &Path) -> Self {
        Self(folder.join("issued"))
    }

    /// Fingerprints of the certificates that `name` has, the oldest first.
    pub(super) fn fingerprints(&self, name: &ClientId) -> Result<Vec<Fingerprint>, Failure> {
        let path = self.0.display();
        let text = match std::fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(anyhow!(error).context(format!("cannot read {path}")).into()),
        };
        let mut found = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let mut words = line.split_whitespace();
            match (words.next(), words.next().and_then(|word| word.parse().ok())) {
                (Some(client), Some(fingerprint)) if client == name.as_str() => found.push(fingerprint),
                (Some(_), Some(_)) | (None, _) => {}
                (Some(_), None) => {
                    let why = "no fingerprint; correct the line or remove it";
                    return Err(Failure::usage(anyhow!("{path}, line {number}: {why}")));
                }
            }
        }
        Ok(found)
    }

    /// Names that have a certificate; `None` if the list cannot be read.
    pub(super) fn names(&self) -> Option<BTreeSet<String>> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        let names = text.lines().filter_map(|line| line.split_whitespace().next());
        Some(names.map(str::to_owned).collect())
    }

    /// Adds a certificate.
    pub(super) fn add(&self, name: &ClientId, fingerprint: &Fingerprint, until: OffsetDateTime) -> Outcome {
        let line = format!("{name} {fingerprint} {}\n", until.date());
        let open = OpenOptions::new().append(true).create(true).mode(0o644).open(&self.0);
        open.and_then(|mut file| file.write_all(line.as_bytes()).and_then(|()| file.sync_all()))
            .with_context(|| format!("cannot write {}", self.0.display()))?;
        Ok(())
    }
}
