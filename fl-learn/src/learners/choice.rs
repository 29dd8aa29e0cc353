//! The built-in learners, and one of them as a configuration names it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use fl_compress::Layout;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::info::LearnerInfo;
use super::space::InSpace;
use super::trained::TrainedModel;
use super::{cnn, har, lenet, lora, lstm, mlp, resnet, transformer};
use crate::data::{ClientData, Input};
use fl_cli::task;
use fl_client::{DeviceChoice, Error, Learner, NAME};

/// Every built-in learner.
pub static LEARNERS: &[LearnerInfo] = &[
    mlp::LEARNER,
    cnn::LEARNER,
    lenet::LEARNER,
    har::LEARNER,
    resnet::RESNET8,
    resnet::RESNET18,
    resnet::RESNET50,
    lstm::LEARNER,
    transformer::LEARNER,
    lora::LEARNER,
];

/// The built-in learner called `name`.
///
/// # Errors
/// `Config` if there is none; the error lists those there are.
pub fn find(name: &str) -> Result<&'static LearnerInfo, Error> {
    among(LEARNERS, name)
}

fn among<'a>(learners: &'a [LearnerInfo], name: &str) -> Result<&'a LearnerInfo, Error> {
    let mut found = learners.iter().filter(|learner| learner.name == name);
    match (found.next(), found.next()) {
        (Some(learner), None) => Ok(learner),
        (Some(_), Some(_)) => Err(Error::Config(format!(
            "two learners of this program are called `{name}`; give one of them another name"
        ))),
        (None, _) => {
            let names: Vec<&str> = learners.iter().map(|learner| &*learner.name).collect();
            Err(Error::Config(format!(
                "there is no learner `{name}`; the learners are {}",
                names.join(", ")
            )))
        }
    }
}

/// Name and description of every learner of this crate, for a help text.
pub fn help() -> String {
    help_of(LEARNERS)
}

pub(crate) fn help_of(learners: &[LearnerInfo]) -> String {
    let list: Vec<String> = learners.iter().map(|l| format!("{} ({})", l.name, l.about)).collect();
    format!("Name of the learner: {}", list.join(", "))
}

/// A built-in learner and the settings of its model: `"mlp"`, or `{ name = "transformer", layers = 4 }`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct LearnerChoice {
    info: LearnerInfo,
    /// Checked when they were read.
    settings: Table,
}

impl LearnerChoice {
    /// The learner of `[name]`, with these settings.
    ///
    /// # Errors
    /// `Config` if there is no such learner, or it has no such setting.
    pub fn new(name: &str, settings: Table) -> Result<Self, Error> {
        Self::among(LEARNERS, name, settings)
    }

    /// As [`LearnerChoice::new`], of one of `learners`.
    fn among(learners: &[LearnerInfo], name: &str, settings: Table) -> Result<Self, Error> {
        let info = among(learners, name)?.clone();
        (info.check)(&settings).map_err(|why| Error::Config(format!("learner `{name}`: {why}")))?;
        Ok(Self { info, settings })
    }

    /// Makes the paths among the settings relative to `base`, where the configuration file lies.
    pub fn relative_to(&mut self, base: &Path) {
        for key in self.info.paths {
            if let Some(Value::String(path)) = self.settings.get_mut(*key) {
                *path = base.join(&*path).to_string_lossy().into_owned();
            }
        }
    }

    /// The learner's row.
    pub fn info(&self) -> &LearnerInfo {
        &self.info
    }

    /// The settings of its model.
    pub fn settings(&self) -> &Table {
        &self.settings
    }

    /// Builds the learner for `data`, whose shape and classes shape the model. Its weights are zero until they are loaded.
    ///
    /// # Errors
    /// If the model does not suit the data's shape, there is nothing to train on, or the device cannot be used.
    pub fn build(&self, device: DeviceChoice, data: ClientData) -> anyhow::Result<Box<dyn Learner>> {
        self.build_in(device, data, None)
    }

    /// As [`LearnerChoice::build`]; local tensors are stored in the client's folder `state`.
    pub(crate) fn build_in(
        &self,
        device: DeviceChoice,
        data: ClientData,
        state: Option<&Path>,
    ) -> anyhow::Result<Box<dyn Learner>> {
        let trained = self.build_trained(device, data)?;
        Ok(Box::new(InSpace::new(trained.storing_in(state))))
    }

