//! Settings of a model: the keys beside `name` in `learner = { name = "transformer", layers = 4 }`.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Whether all keys are in range; otherwise which key is out of which range.
pub(super) type CheckResult = Result<(), String>;

/// The settings of a program's own model, each read by its name.
#[derive(Debug)]
pub struct GivenSettings<'a> {
    table: &'a Table,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> GivenSettings<'a> {
    pub(super) fn new(table: &'a Table) -> Self {
        Self {
            table,
            read: RefCell::default(),
        }
    }

    /// The setting `key`, or `default` if it is not given.
    ///
    /// # Errors
    /// If the setting is of another type; the error names it.
    pub fn get<T: DeserializeOwned>(&self, key: &str, default: T) -> anyhow::Result<T> {
        self.read.borrow_mut().insert(key.to_owned());
        let Some(value) = self.table.get(key) else {
            return Ok(default);
        };
        let value = value.clone().try_into();
        value.map_err(|error: toml::de::Error| anyhow::anyhow!("setting `{key}`: {}", error.message()))
    }

    /// Succeeds if every setting was read.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        let read = self.read.into_inner();
        let Some(unread) = self.table.keys().find(|key| !read.contains(*key)) else {
            return Ok(());
        };
        let known: Vec<String> = read.into_iter().collect();
        if known.is_empty() {
            anyhow::bail!("there is no setting `{unread}`; the learner has none")
        } else {
            anyhow::bail!("there is no setting `{unread}`; the settings are {}", known.join(", "))
        }
    }
}

/// Keys of a model, each with a default.
pub(super) trait Settings: DeserializeOwned {
    fn check(&self) -> CheckResult;
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoSettings {}

impl Settings for NoSettings {
    fn check(&self) -> CheckResult {
        Ok(())
    }
}

pub(super) fn read<T: Settings>(table: &Table) -> Result<T, String> {
    let settings: T = Value::Table(table.clone())
        .try_into()
        .map_err(|error: toml::de::Error| error.message().to_owned())?;
    settings.check()?;
    Ok(settings)
}

/// As [`read`], while a model is built.
pub(super) fn of<T: Settings>(table: &Table) -> candle_core::Result<T> {
    read(table).map_err(candle_core::Error::msg)
}

/// As [`read`], for what only needs to be right.
pub(super) fn check<T: Settings>(table: &Table) -> CheckResult {
    read::<T>(table).map(drop)
}

pub(super) fn within(key: &str, value: usize, low: usize, high: usize) -> CheckResult {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(format!("`{key}` is {value}, but must be from {low} to {high}"))
    }
}

pub(super) fn probability(key: &str, probability: f32) -> CheckResult {
    if (0.0..1.0).contains(&probability) {
        Ok(())
    } else {
        Err(format!("`{key}` is {probability}, but must be at least 0 and below 1"))
    }
}
