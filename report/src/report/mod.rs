//! The data of a report: what a run cost and gained.

pub(crate) mod client;
pub(crate) mod costs;
pub(crate) mod flow;
pub(crate) mod measures;
pub(crate) mod notes;
pub(crate) mod participation;
pub(crate) mod round;
pub(crate) mod run;
pub(crate) mod saving;
pub(crate) mod settings;
pub(crate) mod stages;
pub(crate) mod tensor;

use serde::{Deserialize, Serialize};

use crate::report::client::ClientLine;
use crate::report::costs::Costs;
use crate::report::flow::Flow;
use crate::report::participation::Participation;
use crate::report::round::RoundLine;
use crate::report::run::{Baseline, Run};
use crate::report::saving::Saving;
use crate::report::settings::Settings;
use crate::report::tensor::TensorLine;
use crate::table::line::deserialize;
use crate::table::serialize;

/// Version of the names of keys and columns. A name that is added keeps the version; one that is renamed or changes its
/// meaning raises it.
pub const SCHEMA: u32 = 1;

/// What a run cost and gained. [`json`](crate::json()) writes this struct, each table as an object of columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the names: [`SCHEMA`].
    pub schema: u32,
    /// Which run, and its state.
    pub run: Run,
    /// What was run.
    pub settings: Settings,
    /// Bytes of the whole run.
    pub totals: Flow,
    /// The part of `totals` that a running server has not written to disk yet. A kill would lose these bytes.
    pub pending: Flow,
    /// Bytes read from all sockets, counted by the meter and not by client; of a running server up to this moment.
    pub metered_up: u64,
    /// Bytes written to all sockets, counted by the meter and not by client.
    pub metered_down: u64,
    /// Whether the ledger equals the meter, to the byte, in every round.
    pub balanced: bool,
    /// What other ways of training would have sent for the same cohorts and rounds.
    pub baselines: Vec<Baseline>,
    /// The closed rounds and the open one.
    #[serde(serialize_with = "serialize", deserialize_with = "deserialize")]
    pub rounds: Vec<RoundLine>,
    /// Clients, in the order of names.
    #[serde(serialize_with = "serialize", deserialize_with = "deserialize")]
    pub clients: Vec<ClientLine>,
    /// Clients in rounds, in the order of rounds and names.
    #[serde(serialize_with = "serialize", deserialize_with = "deserialize")]
    pub participations: Vec<Participation>,
    /// Sections of frames, by round, direction and place in the frame.
    #[serde(serialize_with = "serialize", deserialize_with = "deserialize")]
    pub tensors: Vec<TensorLine>,
    /// The largest costs and how to reduce them: see [`savings`](crate::savings()).
    #[serde(serialize_with = "serialize", deserialize_with = "deserialize")]
    pub savings: Vec<Saving>,
    /// What the run cost in money and carbon, if prices were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
}

/// A report without its tables and costs.
#[derive(Debug, Serialize)]
pub(crate) struct Summary<'a> {
    schema: u32,
    run: &'a Run,
    settings: &'a Settings,
    totals: &'a Flow,
    pending: &'a Flow,
    metered_up: u64,
    metered_down: u64,
    balanced: bool,
    baselines: &'a [Baseline],
}

impl Report {
    pub(crate) fn summary(&self) -> Summary<'_> {
        Summary {
            schema: self.schema,
            run: &self.run,
            settings: &self.settings,
            totals: &self.totals,
            pending: &self.pending,
            metered_up: self.metered_up,
            metered_down: self.metered_down,
            balanced: self.balanced,
            baselines: &self.baselines,
        }
    }

    /// Finds a baseline by name.
    pub fn baseline(&self, name: &str) -> Option<&Baseline> {
        self.baselines.iter().find(|baseline| baseline.name == name)
    }

    /// Accuracy of the newest evaluated model.
    pub fn accuracy(&self) -> Option<f64> {
        self.rounds.iter().rev().find_map(|round| round.accuracy)
    }

    /// Perplexity of the newest evaluated model, if the model of some client does not classify.
    pub fn perplexity(&self) -> Option<f64> {
        let mut newest = self.rounds.iter().rev();
        newest.find(|round| round.evaluation_loss.is_some())?.perplexity
    }

    /// Finds a round by number.
    pub fn round(&self, round: u64) -> Option<&RoundLine> {
        self.rounds.iter().find(|line| line.round == round)
    }

    /// The closed rounds.
    pub(crate) fn closed(&self) -> impl Iterator<Item = &RoundLine> + Clone {
        self.rounds.iter().filter(|line| line.closed)
    }

    /// Finds a client by name.
    pub fn client(&self, client: &str) -> Option<&ClientLine> {
        self.clients.iter().find(|line| line.client == client)
    }
}
