//! What `check` says about a server.toml.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::failure::Failure;
use crate::cli::issued::Issued;
use crate::cli::source;
use crate::config::revoked;
use crate::config::server::ServerConfig;

/// A valid server.toml.
#[derive(Debug, Serialize)]
pub(super) struct CheckedServer {
    file: PathBuf,
    listen: SocketAddr,
    /// Files that it names and that do not exist yet.
    missing: Vec<PathBuf>,
    warnings: Vec<String>,
}

impl CheckedServer {
    /// Checks the files that the configuration names.
    ///
    /// # Errors
    /// If certificates or the page cannot be used.
    pub(super) fn new(file: &Path, config: &ServerConfig) -> Result<Self, Failure> {
        let files = [&config.authority, &config.certificate, &config.key];
        if files.iter().all(|file| file.exists()) {
            source::certificates(config)?;
        }
        if let Some(address) = config.admin {
            source::page(config, address)?;
        }
        let issued = file.parent().and_then(|folder| Issued::of(folder).names());
        Ok(Self {
            file: file.to_owned(),
            listen: config.listen,
            missing: files.into_iter().filter(|path| !path.exists()).cloned().collect(),
            warnings: revoked::faults(&config.revoked, issued.as_ref()),
        })
    }

    pub(super) fn text(&self) -> String {
        let mut out = format!("{}: valid: listens on {}\n", self.file.display(), self.listen);
        for warning in &self.warnings {
            let _ = writeln!(out, "  WARNING: {warning}");
        }
        for path in &self.missing {
            let _ = writeln!(out, "  note: {} is not there yet", path.display());
        }
        out
    }
}
