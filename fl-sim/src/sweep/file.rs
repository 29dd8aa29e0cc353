//! A sweep file: an experiment with grids, seeds to choose on and other seeds to report on.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use fl_learn::data::check_validation;
use serde::Deserialize;
use toml::{Table, Value};

use super::grid::{Assignment, Grid, label, text};
use super::phase::Phase;
use crate::experiment::{Experiment, Variant};
use crate::settings;
use crate::wire::Wire;
use crate::workload::Workload;

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    choose: Vec<u64>,
    report: Vec<u64>,
    baseline: String,
    #[serde(default = "tenth")]
    validation: f64,
    max_loss: Option<f64>,
    #[serde(default = "half_a_point")]
    reach: f64,
    #[serde(default)]
    engine: Table,
    workload: Table,
    run: Table,
    #[serde(default)]
    variant: Vec<Table>,
    grid: Option<Value>,
    quick: Option<Quick>,
}

/// A shorter form of the same sweep.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    choose: Option<Vec<u64>>,
    report: Option<Vec<u64>>,
    #[serde(default)]
    set: Table,
}

fn tenth() -> f64 {
    0.1
}

fn half_a_point() -> f64 {
    0.5
}

/// A checked sweep: every point can be run, and no seed is chosen on and reported on.
#[derive(Debug, Clone)]
pub(crate) struct Sweep {
    pub(crate) choose: Vec<u64>,
    pub(crate) report: Vec<u64>,
    pub(crate) baseline: String,
    /// Share of each client's training examples that choices are evaluated with.
    pub(crate) validation: f64,
    /// What a chosen point may lose to the baseline, in units of the quality; its bytes decide then.
    pub(crate) max_loss: Option<f64>,
    /// Bytes are also counted up to the baseline's quality less this.
    pub(crate) reach: f64,
    /// The variants in their order, each with its points.
    pub(crate) variants: Vec<Points>,
    /// Whether it is the file's `[quick]` form.
    pub(crate) quick: bool,
    /// What a folder of this sweep may not mix with other values: `(key, value)`.
    pub(super) fixed: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Points {
    pub(crate) name: String,
    /// At least one.
    pub(crate) points: Vec<Point>,
}

/// One point of the grids of one variant.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    /// What the grids set, for people; empty if nothing.
    pub(crate) label: String,
    /// What the grids set: dotted key and value.
    pub(crate) settings: Vec<(String, String)>,
    /// The workload as the file gives it: paths are relative to the file.
    pub(super) given: Workload,
    /// An experiment of this variant alone, with the point's settings.
    pub(super) experiment: Experiment,
}

impl Point {
    pub(super) fn variant(&self) -> &Variant {
        // `Sweep::point` reads exactly one.
        &self.experiment.variant[0]
    }
}

impl Sweep {
    /// Reads a sweep. `base`: the file's folder. `quick`: in its `[quick]` form.
    ///
    /// # Errors
    /// If a key is unknown or out of range, or a point cannot be run; the error names the key.
    pub(crate) fn from_toml(text: &str, base: &Path, quick: bool) -> anyhow::Result<Self> {
        let mut raw: Raw = toml::from_str(text)?;
        let mut sets = Table::new();
        if quick {
            let form = raw.quick.take().context("`--quick`: the file has no `[quick]` table")?;
            raw.choose = form.choose.unwrap_or(raw.choose);
            raw.report = form.report.unwrap_or(raw.report);
            sets = form.set;
        }
        raw.check()?;
        let names = raw.names()?;
        let grids = Grid::all(raw.grid.as_ref(), &names)?;
        let mut variants = Vec::new();
        for (name, variant) in names.iter().zip(&raw.variant) {
            let mut file = raw.experiment(variant);
            for (key, value) in &sets {
                set(&mut file, key, value).context("`quick.set`")?;
            }
            let points = Grid::points(&grids, name, &file)?;
            let points: anyhow::Result<Vec<Point>> = points.iter().map(|set| point(&file, set, base)).collect();
            variants.push(Points {
                name: name.clone(),
                points: points?,
            });
        }
        let several = variants.iter().any(|variant| variant.points.len() > 1);
        ensure!(
            !several || !raw.choose.is_empty(),
            "`choose` is empty, but a variant has several points: list the seeds to choose on"
        );
        let fixed = vec![
            ("workload", Value::from(raw.workload.clone()).to_string()),
            ("run", Value::from(raw.run.clone()).to_string()),
            ("validation", raw.validation.to_string()),
            ("quick", Value::from(sets).to_string()),
        ];
        Ok(Self {
            choose: raw.choose,
            report: raw.report,
            baseline: raw.baseline,
            validation: raw.validation,
            max_loss: raw.max_loss,
            reach: raw.reach,
            variants,
            quick,
            fixed,
        })
    }

