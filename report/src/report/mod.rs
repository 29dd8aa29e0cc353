//! The report of a run.

use serde::{Deserialize, Serialize};

use crate::columns::{deserialize, serialize};
use crate::costs::Costs;
use crate::flow::Flow;
use crate::lines::{ClientLine, Participation, RoundLine, TensorLine};
use crate::savings::Saving;

/// Version of the report's names. Columns are added at times; one is renamed or given another meaning only with another
/// version.
pub const SCHEMA: u32 = 1;

/// What a run cost and gained. This is also the JSON that `report --format json` writes, in which every table is an
/// object of columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the names: [`SCHEMA`].
    pub schema: u32,
    /// Which run.
    pub run: Run,
    /// Bytes of the whole run.
    pub totals: Flow,
    /// What of these bytes a running server has not written to disk yet, and would lose if it were killed now.
    #[serde(default)]
    pub pending: Flow,
    /// Bytes read from all sockets, counted apart from the clients' rows; of a running server up to this moment.
    pub metered_up: u64,
    /// Bytes written to them.
    pub metered_down: u64,
    /// Whether the ledger is what the meter counted, to the byte, in every round.
    pub balanced: bool,
    /// What other ways of training would have sent for the same cohorts and rounds.
    pub baselines: Vec<Baseline>,
    /// Rounds that closed, and the one that is open.
    #[serde(serialize_with = "serialize", deserialize_with = "deserialize")]
    pub rounds: Vec<RoundLine>,
    /// Clients, by name.
    #[serde(serialize_with = "serialize", deserialize_with = "deserialize")]
    pub clients: Vec<ClientLine>,
    /// Clients in rounds, by round and name.
    #[serde(serialize_with = "serialize", deserialize_with = "deserialize")]
    pub participations: Vec<Participation>,
    /// Sections of frames, by round, direction and place in the frame.
    #[serde(serialize_with = "serialize", deserialize_with = "deserialize")]
    pub tensors: Vec<TensorLine>,
    /// The largest costs, and what to change to save: see [`savings`](crate::savings()).
    #[serde(default, serialize_with = "serialize", deserialize_with = "deserialize")]
    pub savings: Vec<Saving>,
    /// What it cost in money and carbon, where prices were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
}

/// Which run a report is of, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// Its task.
    pub task: String,
    /// `waiting`, `round N`, `done` or `failed in round N: why`.
    pub state: String,
    /// Rounds planned.
    pub planned: u64,
    /// Parameters of the model.
    pub parameters: u64,
    /// Newest model version.
    pub version: u64,
    /// Its digest.
    pub model: String,
    /// Tells the run from others of its name.
    pub instance: String,
    /// When the first record was made, in milliseconds since 1970; 0 if there is none.
    pub opened_ms: u64,
    /// When the newest was.
    pub until_ms: u64,
    /// The newest link of the chain of rounds; empty if there is none.
    pub chain: String,
}

/// What another way of training would have sent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Baseline {
    /// `fedavg-fp32` or `fedavg-fp16`.
    pub name: String,
    /// The newest round that it counts as a whole, 0 for none. A round counts once its model has reached the clients: when the
    /// next one has closed, and the last one when the run is done. Of clients that are connected then, a model each
    /// counts when they have gone.
    #[serde(default)]
    pub through: u64,
    /// All values of each update of these rounds.
    pub up: u64,
    /// All values for each client asked in them, and for each that evaluated the last model.
    pub down: u64,
    /// Its bytes over the bytes of all frames sent. Frames of later rounds are among them: the ratio of an unfinished run is
    /// too low rather than too high.
    pub frames_ratio: f64,
    /// Its bytes over everything on the sockets; likewise.
    pub socket_ratio: f64,
}

impl Report {
    /// The baseline of this name.
    pub fn baseline(&self, name: &str) -> Option<&Baseline> {
        self.baselines.iter().find(|baseline| baseline.name == name)
    }

    /// The accuracy of the newest model that was evaluated.
    pub fn accuracy(&self) -> Option<f64> {
        self.rounds.iter().rev().find_map(|round| round.accuracy)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn report() -> Report {
        let flow = Flow {
            update: 10,
            socket_up: 20,
            ..Flow::default()
        };
        Report {
            schema: SCHEMA,
            run: Run {
                name: "digits".into(),
                ..Run::default()
            },
            totals: flow,
            pending: Flow::default(),
            metered_up: 20,
            metered_down: 0,
            balanced: true,
            baselines: vec![Baseline {
                name: "fedavg-fp32".into(),
                ..Baseline::default()
            }],
            rounds: vec![RoundLine {
                round: 1,
                accuracy: Some(0.5),
                flow,
                ..RoundLine::default()
            }],
            clients: Vec::new(),
            participations: vec![Participation {
                round: 1,
                client: "anna".into(),
                flow,
                ..Participation::default()
            }],
            tensors: vec![TensorLine::default()],
            savings: Vec::new(),
            costs: None,
        }
    }

    #[test]
    fn a_report_survives_its_json_whose_tables_are_objects_of_columns() {
        let text = serde_json::to_string(&report()).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["participations"]["client"], serde_json::json!(["anna"]));
        assert_eq!(json["participations"]["socket_up"], serde_json::json!([20]));
        assert_eq!(json["rounds"]["loss"], serde_json::json!([null]));
    }

    #[test]
    fn a_table_with_a_column_missing_or_cut_short_is_refused_by_name() {
        let json = serde_json::to_value(report()).unwrap();
        let refused = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut json = json.clone();
            change(&mut json["rounds"]);
            serde_json::from_str::<Report>(&json.to_string())
                .unwrap_err()
                .to_string()
        };
        assert!(
            refused(&|rounds| drop(rounds.as_object_mut().unwrap().remove("steps"))).contains("`steps` is missing")
        );
        assert!(
            refused(&|rounds| rounds["accuracy"] = serde_json::json!([])).contains("`accuracy` has another length")
        );
        assert!(refused(&|rounds| rounds["socket_up"] = serde_json::json!([])).contains("`socket_up`"));
    }
}
