//! Learners and data sets by name.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use candle_nn::{ModuleT, VarBuilder};
use fl_client::{Description, DeviceChoice, Error, ExampleShape, Learner, Learners, NamedLearner, Wrong};
use fl_compress::Layout;
use serde::de::DeserializeOwned;
use toml::Value;

use crate::data::{DATA_SETS, DataSet, DataSetInfo, DataSource, Input, Target, told};
use crate::described;
use crate::learners::{self, GivenSettings, LEARNERS, LearnerChoice, LearnerInfo};

/// The learners and data sets that a client.toml may name: those of this crate, and a program's own.
///
/// ```no_run
/// use fl_learn::Registry;
/// use fl_learn::nn::{linear, seq};
///
/// fn main() -> std::process::ExitCode {
///     fl_learn::main(Registry::built_in().with("net", |vb, input, settings| {
///         let hidden = settings.get("hidden", 32)?;
///         let first = linear(input.len(), hidden, vb.pp("first"))?;
///         let flat = |x: &fl_learn::Tensor| x.flatten_from(1);
///         let net = seq().add_fn(flat).add(first).add_fn(|x| x.relu()).add(linear(hidden, input.classes, vb.pp("last"))?);
///         Ok(Box::new(net))
///     }))
/// }
/// ```
#[derive(Debug)]
pub struct Registry {
    learners: Vec<LearnerInfo>,
    data_sets: Vec<DataSetInfo>,
}

impl Registry {
    /// Those of this crate.
    pub fn built_in() -> Self {
        Self {
            learners: LEARNERS.to_vec(),
            data_sets: DATA_SETS.to_vec(),
        }
    }

    /// Also the learner `name`. `model` makes its model for examples of the given shape, with the settings of client.toml. It is called
    /// on each thread that uses the model, and asks the `VarBuilder` for the same tensors each time; each is zero in the first call, and
    /// none may be computed with. `forward_t` takes `[batch, channels, height, width]` of f32 and returns `[batch, classes]` before
    /// softmax, or as many numbers; of texts, it takes `[batch, tokens]` of u32 and returns `[batch, tokens, vocabulary]`.
    #[must_use]
    pub fn with(
        mut self,
        name: &str,
        model: impl Fn(VarBuilder<'static>, Input, &GivenSettings<'_>) -> anyhow::Result<Box<dyn ModuleT>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.learners.push(LearnerInfo::of_graph(name, model));
        self
    }

    /// Also data sets of type `T`, called `name` in the `data` of a task.
    #[must_use]
    pub fn with_data<T: DataSet + Clone + DeserializeOwned + 'static>(mut self, name: &'static str) -> Self {
        self.data_sets.push(DataSetInfo::of::<T>(name));
        self
    }

    /// The learner and the examples of a task; a relative path in either is relative to `base`.
    ///
    /// # Errors
    /// Which of the two is wrong, and how.
    pub fn task(&self, learner: &Value, data: Option<&Value>, base: &Path) -> Result<Task, Wrong> {
        let wrong = |key| move |why: String| Wrong { key, why };
        let choice = LearnerChoice::of(learner.clone(), &self.learners);
        let mut learner = choice.map_err(|error| wrong("learner")(error.to_string()))?;
        learner.relative_to(base);
        let data = data.map(|data| DataSource::of(data, &self.data_sets)).transpose();
        let mut data = data.map_err(wrong("data"))?;
        if let Some(data) = &mut data {
            data.relative_to(base);
        }
        Ok(Task { learner, data })
    }
}

impl Learners for Registry {
    fn help(&self) -> String {
        learners::help_of(&self.learners)
    }

    fn named(&self, learner: &Value, data: Option<&Value>, base: &Path) -> Result<Arc<dyn NamedLearner>, Wrong> {
        Ok(Arc::new(self.task(learner, data, base)?))
    }

    fn device(&self, device: DeviceChoice) -> anyhow::Result<(&'static str, Option<String>)> {
        learners::found(device)
    }
}

/// A learner of the registry, and where its examples come from.
#[derive(Debug, Clone)]
pub struct Task {
    /// The learner.
    pub learner: LearnerChoice,
    /// Its examples, if they are given.
    pub data: Option<DataSource>,
}