    /// As [`LearnerChoice::build`], for what only a built-in learner can do.
    ///
    /// # Errors
    /// As there.
    pub fn build_trained(&self, device: DeviceChoice, data: ClientData) -> anyhow::Result<TrainedModel> {
        self.info.build_trained(&self.settings, device, data)
    }

    /// `adapter_config.json` of PEFT.
    ///
    /// # Errors
    /// `Config` if the learner has no adapters; if its model cannot be read.
    pub fn peft_config(&self) -> anyhow::Result<serde_json::Value> {
        if self.info.name != lora::LEARNER.name {
            let name = &self.info.name;
            return Err(Error::Config(format!("learner `{name}` has no adapters; only `lora` has")).into());
        }
        lora::peft_config(&self.settings)
    }

    /// Layout and seeded first weights of the model for examples of this shape. The same on every machine.
    ///
    /// # Errors
    /// If the model does not suit the input.
    pub fn initial_weights_for(&self, input: Input, seed: u64) -> anyhow::Result<(Arc<Layout>, Vec<f32>)> {
        self.info.initial_weights_with(&self.settings, input, seed)
    }
}

impl PartialEq for LearnerChoice {
    fn eq(&self, other: &Self) -> bool {
        self.info.name == other.info.name && self.settings == other.settings
    }
}

impl LearnerChoice {
    /// One of `learners`, as a configuration names it.
    ///
    /// # Errors
    /// As [`LearnerChoice::new`].
    pub fn of(value: Value, learners: &[LearnerInfo]) -> Result<Self, Error> {
        match value {
            Value::String(name) => Self::among(learners, &name, Table::new()),
            Value::Table(mut table) => match table.remove(NAME) {
                Some(Value::String(name)) => Self::among(learners, &name, table),
                _ => Err(Error::Config(FORMS.to_owned())),
            },
            _ => Err(Error::Config(FORMS.to_owned())),
        }
    }
}

impl TryFrom<Value> for LearnerChoice {
    type Error = Error;

    fn try_from(value: Value) -> Result<Self, Error> {
        Self::of(value, LEARNERS)
    }
}

const FORMS: &str = "a learner is a name, or { name = \"transformer\", layers = 4 } with its settings";

impl From<LearnerChoice> for Value {
    fn from(choice: LearnerChoice) -> Self {
        let name = Self::String(choice.info.name.into_owned());
        if choice.settings.is_empty() {
            return name;
        }
        let mut table = choice.settings;
        table.insert(NAME.to_owned(), name);
        Self::Table(table)
    }
}

/// A name, or an inline table of TOML.
impl FromStr for LearnerChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::try_from(task::learner("learner", text).map_err(Error::Config)?)
    }
}

impl fmt::Display for LearnerChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.settings.is_empty() {
            return f.write_str(&self.info.name);
        }
        write!(f, "{{ {} = \"{}\"", NAME, self.info.name)?;
        self.settings
            .iter()
            .try_for_each(|(key, value)| write!(f, ", {key} = {value}"))?;
        f.write_str(" }")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_tables_are_read_and_written_alike() {
        for text in ["mlp", "{ name = \"transformer\", layers = 2, style = \"llama\" }"] {
            let choice: LearnerChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
            #[derive(Serialize, Deserialize, PartialEq, Debug)]
            struct File {
                learner: LearnerChoice,
            }
            let file = File { learner: choice };
            assert_eq!(toml::from_str::<File>(&toml::to_string(&file).unwrap()).unwrap(), file);
        }
    }

    #[test]
    fn what_is_no_learner_is_named() {
        for (text, part) in [
            ("mlpp", "no learner `mlpp`"),
            ("{ name = 'cnn', hidden = [1, 2] }", "learner `cnn`"),
            (
                "{ name = 'transformer', layer = 3 }",
                "unknown field `layer`, expected one of",
            ),
            ("{ name = 'transformer', layers = 0 }", "`layers` is 0"),
            ("{ layers = 3 }", "{ name = "),
            ("{ name = 'mlp' } \n other = 3", "{ name = "),
            ("{ name = ", "learner `{ name = `"),
        ] {
            let error = text.parse::<LearnerChoice>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