    pub(crate) fn seeds(&self, phase: Phase) -> &[u64] {
        match phase {
            Phase::Choose => &self.choose,
            Phase::Report => &self.report,
        }
    }

    pub(super) fn wire(&self) -> Wire {
        let mut points = self.variants.iter().flat_map(|variant| &variant.points);
        points
            .next()
            .map_or_else(Wire::default, |point| point.experiment.engine.wire)
    }

    pub(super) fn points(&self, name: &str) -> &[Point] {
        let found = self.variants.iter().find(|variant| variant.name == name);
        found.map_or(&[], |variant| &variant.points)
    }
}

impl Raw {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.report.is_empty(),
            "`report` is empty: list the seeds to report on"
        );
        for (key, seeds) in [("choose", &self.choose), ("report", &self.report)] {
            for (at, seed) in seeds.iter().enumerate() {
                ensure!(!seeds[..at].contains(seed), "`{key}` lists {seed} twice");
                ensure!(i64::try_from(*seed).is_ok(), "`{key}`: {seed} is not below 2^63");
            }
        }
        if let Some(seed) = self.choose.iter().find(|seed| self.report.contains(seed)) {
            bail!("seed {seed} is in `choose` and in `report`: a figure is reported on seeds that chose no setting");
        }
        check_validation(self.validation)?;
        for (key, value) in [("max_loss", self.max_loss), ("reach", Some(self.reach))] {
            let fits = value.is_none_or(|value| value.is_finite() && value >= 0.0);
            ensure!(fits, "`{key}` must be 0 or more");
        }
        let data = self.workload.get("data").and_then(Value::as_table);
        for (name, data) in data.into_iter().flatten() {
            let key = format!("workload.data.{name}.seed");
            ensure!(data.get("seed").is_none(), "{}", seed_is_given(&key));
        }
        Ok(())
    }

    fn names(&self) -> anyhow::Result<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        for variant in &self.variant {
            let name = variant.get("name").and_then(Value::as_str);
            let name = name.context("a `[[variant]]` has no `name`")?;
            ensure!(
                !names.iter().any(|earlier| earlier == name),
                "variant `{name}` is there twice"
            );
            names.push(name.to_owned());
        }
        ensure!(
            names.contains(&self.baseline),
            "`baseline` is `{}`, but there is no such variant; there are {}",
            self.baseline,
            names.join(", ")
        );
        Ok(names)
    }

    /// An experiment file of one variant.
    fn experiment(&self, variant: &Table) -> Table {
        let seeds: Vec<Value> = vec![Value::Integer(0)];
        let mut file = Table::new();
        file.insert("seeds".into(), seeds.into());
        file.insert("engine".into(), self.engine.clone().into());
        file.insert("workload".into(), self.workload.clone().into());
        file.insert("run".into(), self.run.clone().into());
        file.insert("variant".into(), Value::Array(vec![variant.clone().into()]));
        file
    }
}

/// The point `set` of the experiment `file`.
fn point(file: &Table, set_to: &Assignment, base: &Path) -> anyhow::Result<Point> {
    let name = label(set_to);
    let experiment = experiment(file.clone(), set_to);
    let mut experiment = experiment.with_context(|| match name.as_str() {
        "" => "the experiment".to_owned(),
        name => format!("`grid`: {name}"),
    })?;
    let given = experiment.workload_of(&experiment.variant[0]);
    experiment.relative_to(base);
    Ok(Point {
        label: name,
        settings: set_to.iter().map(|(key, value)| (key.clone(), text(value))).collect(),
        given,
        experiment,
    })
}

fn experiment(mut file: Table, set_to: &Assignment) -> anyhow::Result<Experiment> {
    for (key, value) in set_to {
        set(&mut file, key, value)?;
    }
    let experiment: Experiment = Value::Table(file).try_into()?;
    experiment.check()?;
    Ok(experiment)
}

/// As [`settings::set`], but the seed of the data belongs to the trial.
fn set(file: &mut Table, key: &str, value: &Value) -> anyhow::Result<()> {
    let is_seed = key.starts_with("workload.data.") && key.ends_with(".seed");
    ensure!(!is_seed, "{}", seed_is_given(key));
    settings::set(file, key, value)
}

