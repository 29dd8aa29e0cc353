//! How a trainer is started, and the limits of its silence.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustix::fs::{Access, access};

use super::clock::Clock;

pub(crate) const NO_PROGRESS: Duration = Duration::from_secs(600);

const TERMINATE_TIMEOUT: Duration = Duration::from_secs(5);

/// A trainer of one task.
#[derive(Debug, Clone)]
pub struct TrainerConfig {
    /// The task.
    pub task: String,
    /// Where the trainer comes from.
    pub source: Source,
    /// The client's device, such as `auto` or `cuda:0`.
    pub device: String,
    /// How long a trainer may be silent while a request is in flight.
    pub no_progress: Duration,
    /// Where the work folder is created.
    pub folder: PathBuf,
    /// The client's state folder, locked by this client; local tensors are kept there. `None`: nothing outlives the learner.
    pub state: Option<PathBuf>,
    /// Whether local tensors survive a power loss.
    pub sync: bool,
    pub(super) clock: Clock,
    /// Time between SIGTERM and SIGKILL.
    pub(super) terminate: Duration,
}

/// Where a trainer comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The client starts it.
    Command(Program),
    /// It connects to this socket.
    Attach(PathBuf),
}

impl TrainerConfig {
    /// A trainer with the defaults. `folder`: where the work folder is created.
    pub fn new(task: impl Into<String>, source: Source, folder: impl Into<PathBuf>) -> Self {
        Self {
            task: task.into(),
            source,
            device: "auto".to_owned(),
            no_progress: NO_PROGRESS,
            folder: folder.into(),
            state: None,
            sync: true,
            clock: Clock::system(),
            terminate: TERMINATE_TIMEOUT,
        }
    }
}

/// A program, its arguments, and the folder in which it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    words: Vec<String>,
    folder: PathBuf,
}

impl Program {
    /// A program that runs in `folder`; a first word with a `/` is relative to it.
    ///
    /// # Errors
    /// If there is no first word.
    pub fn new(words: Vec<String>, folder: impl Into<PathBuf>) -> anyhow::Result<Self> {
        let named = words.first().is_some_and(|name| !name.is_empty());
        ensure!(named, "names no program, such as [\"python3\", \"train.py\"]");
        let folder = folder.into();
        let folder = if folder.as_os_str().is_empty() {
            ".".into()
        } else {
            folder
        };
        Ok(Self { words, folder })
    }

    /// Finds the program, as the shell does.
    ///
    /// # Errors
    /// If there is none that this user may execute.
    pub fn path(&self) -> anyhow::Result<PathBuf> {
        let name = self.name();
        if name.contains('/') {
            let path = self.folder.join(name);
            let path = std::path::absolute(&path).unwrap_or(path);
            ensure!(path.exists(), "there is no file {}", path.display());
            ensure!(
                is_executable(&path),
                "{} is not executable: `chmod +x` it, or name its interpreter first, such as [\"python3\", \"{name}\"]",
                path.display()
            );
            return Ok(path);
        }
        let folders = env::var_os("PATH").context("PATH is not set")?;
        let found = env::split_paths(&folders)
            .map(|folder| folder.join(name))
            .find(|path| is_executable(path));
        let Some(path) = found else {
            bail!("there is no program `{name}` in the folders of PATH; install it, or give its path");
        };
        Ok(std::path::absolute(&path).unwrap_or(path))
    }

    pub(super) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(super) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, folder: &Path) -> Program {
        Program::new(vec![name.to_owned()], folder).unwrap()
    }

    #[test]
    fn programs_are_found_in_the_path_or_by_their_own() {
        let dir = tempfile::tempdir().unwrap();
        assert!(program("sh", dir.path()).path().unwrap().is_absolute());
        let refused = |name: &str| program(name, dir.path()).path().unwrap_err().to_string();
        assert!(refused("no-such-program").contains("PATH"));
        assert!(refused("./train").contains("there is no file"));
        std::fs::write(dir.path().join("train"), "").unwrap();
        assert!(refused("./train").contains("chmod +x"));
        assert!(Program::new(vec![], dir.path()).is_err());
        assert!(Program::new(vec![String::new()], dir.path()).is_err());
    }
}
