//! The columns of rows that are compared. Columns that a line lacks are zero or missing.

use std::borrow::Cow;

use serde::Deserialize;

use crate::report::flow::Flow;
use crate::report::stages::StageBytes;

/// Reads a row.
///
/// # Errors
/// Why the line is not a row, for a person.
pub(super) fn row<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|e| e.to_string())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RoundRow {
    pub(super) round: u64,
    pub(super) updates: u64,
    pub(super) examples: u64,
    pub(super) framed_down: u64,
    pub(super) metered_up: u64,
    pub(super) metered_down: u64,
    pub(super) balanced: bool,
    pub(super) link: String,
    pub(super) accuracy: Option<f64>,
    pub(super) density_up: Option<f64>,
    pub(super) density_down: Option<f64>,
    /// With the suffix `_up`.
    #[serde(flatten)]
    pub(super) stages: StageBytes,
    #[serde(flatten)]
    pub(super) flow: Flow,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClientRow {
    pub(super) client: String,
    pub(super) updates: u64,
    pub(super) examples: u64,
    pub(super) framed: u64,
    #[serde(flatten)]
    pub(super) flow: Flow,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ParticipationRow<'a> {
    pub(super) round: u64,
    #[serde(borrow)]
    pub(super) client: Cow<'a, str>,
    pub(super) updated: bool,
    pub(super) examples: u64,
    #[serde(flatten)]
    pub(super) stages: StageBytes,
    #[serde(flatten)]
    pub(super) flow: Flow,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TensorRow<'a> {
    pub(super) round: u64,
    #[serde(borrow)]
    pub(super) direction: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) tensor: Cow<'a, str>,
    pub(super) recipe_bytes: u64,
    pub(super) index_bytes: u64,
    pub(super) scale_bytes: u64,
    pub(super) value_bytes: u64,
    pub(super) bytes: u64,
    pub(super) density: Option<f64>,
}