fn seed_is_given(key: &str) -> String {
    format!("`{key}`: delete it, the seed of each trial draws the split")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const FILE: &str = "choose = [1, 2]\nreport = [11, 12, 13]\nbaseline = \"fp32\"\n\
        [workload]\nlearner = \"mlp\"\nclients = 2\ndata = { builtin = { train = 40, test = 20 } }\n\
        [run]\nrounds = 3\ncohort = { min = 2, target = 2 }\ntrain = { steps = 5, batch_size = 4 }\n\
        [quick]\nchoose = [1]\nset = { \"run.rounds\" = 2 }\n\
        [[grid]]\nonly = [\"ours\"]\n\
        \"compression.uplink.budget, compression.downlink.budget\" = [\"0.5 bits\", \"1 bits\"]\n\
        [[variant]]\nname = \"fp32\"\n\
        compression = { uplink = { memory = \"none\", default = {} }, downlink = { memory = \"none\", default = {} } }\n\
        [[variant]]\nname = \"ours\"\n";

    pub(crate) fn read(text: &str) -> anyhow::Result<Sweep> {
        Sweep::from_toml(text, Path::new("/base"), false)
    }

    #[test]
    fn a_sweep_has_the_points_of_its_variants() {
        let sweep = read(FILE).unwrap();
        assert_eq!(sweep.points("fp32").len(), 1);
        let ours: Vec<&str> = sweep.points("ours").iter().map(|point| point.label.as_str()).collect();
        assert_eq!(ours, ["budget=0.5 bits", "budget=1 bits"]);
        assert_eq!((sweep.validation, sweep.reach, sweep.max_loss), (0.1, 0.5, None));
        let point = &sweep.points("ours")[1];
        let run: Table = point.experiment.run_toml(point.variant(), 1).unwrap().parse().unwrap();
        assert_eq!(run["compression"]["downlink"]["budget"].as_str(), Some("1 bits"));
    }

    #[test]
    fn the_quick_form_has_its_own_seeds_and_keys() {
        let quick = Sweep::from_toml(FILE, Path::new("."), true).unwrap();
        assert_eq!(
            (quick.choose.as_slice(), quick.report.as_slice()),
            (&[1][..], &[11, 12, 13][..])
        );
        let point = &quick.points("fp32")[0];
        let run: Table = point.experiment.run_toml(point.variant(), 1).unwrap().parse().unwrap();
        assert_eq!(run["rounds"].as_integer(), Some(2));
        assert_ne!(quick.fixed, read(FILE).unwrap().fixed);
        let without = FILE.replace("[quick]\nchoose = [1]\nset = { \"run.rounds\" = 2 }\n", "");
        let error = Sweep::from_toml(&without, Path::new("."), true).unwrap_err();
        assert!(error.to_string().contains("no `[quick]` table"), "{error}");
    }

    #[test]
    fn what_a_sweep_cannot_run_is_refused_when_it_is_read() {
        for (from, to, want) in [
            ("[11, 12, 13]", "[11, 2]", "seed 2 is in `choose` and in `report`"),
            ("[11, 12, 13]", "[]", "`report` is empty"),
            ("[11, 12, 13]", "[11, 11]", "`report` lists 11 twice"),
            ("[1, 2]", "[]", "`choose` is empty"),
            ("= \"fp32\"\n[w", "= \"none\"\n[w", "there are fp32, ours"),
            (
                "= \"fp32\"\n[w",
                "= \"fp32\"\nvalidation = 1.5\n[w",
                "`validation` is 1.5",
            ),
            (
                "= \"fp32\"\n[w",
                "= \"fp32\"\nmax_loss = -1.0\n[w",
                "`max_loss` must be 0 or more",
            ),
            ("= \"fp32\"\n[w", "= \"fp32\"\nseeds = [1]\n[w", "unknown field `seeds`"),
            (
                "train = 40",
                "seed = 3, train = 40",
                "`workload.data.builtin.seed`: delete it",
            ),
            ("only = [\"ours\"]", "only = [\"theirs\"]", "no such variant"),
            (
                "compression.downlink.budget",
                "compression.downlink.budgett",
                "unknown field `budgett`",
            ),
            (
                "compression.downlink.budget",
                "codec.budget",
                "`codec.budget`: a key begins with",
            ),
            ("compression.downlink.budget", "run.seed", "its own `seed`"),
            ("compression.downlink.budget", "workload.data.builtin.seed", "delete it"),
            ("\"1 bits\"", "\"1 bitz\"", "budget=1 bitz"),
            ("name = \"ours\"", "name = \"fp32\"", "variant `fp32` is there twice"),
        ] {
            assert!(FILE.contains(from), "{from}");
            let error = read(&FILE.replace(from, to)).map(|_| to).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(want), "{to}: {error}");
        }
    }
}
