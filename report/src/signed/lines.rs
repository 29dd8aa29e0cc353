//! The lines that are not rows of a table: the first one and the last three.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::flow::Flow;
use crate::report::run::Baseline;
use crate::report::{Report, Summary};
use crate::signed::format::{CLIENT, FORMAT, PARTICIPATION, ROUND, TENSOR, VERSION};

/// The first line for writing: the report without its tables, and the number of lines of each table.
#[derive(Debug, Serialize)]
pub(super) struct Header<'a> {
    pub(super) kind: &'static str,
    pub(super) format: &'static str,
    pub(super) version: u32,
    #[serde(flatten)]
    pub(super) summary: Summary<'a>,
    /// Lines by kind.
    pub(super) lines: BTreeMap<&'static str, usize>,
}

impl<'a> Header<'a> {
    pub(super) fn of(report: &'a Report) -> Self {
        Self {
            kind: "header",
            format: FORMAT,
            version: VERSION,
            summary: report.summary(),
            lines: BTreeMap::from([
                (ROUND, report.rounds.len()),
                (CLIENT, report.clients.len()),
                (PARTICIPATION, report.participations.len()),
                (TENSOR, report.tensors.len()),
            ]),
        }
    }
}

/// The first line for reading. Ignores members that it does not know; missing ones are empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReadHeader {
    pub(super) run: ReadRun,
    pub(super) totals: Flow,
    pub(super) metered_up: u64,
    pub(super) metered_down: u64,
    pub(super) balanced: bool,
    pub(super) baselines: Vec<Baseline>,
    pub(super) lines: BTreeMap<String, u64>,
}

/// The run.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReadRun {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) chain: String,
}

/// The third line from the end: the certificate of the authority that issued the server's. PEM.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AuthorityLine<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) authority: Cow<'a, str>,
}

/// The second line from the end: the certificate of the server that signed. PEM.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CertificateLine<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) certificate: Cow<'a, str>,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SignatureLine<'a> {
    pub(super) kind: Cow<'a, str>,
    /// `ecdsa-p256-sha256` (DER) or `ed25519`.
    pub(super) algorithm: Cow<'a, str>,
    /// Hexadecimal.
    pub(super) signature: Cow<'a, str>,
}
