//! Learners that a client.toml names, `learner = "mlp"`, with the examples in `data`. This crate has none: a program brings them as
//! [`Learners`], and one without them is a client for trainers alone.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use fl_cli::task;
use fl_compress::Layout;
use toml::Value;

use crate::device::DeviceChoice;
use crate::error::Error;
use crate::learner::Learner;

/// The key of a learner's name, in a `learner` that is a table.
pub const NAME: &str = "name";

/// The learners and data sets of a program.
pub trait Learners: fmt::Debug + Send + Sync {
    /// What the help says of `--learner`: name and description of each.
    fn help(&self) -> String;

    /// The learner of a task. `learner`: a name, or a table that has [`NAME`]; `data`: where its examples come from; a relative path
    /// in either is relative to `base`.
    ///
    /// # Errors
    /// Which of the two is wrong, and how.
    fn named(&self, learner: &Value, data: Option<&Value>, base: &Path) -> Result<Arc<dyn NamedLearner>, Wrong>;

    /// The device that a learner would use, `CPU` or `GPU`, and why it is not a GPU if this program could use one.
    ///
    /// # Errors
    /// If `device` asks for a GPU that cannot be used.
    fn device(&self, device: DeviceChoice) -> anyhow::Result<(&'static str, Option<String>)>;
}

/// What is wrong with a learner or with its data.
#[derive(Debug, Clone, PartialEq)]
pub struct Wrong {
    /// The key of the task: `learner` or `data`.
    pub key: &'static str,
    /// What is wrong, and what is allowed.
    pub why: String,
}

/// One learner, and the examples that it trains on. Displays as client.toml has the learner.
pub trait NamedLearner: fmt::Debug + fmt::Display + Send + Sync {
    /// Reads the examples and makes the learner. It keeps its own examples only, not the whole data files. `state`: the client's
    /// folder, where it may store what stays on this device.
    ///
    /// # Errors
    /// If there are none, or they do not suit the learner; if the device cannot be used.
    fn build(&self, device: DeviceChoice, state: Option<&Path>) -> anyhow::Result<Box<dyn Learner>>;

    /// As [`NamedLearner::build`], with what `check` says of it. `task`: the options of a command that name the task.
    ///
    /// # Errors
    /// As there.
    fn describe(&self, device: DeviceChoice, task: &str) -> anyhow::Result<Description>;

    /// First weights of a run. `asked`: the shape of an example, where the task has no data.
    ///
    /// # Errors
    /// If the shape does not suit the learner.
    fn first_weights(&self, asked: &ExampleShape, seed: u64) -> anyhow::Result<(Arc<Layout>, Vec<f32>)>;
}

/// What `check` says of a learner and its examples.
pub struct Description {
    /// The learner.
    pub learner: Box<dyn Learner>,
    /// The learner, its size and its examples in a line.
    pub text: String,
    /// More about the examples.
    pub details: Vec<String>,
    /// Number of examples to train on.
    pub examples: u64,
    /// Classes or tokens among which the model chooses; `None` if it predicts numbers.
    pub classes: Option<usize>,
}

impl fmt::Debug for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Described")
            .field("text", &self.text)
            .finish_non_exhaustive()
    }
}

/// The shape of an example that a command line gives; what is missing is what the learner is usually fed.
#[derive(Debug, Clone, Default)]
pub struct ExampleShape {
    /// Channels, height, width.
    pub input: Option<[usize; 3]>,
    /// Number of classes, or of tokens of a vocabulary.
    pub classes: Option<u32>,
    /// How many numbers are predicted, in place of classes.
    pub numbers: Option<u32>,
}

/// No learners: a program for trainers alone.
#[derive(Debug)]
pub struct TrainersOnly;

impl Learners for TrainersOnly {
    fn help(&self) -> String {
        "This program was built without learners of its own".to_owned()
    }

    fn named(&self, learner: &Value, _: Option<&Value>, _: &Path) -> Result<Arc<dyn NamedLearner>, Wrong> {
        let name = learner.get(NAME).unwrap_or(learner);
        let why = format!(
            "there is no learner {name}: this program was built without the feature `learn`, and has trainers only"
        );
        Err(Wrong { key: "learner", why })
    }

    fn device(&self, _: DeviceChoice) -> anyhow::Result<(&'static str, Option<String>)> {
        Ok(("CPU", None))
    }
}

/// The learner and data that a command line gives, as in client.toml: `mlp` or `{ name = "mlp", hidden = [30] }`, and a table.
pub(crate) fn of_options(
    learners: &dyn Learners,
    learner: &str,
    data: Option<&str>,
) -> Result<Arc<dyn NamedLearner>, Error> {
    let named = task::learner("--learner", learner).map_err(Error::Config)?;
    let data = data
        .map(|data| task::one_table("--data", data))
        .transpose()
        .map_err(Error::Config)?;
    let found = learners.named(&named, data.as_ref(), Path::new(""));
    found.map_err(|Wrong { key, why }| Error::Config(format!("`--{key}`: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_no_learner_or_no_table_are_named() {
        for (learner, data, why) in [
            (
                "mlp",
                None,
                "there is no learner \"mlp\": this program was built without the feature `learn`",
            ),
            ("{ name = 'cnn' }", None, "there is no learner \"cnn\""),
            ("{ name = ", None, "--learner `{ name = `: "),
            ("{ name = 'mlp' } \n other = 3", None, "must be one table"),
            ("mlp", Some("7"), "--data `7`: must be one table"),
            ("mlp", Some("{ a = "), "--data `{ a = `: "),
        ] {
            let error = of_options(&TrainersOnly, learner, data).unwrap_err().to_string();
            assert!(error.contains(why), "{learner} {data:?}: {error}");
        }
    }
}
