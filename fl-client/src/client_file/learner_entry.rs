//! The `learner` of a task: a name, or a trainer.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::named::NAME;
use crate::trainer::{NO_PROGRESS, Program};

/// Longest `no_progress`: 30 days, in milliseconds.
const MAX_SILENCE: u64 = 30 * 24 * 3_600_000;

/// The `learner` of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum LearnerEntry {
    /// The name of a learner of this program, or a table that has it.
    Named(toml::Value),
    /// A program that trains.
    Trainer(TrainerEntry),
}

/// `learner = { command = [...] }` or `learner = { attach = "..." }`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerEntry {
    /// Program and arguments, started in the folder of client.toml.
    pub command: Option<Vec<String>>,
    /// Socket in the state folder at which a trainer connects.
    pub attach: Option<PathBuf>,
    /// How long the trainer may be silent while a request is in flight.
    #[serde(default = "no_progress", deserialize_with = "duration")]
    pub no_progress: Duration,
    /// Where the work folder is created; by default the state folder.
    pub folder: Option<PathBuf>,
}

impl TrainerEntry {
    /// An error begins with the key below `learner`.
    pub(super) fn check(&self) -> Result<(), String> {
        match (&self.command, &self.attach) {
            (Some(words), None) => {
                let checked = Program::new(words.clone(), ".");
                checked.map(drop).map_err(|e| format!(".command`: {e}"))
            }
            (None, Some(path)) => {
                let inside = path.is_relative() && path.components().count() == 1 && path.file_name().is_some();
                if inside {
                    Ok(())
                } else {
                    Err(format!(
                        ".attach`: `{}` must be the name of a socket in the state folder, such as \"trainer.sock\"",
                        path.display()
                    ))
                }
            }
            _ => Err("`: give either `command` or `attach`".to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for LearnerEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = LearnerEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "the name of a learner, { name = \"transformer\", layers = 4 }, { command = [\"python3\", \"train.py\"] } or \
                     { attach = \"trainer.sock\" }",
                )
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<LearnerEntry, E> {
                Ok(LearnerEntry::Named(name.into()))
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<LearnerEntry, M::Error> {
                let table = toml::Table::deserialize(MapAccessDeserializer::new(map))?;
                if table.contains_key(NAME) {
                    return Ok(LearnerEntry::Named(table.into()));
                }
                let entry = TrainerEntry::deserialize(table).map_err(|error| M::Error::custom(error.message()))?;
                Ok(LearnerEntry::Trainer(entry))
            }
        }
        deserializer.deserialize_any(Forms)
    }
}

fn no_progress() -> Duration {
    NO_PROGRESS
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let millis = fl_compress::duration::millis(&text).filter(|millis| (1..=MAX_SILENCE).contains(millis));
    millis.map(Duration::from_millis).ok_or_else(|| {
        D::Error::custom(format!(
            "`no_progress` is {text:?}, but must be a duration of 1ms to 720h, such as \"10min\""
        ))
    })
}
