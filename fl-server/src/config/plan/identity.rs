//! The identity of an experiment: all values of the plan that can change its outcome, in canonical form.

use std::collections::BTreeSet;

use fl_compress::Digest;
use serde::Serialize;
use serde_json::Value;

use crate::config::plan::run_plan::RunPlan;

/// The canonical form of a plan.
#[derive(Serialize)]
struct Identity<'a> {
    version: u32,
    #[serde(flatten)]
    plan: &'a RunPlan,
}

impl RunPlan {
    /// The plan in canonical form (JSON, fields in fixed order), independent of the layout, comments and defaults of its file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let identity = Identity { version: 1, plan: self };
        serde_json::to_vec(&identity).expect("names, numbers and enums are always JSON")
    }

    /// What in this plan is not as in `begun`: the keys of run.toml, each with both values.
    pub(crate) fn changed_from(&self, begun: &Self) -> Vec<String> {
        let [was, is] = [begun, self].map(|plan| serde_json::from_slice(&plan.to_bytes()).unwrap_or(Value::Null));
        let mut changed = Vec::new();
        compare("", &was, &is, &mut changed);
        changed
    }

    /// Digest of [`RunPlan::to_bytes`]: two files with the same digest describe the same experiment.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.to_bytes())
    }
}

/// Longest text of a value in a list of changes.
const LONGEST: usize = 60;

fn compare(path: &str, was: &Value, is: &Value, changed: &mut Vec<String>) {
    if was == is {
        return;
    }
    if let (Value::Object(before), Value::Object(after)) = (was, is) {
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for key in keys {
            let was = before.get(key).unwrap_or(&Value::Null);
            let is = after.get(key).unwrap_or(&Value::Null);
            compare(&joined(path, key), was, is, changed);
        }
        return;
    }
    changed.push(format!("`{path}` was {} and is {}", shortened(was), shortened(is)));
}

fn shortened(value: &Value) -> String {
    if value.is_null() {
        return "not set".to_owned();
    }
    let mut text = value.to_string();
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.replace_range(end.., "..");
    }
    text
}

/// The key of run.toml for a field of the canonical form.
fn joined(path: &str, key: &str) -> String {
    match (path, key) {
        ("", "uplink" | "downlink") => format!("compression.{key}"),
        ("", "run_budget") => "compression.uplink.budget.run".to_owned(),
        ("", "extra") => "train.extra".to_owned(),
        ("", "roles") => "model".to_owned(),
        ("", "rounded") => "model.snapshot".to_owned(),
        ("", key) => key.to_owned(),
        (path, key) => format!("{path}.{key}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn plan(text: &str) -> RunPlan {
        let head = "name = \"t\"\ntask = \"t\"\nrounds = 3\nmodel = \"m\"\n[cohort]\nmin = 3\n";
        RunPlan::from_toml(&format!("{head}{text}"), Path::new("")).unwrap()
    }

    #[test]
    fn what_was_changed_is_named_by_its_key_with_both_values() {
        let begun = plan("target = 3\n[train]\nlearning_rate = 0.1\n");
        assert!(
            plan("# a comment\ntarget = 3\n[train]\nlearning_rate = 0.10\n")
                .changed_from(&begun)
                .is_empty()
        );
        let changes = [
            (
                "target = 4\n[train]\nlearning_rate = 0.1",
                "`cohort.target` was 3 and is 4",
            ),
            (
                "target = 3\n[train]\nlearning_rate = 0.2",
                "`train.learning_rate` was 0.1 and is 0.2",
            ),
            (
                "target = 3\n[train]\nlearning_rate = 0.1\n[compression.uplink]\nbudget = \"0.5 bits\"",
                "`compression.uplink.budget` was",
            ),
            (
                "target = 3\n[train]\nlearning_rate = 0.1\n[optimizer]\nname = \"fedadam\"",
                "`optimizer",
            ),
        ];
        for (text, expected) in changes {
            let changed = plan(text).changed_from(&begun);
            let named = changed.iter().any(|change| change.starts_with(expected));
            assert!(named, "{text}: {changed:?}");
        }
    }
}
