//! What `check` says about a server.toml: each group of checks is a file, which returns lines.

mod disk;
mod files;
mod holder;
mod ports;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use fl_cli::Format;
use fl_cli::findings::{Findings, Level, Line};
use serde::Serialize;

use crate::config::revoked;
use crate::config::server::ServerConfig;

#[derive(Debug, Serialize)]
pub(super) struct CheckedServer {
    file: PathBuf,
    listen: SocketAddr,
    /// Files that it names and that do not exist yet.
    missing: Vec<PathBuf>,
    /// Of the list of revoked clients.
    warnings: Vec<String>,
    verdict: Level,
    lines: Vec<Line>,
}

/// The groups, in their order.
const GROUPS: [fn(&ServerConfig) -> Vec<Line>; 4] = [files::certificates, files::keys, ports::lines, disk::lines];

impl CheckedServer {
    /// Checks the files that the configuration names, its ports, and this machine. With `format` text, prints each line.
    pub(super) fn new(file: &Path, config: &ServerConfig, format: Format) -> anyhow::Result<(Self, Option<String>)> {
        let mut findings = Findings::new(format);
        let listens = format!("{}: valid: listens on {}", file.display(), config.listen);
        findings.push(Line::good("configuration", listens))?;
        for group in GROUPS {
            findings.extend(group(config))?;
        }
        let issued = file
            .parent()
            .and_then(|folder| crate::cli::issued::IssuedList::of(folder).names());
        let warnings = revoked::faults(&config.revoked, issued.as_ref());
        findings.extend(
            warnings
                .iter()
                .map(|why| Line::warning("revoked", why, "correct the line, or delete it")),
        )?;
        let checked = Self {
            file: file.to_owned(),
            listen: config.listen,
            missing: files::missing(config),
            warnings,
            verdict: findings.verdict(),
            lines: findings.lines().to_vec(),
        };
        Ok((checked, findings.faults(|_| true)))
    }
}
