//! `client.toml` as it is written.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fl_proto::MAX_TASKS;
use fl_proto::trace::{Collector, collector};
use serde::Deserialize;

use super::learner_entry::LearnerEntry;
use super::task::TaskEntry;
use crate::conditions::WhenTable;
use crate::config::check_address;
use crate::device::DeviceChoice;
use crate::error::Error;
use crate::limits::LimitsTable;
use crate::named::{Learners, NamedLearner, Wrong};

const MAX_FILE: u64 = 1024 * 1024;

/// The file as written. Keys with a default may be left out; paths are relative to the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    pub(super) server: String,
    pub(super) authority: PathBuf,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) state: PathBuf,
    pub(super) models: Option<PathBuf>,
    pub(super) device: DeviceChoice,
    pub(super) sync: bool,
    pub(super) keep_model_every: u64,
    pub(super) max_update_bytes: Option<toml::Value>,
    pub(super) give_up_after_s: Option<f64>,
    pub(super) otlp: String,
    pub(super) when: WhenTable,
    pub(super) limits: LimitsTable,
    pub(super) tasks: BTreeMap<String, TaskEntry>,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            server: "127.0.0.1:7070".to_owned(),
            authority: "authority.pem".into(),
            certificate: "client.pem".into(),
            key: "client.key".into(),
            state: "state".into(),
            models: None,
            device: DeviceChoice::Auto,
            sync: true,
            keep_model_every: 10,
            max_update_bytes: None,
            give_up_after_s: None,
            otlp: "off".to_owned(),
            when: WhenTable::default(),
            limits: LimitsTable::default(),
            tasks: BTreeMap::new(),
        }
    }
}

/// Whether a text is a part of a client.toml of a program with these learners.
pub(crate) fn check_text(text: &str, learners: &dyn Learners) -> Result<(), String> {
    parse(text)?.named(learners, Path::new("")).map(drop)
}

impl Raw {
    /// The named learner of each task that has one.
    pub(super) fn named(
        &self,
        learners: &dyn Learners,
        base: &Path,
    ) -> Result<BTreeMap<String, Arc<dyn NamedLearner>>, String> {
        let named = self.tasks.iter().filter_map(|(task, entry)| match &entry.learner {
            LearnerEntry::Named(learner) => Some((task, learner, entry.data.as_ref())),
            LearnerEntry::Trainer(_) => None,
        });
        let found = named.map(|(task, learner, data)| match learners.named(learner, data, base) {
            Ok(named) => Ok((task.clone(), named)),
            Err(Wrong { key, why }) => Err(format!("`tasks.{task}.{key}`: {why}")),
        });
        found.collect()
    }
}

pub(super) fn parse(text: &str) -> Result<Raw, String> {
    let raw: Raw = toml::from_str(text).map_err(|e| e.to_string())?;
    check_address(&raw.server)?;
    collector_of(&raw.otlp)?;
    max_update_bytes(raw.max_update_bytes.as_ref())?;
    raw.when.clone().checked(Path::new(""))?;
    raw.limits.checked()?;
    if raw.tasks.len() > MAX_TASKS {
        return Err(format!(
            "`tasks`: {} are more than the {MAX_TASKS} that a client may have",
            raw.tasks.len()
        ));
    }
    for (name, entry) in &raw.tasks {
        entry.check().map_err(|why| format!("`tasks.{name}{why}"))?;
    }
    if raw.give_up_after_s.is_some_and(|s| !(s > 0.0 && s < 1e9)) {
        return Err("`give_up_after_s` must be above 0 and below 1e9".to_owned());
    }
    Ok(raw)
}

pub(super) fn collector_of(otlp: &str) -> Result<Option<Collector>, String> {
    collector(otlp).map_err(|rule| format!("`otlp` is {otlp:?}, but {rule}"))
}

pub(super) fn text(path: &Path) -> Result<String, Error> {
    let text = File::open(path).and_then(|file| fl_compress::text::read(file, MAX_FILE));
    text.map_err(|e| Error::Config(format!("{}: cannot read: {e}", path.display())))
}

