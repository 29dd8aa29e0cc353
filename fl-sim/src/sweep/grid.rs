//! The grids of a sweep: values for dotted keys, every value with every other.

use anyhow::{Context as _, bail, ensure};
use toml::{Table, Value};

use crate::settings;

const MAX_POINTS: usize = 1_000;

/// One `[[grid]]` of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grid {
    /// The variants that it is for; all if `None`.
    only: Option<Vec<String>>,
    axes: Vec<Axis>,
}

/// Keys that are set to the same value, and their values.
#[derive(Debug, Clone, PartialEq)]
struct Axis {
    keys: Vec<String>,
    values: Vec<Value>,
}

/// What a point sets: each key with its value, in the order of the keys.
pub(super) type Assignment = Vec<(String, Value)>;

impl Grid {
    /// Reads `grid`, a table or a list of tables, if the file has one.
    ///
    /// # Errors
    /// If it is empty, a value is no list, or a variant in `only` does not exist; the error names the key.
    pub(super) fn all(grid: Option<&Value>, variants: &[String]) -> anyhow::Result<Vec<Self>> {
        let tables = settings::tables(grid, "grid")?.into_iter();
        tables.map(|table| Self::read(table, variants)).collect()
    }

    fn read(table: &Table, variants: &[String]) -> anyhow::Result<Self> {
        let mut only = None;
        let mut axes = Vec::new();
        for (key, value) in table {
            if key == "only" {
                only = Some(names(value, variants)?);
                continue;
            }
            let Value::Array(values) = value else {
                bail!(
                    "`grid`: `{key}` must be a list of values under a key in quotes, such as \"run.rounds\" = [5, 10]"
                );
            };
            ensure!(!values.is_empty(), "`grid`: `{key}` is an empty list");
            for (at, value) in values.iter().enumerate() {
                ensure!(!values[..at].contains(value), "`grid`: `{key}` lists {value} twice");
            }
            axes.push(Axis {
                keys: key.split(',').map(|key| key.trim().to_owned()).collect(),
                values: values.clone(),
            });
        }
        ensure!(!axes.is_empty(), "`grid` is empty: name a key, or delete the table");
        let keys: Vec<&String> = axes.iter().flat_map(|axis| &axis.keys).collect();
        for (at, key) in keys.iter().enumerate() {
            ensure!(!keys[..at].contains(key), "`grid`: `{key}` is there twice");
        }
        Ok(Self { only, axes })
    }

    fn is_for(&self, variant: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.iter().any(|name| name == variant))
    }

    /// The points of `variant`: those of every grid for it, or one that sets nothing. `file`: an experiment of this
    /// variant alone.
    ///
    /// # Errors
    /// If a key cannot be set, or there are more than 1,000 points.
    pub(super) fn points(grids: &[Self], variant: &str, file: &Table) -> anyhow::Result<Vec<Assignment>> {
        let mut points: Vec<Assignment> = Vec::new();
        for grid in grids.iter().filter(|grid| grid.is_for(variant)) {
            let count = grid
                .axes
                .iter()
                .try_fold(1usize, |count, axis| count.checked_mul(axis.values.len()));
            let count = count.and_then(|count| count.checked_add(points.len()));
            ensure!(
                count.is_some_and(|count| count <= MAX_POINTS),
                "`grid`: variant `{variant}` has more than {MAX_POINTS} points"
            );
            let mut own: Vec<Assignment> = vec![Vec::new()];
            for axis in &grid.axes {
                axis.check(file)?;
                let mut longer = Vec::new();
                for point in &own {
                    for value in &axis.values {
                        let set = axis.keys.iter().map(|key| (key.clone(), value.clone()));
                        longer.push(point.iter().cloned().chain(set).collect());
                    }
                }
                own = longer;
            }
            points.extend(own);
        }
        for (at, point) in points.iter().enumerate() {
            ensure!(
                !points[..at].contains(point),
                "`grid`: two grids have the same point of variant `{variant}`: {}",
                label(point)
            );
        }
        if points.is_empty() {
            points.push(Vec::new());
        }
        Ok(points)
    }
}

impl Axis {
    /// Refuses a key whose value in `file` is a table of several keys: each point would drop the keys that it does not
    /// repeat.
    fn check(&self, file: &Table) -> anyhow::Result<()> {
        for key in &self.keys {
            if let Some(table) = settings::get(file, key)
                .and_then(Value::as_table)
                .filter(|table| table.len() > 1)
            {
                let first = table.keys().next().map_or("", String::as_str);
                bail!("`grid`: `{key}` is a table; name one of its keys, such as `{key}.{first}`");
            }
        }
        Ok(())
    }
}

fn names(value: &Value, variants: &[String]) -> anyhow::Result<Vec<String>> {
    let names = value
        .as_array()
        .map(|list| list.iter().map(|name| name.as_str().map(str::to_owned)).collect());
    let names: Vec<String> = names
        .flatten()
        .context("`grid`: `only` must be a list of names of variants")?;
    ensure!(!names.is_empty(), "`grid`: `only` is an empty list");
    if let Some(name) = names.iter().find(|name| !variants.contains(name)) {
        bail!(
            "`grid`: `only` names `{name}`, but there is no such variant; there are {}",
            variants.join(", ")
        );
    }
    Ok(names)
}

