//! Single keys of an experiment, set from outside its file: a grid of a sweep, or an option of the command line.
//!
//! A key is dotted and begins with `workload`, `run`, `compression` or `engine`. What is set holds for every variant.

use anyhow::{Context as _, bail, ensure};
use toml::{Table, Value};

/// Keys of `run` that every trial gets by itself.
const GIVEN: [&str; 3] = ["name", "task", "seed"];

/// Sets `key` in the experiment `file` and in every variant that has a value of its own for it.
///
/// # Errors
/// If the key begins otherwise, is set by the trial itself, or leads through a value that is no table; `key` is named.
pub(crate) fn set(file: &mut Table, key: &str, value: &Value) -> anyhow::Result<()> {
    let names: Vec<&str> = key.split('.').map(str::trim).collect();
    ensure!(
        names.iter().all(|name| !name.is_empty()),
        "`{key}`: an empty part of a key"
    );
    let (section, path) = match names.as_slice() {
        [section @ ("workload" | "run" | "compression" | "engine"), path @ ..] if !path.is_empty() => (*section, path),
        _ => bail!("`{key}`: a key begins with `workload.`, `run.`, `compression.` or `engine.`"),
    };
    let root = path[0];
    if section == "run" {
        ensure!(!GIVEN.contains(&root), "`{key}`: every trial gets its own `{root}`");
        ensure!(
            root != "model" || path.get(1) == Some(&"snapshot"),
            "`{key}`: every trial gets its own first weights; `run.model.snapshot` can be set"
        );
        ensure!(
            root != "compression",
            "`{key}`: begin with `compression.`, without `run.`"
        );
    }
    let no_table = || format!("`{key}`: a part before the last is not a table");
    if section != "compression" {
        let table = file.entry(section).or_insert_with(|| Table::new().into());
        put(table, path, value).with_context(no_table)?;
    }
    let variants = file.get_mut("variant").and_then(Value::as_array_mut);
    for variant in variants.into_iter().flatten() {
        let Some(variant) = variant.as_table_mut() else {
            continue;
        };
        match section {
            // These two of a variant are in the place of the workload's.
            "workload" if matches!(root, "learner" | "clients") => {
                if let Some(own) = variant.get_mut(root) {
                    put(own, &path[1..], value).with_context(no_table)?;
                }
            }
            "workload" | "engine" => {}
            _ => {
                let own = variant.entry(section).or_insert_with(|| Table::new().into());
                put(own, path, value).with_context(no_table)?;
            }
        }
    }
    Ok(())
}

/// Puts `value` at `path` below `at`; tables on the way are created. `None` if a value on the way is no table.
fn put(at: &mut Value, path: &[&str], value: &Value) -> Option<()> {
    let Some((name, rest)) = path.split_first() else {
        *at = value.clone();
        return Some(());
    };
    let table = at.as_table_mut()?;
    put(table.entry(*name).or_insert_with(|| Table::new().into()), rest, value)
}

/// The value at a dotted key of the experiment `file`, for its first variant.
pub(crate) fn get<'a>(file: &'a Table, key: &str) -> Option<&'a Value> {
    let (section, path) = key.split_once('.')?;
    let variant = file
        .get("variant")
        .and_then(Value::as_array)
        .and_then(|all| all.first());
    let own = match (section, path.split('.').next()) {
        ("workload", Some("learner" | "clients")) => below(variant, path),
        ("workload" | "engine", _) => None,
        _ => below(variant.and_then(|variant| variant.get(section)), path),
    };
    own.or_else(|| below(file.get(section), path))
}

fn below<'a>(from: Option<&'a Value>, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(from?, |at, name| at.get(name))
}

/// The tables at `key`: one, or a list of them; none if the key is not there.
///
/// # Errors
/// If it holds anything else.
pub(crate) fn tables<'a>(value: Option<&'a Value>, key: &str) -> anyhow::Result<Vec<&'a Table>> {
    let tables = match value {
        None => Some(Vec::new()),
        Some(Value::Table(table)) => Some(vec![table]),
        Some(Value::Array(list)) => list.iter().map(Value::as_table).collect(),
        Some(_) => None,
    };
    tables.with_context(|| format!("`{key}`: must be a table, or a list of tables"))
}

/// The value that a command line gives: TOML, or else a string.
pub(crate) fn value(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>();
    let parsed = parsed.ok().filter(|table| table.len() == 1);
    parsed
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Table {
        toml::toml! {
            seeds = [1]
            [workload]
            learner = "mlp"
            clients = 2
            [run]
            rounds = 3
            [[variant]]
            name = "a"
            learner = { name = "lstm", layers = 2 }
            run = { rounds = 7, train = { steps = 5 } }
            [[variant]]
            name = "b"
        }
    }

    fn with(key: &str, value: impl Into<Value>) -> Table {
        let mut file = file();
        set(&mut file, key, &value.into()).unwrap();
        file
    }

    #[test]
    fn a_key_is_set_for_every_variant() {
        let found = with("run.rounds", 9);
        assert_eq!(found["run"]["rounds"].as_integer(), Some(9));
        for variant in 0..2 {
            assert_eq!(found["variant"][variant]["run"]["rounds"].as_integer(), Some(9));
        }
        assert_eq!(found["variant"][0]["run"]["train"]["steps"].as_integer(), Some(5));
        let found = with("compression.uplink.budget", "0.5 bits");
        for variant in 0..2 {
            let budget = &found["variant"][variant]["compression"]["uplink"]["budget"];
            assert_eq!(budget.as_str(), Some("0.5 bits"));
        }
        let found = with("workload.learner", "cnn");
        assert_eq!(found["workload"]["learner"], found["variant"][0]["learner"]);
        assert!(found["variant"][1].get("learner").is_none());
    }

    #[test]
    fn the_value_of_a_key_is_the_first_variants() {
        assert_eq!(get(&file(), "run.rounds").and_then(Value::as_integer), Some(7));
        assert_eq!(get(&file(), "workload.clients").and_then(Value::as_integer), Some(2));
        assert_eq!(
            get(&file(), "workload.learner.layers").and_then(Value::as_integer),
            Some(2)
        );
        assert_eq!(get(&file(), "compression.uplink"), None);
    }

    #[test]
    fn keys_that_cannot_be_set_are_named() {
        for (key, want) in [
            ("seeds", "begins with"),
            ("run", "begins with"),
            ("model.x", "begins with"),
            ("run..x", "empty part"),
            ("run.seed", "its own `seed`"),
            ("run.model", "its own first weights"),
            ("run.model.weights", "its own first weights"),
            ("run.compression.uplink", "begin with `compression.`"),
            ("run.rounds.x", "not a table"),
        ] {
            let error = set(&mut file(), key, &1.into()).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(key) && error.contains(want), "{error}");
        }
    }

    #[test]
    fn a_value_is_toml_or_else_a_string() {
        assert_eq!(value("3"), Value::Integer(3));
        assert_eq!(value("0.5 bits"), Value::String("0.5 bits".into()));
        assert_eq!(value("\"0.5\""), Value::String("0.5".into()));
        assert_eq!(value("1\nother = 2"), Value::String("1\nother = 2".into()));
        assert!(value("{ dirichlet = 0.5 }").is_table());
    }
}
