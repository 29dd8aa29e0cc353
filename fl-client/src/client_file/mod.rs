//! `client.toml`: the deployment facts of one device, and the learner and data of each task.

mod changed;
mod learner_entry;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fl_proto::MAX_TASKS;
use fl_proto::trace::{Collector, collector};
use serde::Deserialize;

use crate::conditions::WhenTable;
use crate::config::{ClientConfig, check_address};
use crate::data::DataSource;
use crate::error::Error;
use crate::identity::{IdentityFiles, newest};
use crate::learner::Learner;
use crate::learners::{DeviceChoice, LearnerChoice};
use crate::limits::LimitsTable;
use crate::tasks::Tasks;
use crate::trainer::{Source, TrainerConfig, TrainerLearner};

pub(crate) use learner_entry::Place;
pub use learner_entry::{LearnerEntry, TrainerEntry};

/// Longest file that is read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// A `client.toml` with the files that it names.
#[derive(Debug, Clone)]
pub struct ClientFile {
    /// The folder of the file.
    pub folder: PathBuf,
    /// Everything except the learners.
    pub config: ClientConfig,
    /// Where learners compute.
    pub device: DeviceChoice,
    /// Learner and data by task.
    pub tasks: BTreeMap<String, TaskEntry>,
}

/// One `[tasks.NAME]` table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskEntry {
    /// A built-in learner or a trainer.
    pub learner: LearnerEntry,
    /// The examples of a built-in learner.
    pub data: Option<DataSource>,
}

