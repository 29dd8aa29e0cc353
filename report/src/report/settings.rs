//! The settings of a run: the plan in words, and the frames that its budgets ask for.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A part of the plan in words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Setting {
    /// `train`, `updates`, `model updates`, `aggregator`, ..
    pub name: String,
    /// Keys of run.toml with their values: `learning_rate 0.1, epochs 1`. Keys that are zero or not set are left out.
    pub value: String,
}

/// What a budget asks of the frames of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FrameBudget {
    /// Bytes of a frame.
    pub bytes: u64,
    /// The limit of the relative error, with which a frame may exceed these bytes.
    pub error: Option<f64>,
}

/// Keys of a codec that a summary shows.
const CODEC: &[&str] = &["budget", "default", "memory"];
/// Parts of a plan in the order of a report: the name, the place in the plan, the keys that come first, and whether other keys
/// are shown.
const PARTS: [(&str, &str, &[&str], bool); 10] = [
    (
        "train",
        "/train",
        &["learning_rate", "epochs", "steps", "batch_size"],
        true,
    ),
    ("train.extra", "/extra", &[], true),
    ("updates", "/uplink", CODEC, false),
    ("model updates", "/downlink", CODEC, false),
    ("cohort", "/cohort", &["size", "min", "target", "deadline"], false),
    ("aggregator", "/aggregator", &["name"], true),
    ("optimizer", "/optimizer", &["name"], true),
    ("average", "/average", &[], true),
    ("stop_at", "/stop_at", &[], true),
    ("seed", "/seed", &[], true),
];

/// The settings of a run in words. `learner`: the learner that made the first weights, if it is known. `plan`: the plan in
/// canonical form.
pub fn settings(learner: Option<&str>, plan: &Value) -> Vec<Setting> {
    let parts = PARTS.iter().filter_map(|(name, place, first, rest)| {
        let value = words("", plan.pointer(place)?, first, *rest)?;
        Some((*name, value))
    });
    let learner = learner.map(|learner| ("learner", learner.to_owned()));
    let setting = |(name, value): (&str, String)| Setting {
        name: name.to_owned(),
        value,
    };
    parts.chain(learner).map(setting).collect()
}

/// A value with its key, `None` if it is zero, empty or not set. `first`: keys of a table that come before the others, which
/// are shown if `rest` is set.
fn words(key: &str, value: &Value, first: &[&str], rest: bool) -> Option<String> {
    let text = match (key, value) {
        (_, Value::Null | Value::Bool(false)) => return None,
        ("default", codec) => return Some(pipeline(codec)),
        ("name", Value::String(name)) => return Some(name.clone()),
        (_, Value::String(text)) => text.clone(),
        (_, Value::Object(table)) => {
            let others = table.keys().map(String::as_str);
            let others = others.filter(|key| rest && !first.contains(key));
            let keys = first.iter().copied().chain(others);
            let parts: Vec<String> = keys.filter_map(|key| words(key, table.get(key)?, &[], true)).collect();
            match key {
                _ if parts.is_empty() => return None,
                "" => parts.join(", "),
                _ => format!("({})", parts.join(", ")),
            }
        }
        (_, Value::Array(values)) if values.is_empty() => return None,
        ("", value) => value.to_string(),
        // Times of a plan are in milliseconds.
        ("deadline", Value::Number(number)) => format!("{} s", number.as_f64()? / 1000.0),
        (_, Value::Number(number)) if number.as_f64() == Some(0.0) => return None,
        (_, value) => value.to_string(),
    };
    Some(match key {
        "" => text,
        key => format!("{key} {text}"),
    })
}

/// The methods of a codec, without their numbers: `auto > dead_zone > context`.
fn pipeline(codec: &Value) -> String {
    let name = |key| match codec.get(key)? {
        Value::Object(method) => method.keys().next().map(String::as_str),
        method => method.as_str(),
    };
    let names: Vec<&str> = ["reduce", "quantize", "code"].into_iter().filter_map(name).collect();
    let or = codec.get("or").map_or("", |_| ", or another");
    format!("{}{or}", names.join(" > "))
}
