//! `client.toml`: the deployment facts of one device, and the learner and data of each task.

mod changed;
mod learner_entry;
mod raw;
mod task;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::ClientConfig;
use crate::device::DeviceChoice;
use crate::error::Error;
use crate::identity::{IdentityFiles, newest};
use crate::learner::Learner;
use crate::named::{Learners, NamedLearner};
use crate::tasks::Tasks;
use crate::trainer::{Program, Source, TrainerConfig, TrainerLearner};

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
    /// The learners of those that name one.
    named: BTreeMap<String, Arc<dyn NamedLearner>>,
}

impl ClientFile {
    /// Reads the file and the certificates that it names. `learners`: those that tasks may name.
    ///
    /// # Errors
    /// `Config` names the file, the key and the allowed values.
    pub fn read(path: &Path, learners: &dyn Learners) -> Result<Self, Error> {
        Self::read_with(path, learners, |pem| {
            if pem.exists() {
                return text(pem);
            }
            Err(Error::Config(format!(
                "{}: there is no such file; it comes with the folder that `fl-server issue` makes for a client, or by `fl-client enroll`",
                pem.display()
            )))
        })
    }

    /// The file without the certificates, and the task that a command means: `asked`, or the only one. For commands that
    /// connect to no server.
    ///
    /// # Errors
    /// As [`ClientFile::read`]; which tasks there are.
    pub fn read_offline(path: &Path, learners: &dyn Learners, asked: Option<&str>) -> Result<(Self, String), Error> {
        let file = Self::read_with(path, learners, |_| Ok(String::new()))?;
        let task = file.task(asked).map(str::to_owned);
        let task = task.map_err(|why| Error::Config(format!("{}: {why}", path.display())))?;
        Ok((file, task))
    }

    pub(crate) fn read_state(path: &Path, learners: &dyn Learners) -> Result<PathBuf, Error> {
        Ok(Self::read_with(path, learners, |_| Ok(String::new()))?.config.state)
    }

    fn read_with(
        path: &Path,
        learners: &dyn Learners,
        pem: impl Fn(&Path) -> Result<String, Error>,
    ) -> Result<Self, Error> {
        let base = path.parent().unwrap_or(Path::new(""));
        let written = text(path)?;
        if written.trim().is_empty() {
            let path = path.display();
            let why =
                format!("{path} is empty; `fl-server issue` writes a client.toml, and configs/ has one to begin with");
            return Err(Error::Config(why));
        }
        let wrong = |why: String| Error::Config(format!("{}: {why}", path.display()));
        let raw = parse(&written).map_err(wrong)?;
        let named = raw.named(learners, base).map_err(wrong)?;
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
            named,
        };
        file.check_models()
            .and_then(|()| file.check_programs())
            .map_err(wrong)?;
        Ok(file)
    }

    fn check_models(&self) -> Result<(), String> {
        let missing = self.config.models.as_ref().filter(|models| !models.is_dir());
        missing.map_or(Ok(()), |models| {
            let models = models.display();
            Err(format!(
                "`models`: there is no folder {models}; create it, or delete the key"
            ))
        })
    }

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
                let state = &self.config.state;
                let mut trainer = self.trainer_in(state, task, entry)?;
                trainer.state = Some(state.clone());
                trainer.sync = self.config.sync;
                Ok(Some(trainer))
            }
            _ => Ok(None),
        }
    }

    /// As [`ClientFile::trainer`], for a command that may run beside the client: the state folder is not touched.
    pub(crate) fn trainer_aside(&self, task: &str) -> anyhow::Result<TrainerConfig> {
        match self.tasks.get(task).map(|entry| &entry.learner) {
            Some(LearnerEntry::Trainer(entry)) => self.trainer_in(&std::env::temp_dir(), task, entry),
            _ => anyhow::bail!("task `{task}` has no trainer"),
        }
    }

    /// `folder`: where the work folder is created if the entry does not say.
    fn trainer_in(&self, folder: &Path, task: &str, entry: &TrainerEntry) -> anyhow::Result<TrainerConfig> {
        let source = match (&entry.command, &entry.attach) {
            (Some(words), _) => Source::Command(Program::new(words.clone(), &self.folder)?),
            (None, socket) => {
                let socket = socket.as_deref().unwrap_or(Path::new("trainer.sock"));
                Source::Attach(self.config.state.join(socket))
            }
        };
        let own = entry.folder.as_ref().map(|own| self.folder.join(own));
        let mut trainer = TrainerConfig::new(task, source, own.unwrap_or_else(|| folder.to_owned()));
        trainer.device = self.device.to_string();
        trainer.no_progress = entry.no_progress;
        Ok(trainer)
    }

    /// The name of the task that a command means: `asked`, or the only one. An error lists the names.
    pub(crate) fn task(&self, asked: Option<&str>) -> Result<&str, String> {
        let found = match asked {
            Some(name) => self.tasks.get_key_value(name).map(|(name, _)| name),
            None => self.tasks.keys().next().filter(|_| self.tasks.len() == 1),
        };
        found.map(String::as_str).ok_or_else(|| {
            format!(
                "`--task` must be one of: {}",
                self.tasks.keys().cloned().collect::<Vec<_>>().join(", ")
            )
        })
    }

    /// The learner that a task names; `None` if it has a trainer.
    pub fn named(&self, task: &str) -> Option<&Arc<dyn NamedLearner>> {
        self.named.get(task)
    }

    pub(crate) fn names_learners(&self) -> bool {
        !self.named.is_empty()
    }

    /// The learners, each built when a run first needs it.
    pub fn learners(&self) -> Tasks {
        self.tasks.keys().fold(Tasks::new(), |tasks, name| {
            let named = self.named.get(name).cloned();
            let device = self.device;
            let trainer = self.trainer(name);
            let state = self.config.state.clone();
            tasks.with_lazy(name, move || match (named, trainer?) {
                (Some(named), _) => named.build(device, Some(&state)),
                (None, Some(trainer)) => Ok(Box::new(TrainerLearner::new(trainer)?) as Box<dyn Learner>),
                (None, None) => anyhow::bail!("it has neither a learner nor a trainer"),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::named::TrainersOnly;

    #[test]
    fn a_missing_certificate_is_named_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client.toml");
        fs::write(&path, "certificate = 'mine.pem'").unwrap();
        let error = ClientFile::read(&path, &TrainersOnly).unwrap_err().to_string();
        assert!(
            error.contains("mine.pem: there is no such file; it comes with"),
            "{error}"
        );
        let mine = "certificate = 'mine.pem'\n[tasks.digits]\nlearner = { command = ['sh'] }";
        fs::write(&path, mine).unwrap();
        assert_eq!(
            ClientFile::read_offline(&path, &TrainersOnly, None).unwrap().1,
            "digits"
        );
        let error = ClientFile::read_offline(&path, &TrainersOnly, Some("none"))
            .unwrap_err()
            .to_string();
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
            let found = ClientFile::read_offline(&path, &TrainersOnly, None).and_then(|(file, task)| {
                let trainer = file.trainer(&task);
                trainer.map_err(|error| Error::Config(error.to_string()))
            });
            match found {
                Ok(_) => assert!(is_good),
                Err(error) => assert!(!is_good && error.to_string().contains("is not UTF-8"), "{error}"),
            }
        }
    }
}