impl Task {
    /// Where the examples come from.
    ///
    /// # Errors
    /// `Config` if that is not given.
    pub fn data(&self) -> anyhow::Result<&DataSource> {
        Ok(self
            .data
            .as_ref()
            .ok_or_else(|| Error::Config("give the examples, as `data` in client.toml".to_owned()))?)
    }

    /// Shape of the examples, or else the one that is asked for.
    fn input(&self, asked: &ExampleShape) -> anyhow::Result<Input> {
        if let Some(data) = &self.data {
            return Ok(data.set().input()?);
        }
        let info = self.learner.info();
        let usual = match (info.input, asked.input, asked.classes.or(asked.numbers)) {
            (Some(usual), ..) => usual,
            (None, Some(shape), Some(classes)) => Input::of_classes(shape, classes as usize),
            (None, ..) => {
                let why = format!(
                    "learner `{}` has no usual input: give --data, or --input with --classes or --numbers",
                    info.name
                );
                return Err(Error::Config(why).into());
            }
        };
        let shape = asked.input.unwrap_or(usual.shape);
        if let Some(count) = asked.numbers {
            return Ok(Input::of_numbers(shape, count as usize));
        }
        Ok(Input {
            shape,
            classes: asked.classes.map_or(usual.classes, |classes| classes as usize),
            ..usual
        })
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.learner.fmt(f)
    }
}

impl NamedLearner for Task {
    fn build(&self, device: DeviceChoice, state: Option<&Path>) -> anyhow::Result<Box<dyn Learner>> {
        let data = self.data()?.load().map_err(|error| told(error.into()))?;
        // Of a table: its rows, and how many were dropped.
        let mut rows = [&data.train, &data.test].map(|part| part.notes().first()).to_vec();
        rows.dedup();
        for rows in rows.into_iter().flatten() {
            tracing::info!("{rows}");
        }
        self.learner.build_in(device, data.compact(), state)
    }

    fn describe(&self, device: DeviceChoice, task: &str) -> anyhow::Result<Description> {
        let data = self.data()?.load().map_err(|error| told(error.into()))?;
        let learner = self.learner.build(device, data.clone())?;
        let parameters = learner.layout().len();
        let train = data.train.len();
        let test = data.test.len();
        let input = data.train.input();
        Ok(Description {
            learner,
            text: format!(
                "{}, {parameters} parameters; {train} examples to train on, {test} held out",
                self.learner
            ),
            details: described::details(&self.learner, &data, task),
            examples: train as u64,
            classes: (input.target != Target::Numbers).then_some(input.classes),
        })
    }

    fn first_weights(&self, asked: &ExampleShape, seed: u64) -> anyhow::Result<(Arc<Layout>, Vec<f32>)> {
        let input = self.input(asked).map_err(told)?;
        let made = self.learner.initial_weights_for(input, seed);
        made.map_err(|error| Error::Config(format!("{error:#}")).into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use fl_client::ClientFile;

    use super::*;

    #[test]
    fn the_log_says_how_many_rows_of_a_table_were_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("train.csv"), "a,b,y\n1,2,0\n,3,1\n4,5,1\n2,1,0\n").unwrap();
        fs::write(at("test.csv"), "a,b,y\n1,,0\n3,,1\n4,5,1\n2,1,0\n").unwrap();
        let csv = "csv = { file = 'train.csv', test_file = 'test.csv', label = 'y', missing = 'drop' }";
        let task = format!("certificate = 'mine.pem'\n[tasks.t]\nlearner = 'mlp'\ndata = {{ {csv} }}");
        fs::write(at("client.toml"), task).unwrap();
        let (client, _) = ClientFile::read_offline(&at("client.toml"), &Registry::built_in(), None).unwrap();
        let log = std::sync::Arc::new(fs::File::create(at("log")).unwrap());
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(log).finish();
        tracing::subscriber::with_default(log, || {
            client.named("t").unwrap().build(DeviceChoice::Cpu, None).map(drop)
        })
        .unwrap();
        let log = fs::read_to_string(at("log")).unwrap();
        for rows in ["train.csv: 4 rows, 1 dropped", "test.csv: 4 rows, 2 dropped"] {
            assert_eq!(log.matches(rows).count(), 1, "{log}");
        }
    }