pub(super) fn max_update_bytes(given: Option<&toml::Value>) -> Result<Option<u64>, String> {
    let Some(given) = given else { return Ok(None) };
    let bytes = given.as_integer().and_then(|bytes| u64::try_from(bytes).ok());
    bytes.filter(|bytes| *bytes > 0).map(Some).ok_or_else(|| {
        format!(
            "`max_update_bytes` must be a whole number of bytes above 0, such as 65536, not {given}; delete the key for no limit"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::conditions::When;

    #[test]
    fn the_example_file_is_the_defaults_with_one_task() {
        let text = include_str!("../../../configs/client.toml");
        let (example, default) = (parse(text).unwrap(), Raw::default());
        assert_eq!(example.server, default.server);
        assert_eq!(
            [&example.authority, &example.certificate],
            [&default.authority, &default.certificate]
        );
        assert_eq!([&example.key, &example.state], [&default.key, &default.state]);
        assert_eq!((&example.device, example.sync), (&default.device, default.sync));
        assert_eq!((example.keep_model_every, example.give_up_after_s), (10, None));
        assert_eq!(example.tasks.len(), 1);
        // Every key that is commented out is a key that there is.
        let is_key = |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let commented = text.lines().filter_map(|line| line.strip_prefix("# "));
        let keys: Vec<_> = commented
            .filter(|line| line.split_once(" = ").is_some_and(|(key, _)| is_key(key)))
            .collect();
        assert_eq!(example.otlp, default.otlp);
        assert_eq!(keys.len(), 9 + 6 + 2);
        let (_, when) = text.split_once("\n[when]\n").unwrap();
        let (when, limits) = when.split_once("\n[limits]\n").unwrap();
        for line in keys {
            let is_in = |table: &str| table.contains(&format!("\n# {line}\n"));
            let line = match (is_in(when), is_in(limits)) {
                (true, _) => format!("[when]\n{line}"),
                (_, true) => format!("[limits]\n{line}"),
                _ => line.to_owned(),
            };
            let read = parse(&line).unwrap();
            assert_eq!(read.when.checked(Path::new("")).unwrap(), When::default(), "{line}");
            let limits = read.limits.checked().unwrap();
            assert!(
                limits.paces.up.is_none() && limits.cpus.is_none() && limits.nice == 0,
                "{line}"
            );
        }
    }

    #[test]
    fn unknown_keys_and_values_out_of_range_are_named() {
        for (text, named) in [
            ("servr = 'a:1'", "servr"),
            ("server = 'nowhere'", "`server`"),
            ("server = 'a:99999'", "`server`"),
            ("device = 'gpu'", "device"),
            ("give_up_after_s = 0", "give_up_after_s"),
            (
                "max_update_bytes = 0",
                "`max_update_bytes` must be a whole number of bytes above 0",
            ),
            ("max_update_bytes = -1", "such as 65536, not -1"),
            ("max_update_bytes = '64KiB'", "such as 65536, not \"64KiB\""),
            ("otlp = '127.0.0.1:4317'", "`otlp` is \"127.0.0.1:4317\""),
            (
                "[when]\nhours = '22:00-22:00'",
                "`when.hours`: \"22:00-22:00\" never comes",
            ),
            ("[tasks.a]\nlearner = 'mlp'", "`tasks.a.data` is missing"),
            ("[tasks.a]\nlearner = 7", "expected the name of a learner, { name"),
            ("[tasks.a]\nlearner = { comand = ['sh'] }", "comand"),
            (
                "[tasks.a]\nlearner = { command = [] }",
                "`tasks.a.learner.command`: names no program",
            ),
            (
                "[tasks.a]\nlearner = { folder = 'x' }",
                "`tasks.a.learner`: give either",
            ),
            (
                "[tasks.a]\nlearner = { command = ['sh'], attach = 'x' }",
                "`tasks.a.learner`: give either",
            ),
            ("[tasks.a]\nlearner = { attach = '../x' }", "`tasks.a.learner.attach`"),
            (
                "[tasks.a]\nlearner = { command = ['sh'], no_progress = '10' }",
                "`no_progress` is \"10\"",
            ),
            (
                "[tasks.a]\nlearner = { command = ['sh'] }\ndata = { builtin = {} }",
                "`tasks.a.data`: a trainer reads its own data",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn a_trainer_has_no_data_and_defaults() {
        let raw = parse("[tasks.a]\nlearner = { command = ['python3', 'train.py'] }").unwrap();
        let LearnerEntry::Trainer(entry) = &raw.tasks["a"].learner else {
            panic!("{raw:?}")
        };
        assert_eq!(entry.no_progress, Duration::from_secs(600));
        assert_eq!((&entry.attach, &entry.folder), (&None, &None));
        assert!(parse("[tasks.a]\nlearner = { attach = 'trainer.sock', no_progress = '1h' }").is_ok());
    }
}