impl TaskEntry {
    fn check(&self) -> Result<(), String> {
        self.learner.check().map_err(|e| format!(".learner{e}"))?;
        match (&self.learner, &self.data) {
            (LearnerEntry::BuiltIn(_), None) => Err(".data` is missing: which examples the learner has".to_owned()),
            (LearnerEntry::Trainer(_), Some(_)) => {
                Err(".data`: a trainer reads its own data; delete this key".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The built-in learner and its examples; `None` for a trainer.
    pub(crate) fn built_in(&self) -> Option<(&LearnerChoice, &DataSource)> {
        match (&self.learner, &self.data) {
            (LearnerEntry::BuiltIn(learner), Some(data)) => Some((learner, data)),
            _ => None,
        }
    }
}

/// The file as written. Keys with a default may be left out; paths are relative to the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    server: String,
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    state: PathBuf,
    models: Option<PathBuf>,
    device: DeviceChoice,
    sync: bool,
    keep_model_every: u64,
    max_update_bytes: Option<toml::Value>,
    give_up_after_s: Option<f64>,
    otlp: String,
    when: WhenTable,
    limits: LimitsTable,
    tasks: BTreeMap<String, TaskEntry>,
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

impl ClientFile {
    /// Reads the file and the certificates that it names.
    ///
    /// # Errors
    /// `Config` names the file, the key and the allowed values.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::read_with(path, text)
    }

    /// The file without the certificates, and the task that a command means: `asked`, or the only one. For commands that
    /// connect to no server.
    ///
    /// # Errors
    /// As [`ClientFile::read`]; which tasks there are.
    pub(crate) fn read_offline(path: &Path, asked: Option<&str>) -> Result<(Self, String), Error> {
        let file = Self::read_with(path, |_| Ok(String::new()))?;
        let task = file.task(asked).map(str::to_owned);
        let task = task.map_err(|why| Error::Config(format!("{}: {why}", path.display())))?;
        Ok((file, task))
    }

    /// The state folder that the file names.
    ///
    /// # Errors
    /// As [`ClientFile::read`].
    pub(crate) fn read_state(path: &Path) -> Result<PathBuf, Error> {
        Ok(Self::read_with(path, |_| Ok(String::new()))?.config.state)
    }

    fn read_with(path: &Path, pem: impl Fn(&Path) -> Result<String, Error>) -> Result<Self, Error> {
        let base = path.parent().unwrap_or(Path::new(""));
        let written = text(path)?;
        if written.trim().is_empty() {
            let path = path.display();
            let why =
                format!("{path} is empty; `fl-server issue` writes a client.toml, and configs/ has one to begin with");
            return Err(Error::Config(why));
        }
        let mut raw = parse(&written).map_err(|why| Error::Config(format!("{}: {why}", path.display())))?;
        let sources = raw.tasks.values_mut().filter_map(|task| task.data.as_mut());
        sources.for_each(|data| data.relative_to(base));
        for task in raw.tasks.values_mut() {
            if let LearnerEntry::BuiltIn(learner) = &mut task.learner {
                learner.relative_to(base);
            }
        }
        let [authority, certificate, key] = [raw.authority, raw.certificate, raw.key].map(|path| base.join(path));
        let identity = IdentityFiles::new(authority, certificate, key);
        let own = newest(&identity.certificate, &identity.key, &pem)?;
        let mut config = ClientConfig::new(raw.server, pem(&identity.authority)?, own, base.join(raw.state));
        config.device = raw.device.to_string();
        config.identity = Some(identity);
        config.models = raw.models.map(|models| base.join(models));
        config.sync = raw.sync;
        config.keep_model_every = raw.keep_model_every;
        config.max_update_bytes = max_update_bytes(raw.max_update_bytes.as_ref()).map_err(Error::Config)?;
        config.give_up_after = raw.give_up_after_s.map(Duration::from_secs_f64);
        config.otlp = collector_of(&raw.otlp).map_err(Error::Config)?;
        config.when = raw.when.checked(base).map_err(Error::Config)?;
        config.limits = raw.limits.checked().map_err(Error::Config)?;
        config.exit_when_done = false;
        let file = Self {
            folder: base.to_owned(),
            config,
            device: raw.device,
            tasks: raw.tasks,
        };
        file.check_models()
            .and_then(|()| file.check_programs())
            .map_err(|why| Error::Config(format!("{}: {why}", path.display())))?;
        Ok(file)
    }

    /// The folder of models exists.
    fn check_models(&self) -> Result<(), String> {
        let missing = self.config.models.as_ref().filter(|models| !models.is_dir());
        missing.map_or(Ok(()), |models| {
            let models = models.display();
            Err(format!(
                "`models`: there is no folder {models}; create it, or delete the key"
            ))
        })
    }

    /// The trainers' programs exist.
    fn check_programs(&self) -> Result<(), String> {
        for name in self.tasks.keys() {
            let trainer = self
                .trainer(name)
                .map_err(|e| format!("`tasks.{name}.learner`: {e:#}"))?;
            if let Some(Source::Command(program)) = trainer.map(|trainer| trainer.source) {
                program
                    .path()
                    .map_err(|e| format!("`tasks.{name}.learner.command`: {e:#}"))?;
            }
        }
        Ok(())
    }

    /// The trainer of a task, as the running client has it; `None` if the task has none.
    pub(crate) fn trainer(&self, task: &str) -> anyhow::Result<Option<TrainerConfig>> {
        match self.tasks.get(task).map(|entry| &entry.learner) {
            Some(LearnerEntry::Trainer(entry)) => {
                let device = self.device.to_string();
                let mut trainer = entry.config(task, self.place(&device))?;
                trainer.sync = self.config.sync;
                Ok(Some(trainer))
            }
            _ => Ok(None),
        }
    }

    /// The trainer of a task for a command that may run beside the client.
    ///
    /// # Errors
    /// If the task has no trainer that can be started.
    pub(crate) fn trainer_aside(&self, task: &str) -> anyhow::Result<TrainerConfig> {
        match self.tasks.get(task).map(|entry| &entry.learner) {
            Some(LearnerEntry::Trainer(entry)) if entry.command.is_some() => {
                entry.config_aside(task, self.place(&self.device.to_string()), &std::env::temp_dir())
            }
            _ => anyhow::bail!("task `{task}` has no trainer with a `command`"),
        }
    }

    /// The name of the task that a command means: `asked`, or the only one.
    ///
    /// # Errors
    /// Which names there are.
    pub(crate) fn task(&self, asked: Option<&str>) -> Result<&str, String> {
        let only = || self.tasks.keys().next().filter(|_| self.tasks.len() == 1);
        let found = match asked {
            Some(name) => self.tasks.get_key_value(name).map(|(name, _)| name),
            None => only(),
        };
        let known = || self.tasks.keys().cloned().collect::<Vec<_>>().join(", ");
        found
            .map(String::as_str)
            .ok_or_else(|| format!("`--task` must be one of: {}", known()))
    }

    pub(crate) fn place<'a>(&'a self, device: &'a str) -> Place<'a> {
        Place {
            base: &self.folder,
            state: &self.config.state,
            device,
        }
    }

    /// The learners, each built when a run first needs it. A learner keeps its own examples only, not the whole data files.
    pub fn learners(&self) -> Tasks {
        self.tasks.iter().fold(Tasks::new(), |tasks, (name, entry)| {
            let (entry, device) = (entry.clone(), self.device);
            let trainer = self.trainer(name);
            tasks.with_lazy(name, move || match (trainer?, entry.built_in()) {
                (Some(trainer), _) => Ok(Box::new(TrainerLearner::new(trainer)?) as Box<dyn Learner>),
                (None, Some((learner, data))) => learner.build(device, data.load()?.compact()),
                (None, None) => anyhow::bail!("it has neither a built-in learner nor a trainer"),
            })
        })
    }
}

/// Whether a text is a part of a client.toml.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check_text(text: &str) -> Result<(), String> {
    parse(text).map(drop)
}

fn parse(text: &str) -> Result<Raw, String> {
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

fn collector_of(otlp: &str) -> Result<Option<Collector>, String> {
    collector(otlp).map_err(|rule| format!("`otlp` is {otlp:?}, but {rule}"))
}

fn text(path: &Path) -> Result<String, Error> {
    let failed = |why: String| Error::Config(format!("{}: {why}", path.display()));
    let len = fs::metadata(path)
        .map_err(|e| failed(format!("cannot read: {e}")))?
        .len();
    if len > MAX_FILE {
        return Err(failed(format!(
            "{len} bytes are more than the {MAX_FILE} that such a file can have"
        )));
    }
    fs::read_to_string(path).map_err(|e| failed(format!("cannot read: {e}")))
}

fn max_update_bytes(given: Option<&toml::Value>) -> Result<Option<u64>, String> {
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
        assert_eq!(keys.len(), 9 + 6 + 1);
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
            ("[tasks.a]\nlearner = 'mlpp'\ndata = { builtin = {} }", "mlpp"),
            (
                "[tasks.a]\nlearner = 'mlp'\ndata = { builtin = { trian = 3 } }",
                "trian",
            ),
            (
                "[tasks.a]\nlearner = 'mlp'\ndata = { builtin = { train = 0 } }",
                "train",
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

    #[test]
    fn a_missing_certificate_is_named_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client.toml");
        fs::write(&path, "certificate = 'mine.pem'").unwrap();
        let error = ClientFile::read(&path).unwrap_err().to_string();
        assert!(error.contains("mine.pem"), "{error}");
        let mine = "certificate = 'mine.pem'\n[tasks.digits]\nlearner = 'mlp'\ndata = { builtin = {} }";
        fs::write(&path, mine).unwrap();
        assert_eq!(ClientFile::read_offline(&path, None).unwrap().1, "digits");
        let error = ClientFile::read_offline(&path, Some("none")).unwrap_err().to_string();
        assert!(error.contains("client.toml") && error.contains("digits"), "{error}");
    }
}
