//! `client.toml`: the deployment facts of one device, and the learner and data of each task.

mod changed;
mod learner_entry;
mod raw;
mod task;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::ClientConfig;
use crate::error::Error;
use crate::identity::{IdentityFiles, newest};
use crate::learner::Learner;
use crate::learners::DeviceChoice;
use crate::tasks::Tasks;
use crate::trainer::{Source, TrainerConfig, TrainerLearner};

pub(crate) use learner_entry::Place;
pub use learner_entry::{LearnerEntry, TrainerEntry};
pub(crate) use raw::check_text;
use raw::{collector_of, max_update_bytes, parse, text};
pub use task::TaskEntry;

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
                // The trainer is told its paths in JSON.
                for path in [&self.folder, &self.config.state] {
                    let path = std::path::absolute(Path::new(".").join(path))?;
                    anyhow::ensure!(
                        path.to_str().is_some(),
                        "the path {} is not UTF-8, which trainers need: rename the folder",
                        path.display()
                    );
                }
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
            Some(LearnerEntry::Trainer(entry)) => {
                entry.config_aside(task, self.place(&self.device.to_string()), &std::env::temp_dir())
            }
            _ => anyhow::bail!("task `{task}` has no trainer"),
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
                (None, Some((learner, data))) => {
                    let data = data.load()?;
                    // Of a table: its rows, and how many were dropped.
                    let mut rows = [&data.train, &data.test].map(|part| part.notes().first()).to_vec();
                    rows.dedup();
                    for rows in rows.into_iter().flatten() {
                        tracing::info!("{rows}");
                    }
                    learner.build(device, data.compact())
                }
                (None, None) => anyhow::bail!("it has neither a built-in learner nor a trainer"),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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

    #[cfg(target_os = "linux")]
    #[test]
    fn a_trainer_in_a_folder_whose_name_is_not_utf_8_is_refused_by_name() {
        use std::os::unix::ffi::OsStrExt as _;

        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        fs::create_dir(&odd).unwrap();
        for (folder, is_good) in [(dir.path(), true), (&*odd, false)] {
            let path = folder.join("client.toml");
            fs::write(&path, "[tasks.t]\nlearner = { command = ['sh'] }").unwrap();
            let found = ClientFile::read_offline(&path, None).and_then(|(file, task)| {
                let trainer = file.trainer(&task);
                trainer.map_err(|error| Error::Config(error.to_string()))
            });
            match found {
                Ok(_) => assert!(is_good),
                Err(error) => assert!(!is_good && error.to_string().contains("is not UTF-8"), "{error}"),
            }
        }
    }

    #[test]
    fn the_log_says_how_many_rows_of_a_table_were_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("train.csv"), "a,b,y\n1,2,0\n,3,1\n4,5,1\n2,1,0\n").unwrap();
        fs::write(at("test.csv"), "a,b,y\n1,,0\n3,,1\n4,5,1\n2,1,0\n").unwrap();
        let csv = "csv = { file = 'train.csv', test_file = 'test.csv', label = 'y', missing = 'drop' }";
        let task = format!("certificate = 'mine.pem'\n[tasks.t]\nlearner = 'mlp'\ndata = {{ {csv} }}");
        fs::write(at("client.toml"), task).unwrap();
        let (client, _) = ClientFile::read_offline(&at("client.toml"), None).unwrap();
        let log = std::sync::Arc::new(fs::File::create(at("log")).unwrap());
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(log).finish();
        tracing::subscriber::with_default(log, || client.learners().learner("t").map(drop)).unwrap();
        let log = fs::read_to_string(at("log")).unwrap();
        for rows in ["train.csv: 4 rows, 1 dropped", "test.csv: 4 rows, 2 dropped"] {
            assert_eq!(log.matches(rows).count(), 1, "{log}");
        }
    }
}
