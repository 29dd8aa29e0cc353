//! The settings of a run: its plan, the plan in words, and the frames that its budgets ask for.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What was run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Settings {
    /// The plan in words: see [`words`](crate::words()).
    pub words: Vec<(String, String)>,
    /// The plan in canonical form, every default included; of a plan that cannot be read, its codecs.
    pub plan: Value,
    /// The run.toml that the run began with.
    pub run_toml: String,
    /// What the budget asks of an update's frame.
    pub budget_up: Option<FrameBudget>,
    /// What the budget asks of a model update's frame.
    pub budget_down: Option<FrameBudget>,
}

/// What a budget asks of the frames of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrameBudget {
    /// Bytes of a frame.
    pub bytes: u64,
    /// The limit of the relative error, with which a frame may exceed these bytes: a number, and by which round another one.
    pub error: Option<String>,
}

const SHOWN_OF_CODEC: &[&str] = &["budget", "default", "memory"];
/// Parts of a plan in the order of a summary: name, place in the plan, and the keys that are shown; none for all.
const PARTS: [(&str, &str, &[&str]); 7] = [
    ("train", "/train", &[]),
    ("updates", "/uplink", SHOWN_OF_CODEC),
    ("model updates", "/downlink", SHOWN_OF_CODEC),
    ("cohort", "/cohort", &["size", "min", "target"]),
    ("aggregator", "/aggregator", &[]),
    ("optimizer", "/optimizer", &[]),
    ("seed", "/seed", &[]),
];

/// A plan in words: its parts, each with its keys and their values, without those that are zero or not set. `learner`: the
/// learner that made the first weights, if it is known.
pub fn words(learner: Option<&str>, plan: &Value) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for (name, place, keys) in &PARTS {
        let text = plan.pointer(place).and_then(|value| text("", value, keys));
        out.extend(text.map(|text| ((*name).to_owned(), text)));
    }
    out.extend(learner.map(|learner| ("learner".to_owned(), learner.to_owned())));
    out
}

/// A value with its key, `None` if it is zero, empty or not set.
fn text(key: &str, value: &Value, shown: &[&str]) -> Option<String> {
    let text = match value {
        Value::Null | Value::Bool(false) => return None,
        Value::Number(number) if !key.is_empty() && number.as_f64() == Some(0.0) => return None,
        Value::String(text) => text.clone(),
        codec if key == "default" => {
            let names = ["reduce", "quantize", "code"]
                .into_iter()
                .filter_map(|stage| match &codec[stage] {
                    Value::Object(method) => method.keys().next().map(String::as_str),
                    method => method.as_str(),
                });
            return Some(names.collect::<Vec<_>>().join(" > "));
        }
        Value::Object(table) => {
            let mut keys: Vec<&str> = table.keys().map(String::as_str).collect();
            keys.retain(|key| shown.is_empty() || shown.contains(key));
            keys.sort_by_key(|key| (shown.iter().position(|shown| shown == key), *key != "name"));
            let parts: Vec<String> = keys.iter().filter_map(|key| text(key, &table[*key], &[])).collect();
            parts.join(", ")
        }
        value => value.to_string(),
    };
    let is_bare = matches!(key, "" | "name");
    (!text.is_empty()).then(|| if is_bare { text } else { format!("{key} {text}") })
}