    #[test]
    fn a_wrong_learner_and_wrong_data_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client.toml");
        for (task, why) in [
            (
                "learner = 'mlpp'\ndata = { builtin = {} }",
                "`tasks.a.learner`: there is no learner `mlpp`",
            ),
            (
                "learner = 'mlp'\ndata = { builtin = { trian = 3 } }",
                "`tasks.a.data`: `builtin`: unknown field `trian`",
            ),
            (
                "learner = 'mlp'\ndata = { builtin = { train = 0 } }",
                "`tasks.a.data`: `builtin`: `train` must be 1",
            ),
            (
                "learner = 'mlp'\ndata = { nothing = {} }",
                "`tasks.a.data`: there is no data set `nothing`",
            ),
        ] {
            fs::write(&path, format!("[tasks.a]\n{task}")).unwrap();
            let error = ClientFile::read_offline(&path, &Registry::built_in(), None)
                .unwrap_err()
                .to_string();
            assert!(error.contains(why) && error.contains("client.toml"), "{task}: {error}");
        }
    }

    fn toml(text: &str) -> Value {
        text.parse::<toml::Table>().unwrap().into()
    }

    #[test]
    fn a_programs_own_learner_is_one_of_the_table_and_needs_a_shape() {
        let registry = Registry::built_in().with("net", |vb, input, settings| {
            let hidden = settings.get("hidden", 3)?;
            let first = candle_nn::linear(input.len(), hidden, vb.pp("first"))?;
            let net = candle_nn::seq().add_fn(|x| x.flatten_from(1)).add(first);
            Ok(Box::new(net.add(candle_nn::linear(
                hidden,
                input.classes,
                vb.pp("last"),
            )?)))
        });
        assert!(registry.help().ends_with("net (a model of this program)"));
        let net = toml("name = 'net'\nhidden = 2");
        let named = registry.named(&net, None, Path::new("")).unwrap();
        assert_eq!(named.to_string(), "{ name = \"net\", hidden = 2 }");
        let error = named
            .first_weights(&ExampleShape::default(), 1)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("learner `net` has no usual input: give --data, or --input"),
            "{error}"
        );
        let asked = ExampleShape {
            input: Some([1, 2, 2]),
            classes: Some(3),
            numbers: None,
        };
        let (layout, weights) = named.first_weights(&asked, 1).unwrap();
        assert_eq!(
            (layout.len(), &weights),
            (19, &named.first_weights(&asked, 1).unwrap().1)
        );
        assert_ne!(weights, named.first_weights(&asked, 2).unwrap().1);
        let taken = registry.with("mlp", |_, _, _| anyhow::bail!("never"));
        let error = taken.named(&"mlp".into(), None, Path::new("")).unwrap_err();
        assert_eq!(
            (
                error.key,
                error.why.contains("two learners of this program are called `mlp`")
            ),
            ("learner", true)
        );
    }

    #[test]
    fn a_data_set_without_examples_is_refused() {
        #[derive(Debug, Clone, serde::Deserialize)]
        struct Empty {}
        impl DataSet for Empty {
            fn load(&self) -> Result<crate::data::ClientData, crate::data::Error> {
                use crate::data::{ClientData, Dataset, Examples, Features};
                let set = Dataset::new(
                    Features::Floats(Vec::new()),
                    Vec::new(),
                    Input::of_classes([1, 1, 2], 2),
                )?;
                let none = Examples::all(Arc::new(set));
                Ok(ClientData {
                    train: none.clone(),
                    test: none,
                })
            }
        }
        let registry = Registry::built_in().with_data::<Empty>("empty");
        let named = registry
            .named(&"mlp".into(), Some(&toml("empty = {}")), Path::new(""))
            .unwrap();
        let error = named.describe(DeviceChoice::Cpu, "").unwrap_err().to_string();
        assert!(error.contains("learner `mlp` has no example to train on"), "{error}");
    }
}