/// A point as people read it: the last parts of its keys, as many as tell them from each other. Empty if nothing is
/// set.
pub(super) fn label(point: &Assignment) -> String {
    let mut shown: Vec<(&str, &Value)> = Vec::new();
    for (key, value) in point {
        // Keys that are set together are shown once.
        let mut earlier = shown.iter();
        if !earlier.any(|(other, same)| *same == value && last(other, 1) == last(key, 1)) {
            shown.push((key, value));
        }
    }
    let texts = shown.iter().map(|(key, value)| {
        let parts = (1..=key.split('.').count()).find(|parts| {
            let mut others = shown.iter().filter(|(other, _)| other != key);
            others.all(|(other, _)| last(other, *parts) != last(key, *parts))
        });
        format!("{}={}", last(key, parts.unwrap_or(usize::MAX)), text(value))
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// The last `parts` parts of a dotted key.
fn last(key: &str, parts: usize) -> &str {
    let dot = key.rmatch_indices('.').nth(parts.saturating_sub(1));
    dot.map_or(key, |(at, _)| &key[at + 1..])
}

/// A value on one line; a string without quotes.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn variants() -> Vec<String> {
        vec!["fp32".to_owned(), "ours".to_owned()]
    }

    fn file() -> Table {
        toml::toml! {
            [workload]
            learner = "mlp"
            data = { idx = { dir = "x", split = { dirichlet = 0.5 } } }
            [run]
            train = { epochs = 1, batch_size = 32 }
            [[variant]]
            name = "ours"
        }
    }

    fn labels(grid: &str, variant: &str) -> anyhow::Result<Vec<String>> {
        let table: Table = grid.parse()?;
        let grids = Grid::all(table.get("grid"), &variants())?;
        Ok(Grid::points(&grids, variant, &file())?.iter().map(label).collect())
    }

    #[test]
    fn every_value_meets_every_other_and_grids_are_added() {
        let grid = "[[grid]]\n\"run.rounds\" = [5, 10]\n\"run.train.learning_rate\" = [0.1]\n\
                    [[grid]]\nonly = [\"ours\"]\n\"compression.uplink.budget\" = [\"1 bits\"]\n";
        assert_eq!(
            labels(grid, "ours").unwrap(),
            [
                "rounds=5, learning_rate=0.1",
                "rounds=10, learning_rate=0.1",
                "budget=1 bits"
            ]
        );
        assert_eq!(labels(grid, "fp32").unwrap().len(), 2);
        assert_eq!(labels("", "fp32").unwrap(), [""]);
    }

    #[test]
    fn keys_joined_by_a_comma_get_the_same_value() {
        let grid = "[grid]\n\"compression.uplink.budget, compression.downlink.budget\" = [\"1 bits\", \"0.5 bits\"]\n";
        assert_eq!(labels(grid, "ours").unwrap(), ["budget=1 bits", "budget=0.5 bits"]);
        let apart =
            "[grid]\n\"compression.uplink.budget\" = [\"1 bits\"]\n\"compression.downlink.budget\" = [\"2 bits\"]\n";
        assert_eq!(
            labels(apart, "ours").unwrap(),
            ["downlink.budget=2 bits, uplink.budget=1 bits"]
        );
    }

    #[test]
    fn a_choice_is_replaced_as_a_whole() {
        let grid = "[grid]\n\"workload.data.idx.split\" = [\"iid\", { dirichlet = 0.1 }]\n";
        assert_eq!(
            labels(grid, "ours").unwrap(),
            ["split=iid", "split={ dirichlet = 0.1 }"]
        );
    }

    #[test]
    fn grids_that_say_nothing_or_too_much_are_refused() {
        for (grid, want) in [
            ("[grid]", "`grid` is empty"),
            ("[grid]\nonly = [\"ours\"]", "`grid` is empty"),
            ("grid = 3", "must be a table"),
            ("[grid]\n\"run.rounds\" = []", "`run.rounds` is an empty list"),
            ("[grid]\nrun.rounds = [1]", "key in quotes"),
            ("[grid]\n\"run.rounds\" = [1, 1]", "lists 1 twice"),
            (
                "[grid]\n\"run.train\" = [{ epochs = 2 }]",
                "`run.train` is a table; name one of its keys, such as `run.train.batch_size`",
            ),
            (
                "[grid]\nonly = [\"none\"]\n\"run.rounds\" = [1]",
                "no such variant; there are fp32, ours",
            ),
            ("[grid]\n\"run.rounds, run.rounds\" = [1]", "there twice"),
            (
                "[[grid]]\n\"run.rounds\" = [1, 2]\n[[grid]]\n\"run.rounds\" = [2]",
                "the same point",
            ),
        ] {
            let error = labels(grid, "ours").unwrap_err().to_string();
            assert!(error.contains(want), "{grid}: {error}");
        }
        let many: Vec<String> = (0..101).map(|value| value.to_string()).collect();
        let many = many.join(", ");
        let grid = format!("[grid]\n\"run.rounds\" = [{many}]\n\"workload.clients\" = [{many}]\n");
        assert!(
            labels(&grid, "ours")
                .unwrap_err()
                .to_string()
                .contains("more than 1000 points")
        );
    }

    proptest! {
        #[test]
        fn the_points_are_the_product_of_the_lists(lists in prop::collection::vec(1usize..6, 1..4)) {
            let axes: String = lists.iter().enumerate().map(|(at, len)| {
                let values: Vec<String> = (0..*len).map(|value| value.to_string()).collect();
                format!("\"run.k{at}\" = [{}]\n", values.join(", "))
            }).collect();
            let found = labels(&format!("[grid]\n{axes}"), "ours").unwrap();
            prop_assert_eq!(found.len(), lists.iter().product::<usize>());
            let mut unique = found.clone();
            unique.sort();
            unique.dedup();
            prop_assert_eq!(unique.len(), found.len());
        }
    }
}
