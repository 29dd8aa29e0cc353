//! The lines that are not rows of a table: the first, and the last three.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::flow::Flow;
use crate::report::{Baseline, Report, Run};

/// The first line, as it is written: the report without its tables, and how many lines they have.
#[derive(Debug, Serialize)]
pub(super) struct Header<'a> {
    pub(super) kind: &'static str,
    pub(super) format: &'static str,
    pub(super) version: u32,
    pub(super) schema: u32,
    pub(super) run: &'a Run,
    pub(super) totals: &'a Flow,
    pub(super) pending: &'a Flow,
    pub(super) metered_up: u64,
    pub(super) metered_down: u64,
    pub(super) balanced: bool,
    pub(super) baselines: &'a [Baseline],
    /// By kind.
    pub(super) lines: BTreeMap<&'static str, usize>,
}

impl<'a> Header<'a> {
    pub(super) fn of(report: &'a Report) -> Self {
        Self {
            kind: "header",
            format: super::FORMAT,
            version: super::VERSION,
            schema: report.schema,
            run: &report.run,
            totals: &report.totals,
            pending: &report.pending,
            metered_up: report.metered_up,
            metered_down: report.metered_down,
            balanced: report.balanced,
            baselines: &report.baselines,
            lines: BTreeMap::from([
                (ROUND, report.rounds.len()),
                (CLIENT, report.clients.len()),
                (PARTICIPATION, report.participations.len()),
                (TENSOR, report.tensors.len()),
            ]),
        }
    }
}

pub(super) const ROUND: &str = "round";
pub(super) const CLIENT: &str = "client";
pub(super) const PARTICIPATION: &str = "participation";
pub(super) const TENSOR: &str = "tensor";

/// The first line, as it is read: what later programs add is passed over, what earlier ones had not is empty.
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

/// Which run it is of.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReadRun {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) chain: String,
}

/// The last line but two: who issued the server's certificate. PEM.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AuthorityLine<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) authority: Cow<'a, str>,
}

/// The last line but one: whose signature it is. PEM.
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
