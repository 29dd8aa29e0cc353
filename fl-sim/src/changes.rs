//! What a command line changes in an experiment.

use std::path::Path;

use anyhow::{Context as _, ensure};
use clap::Args;
use toml::{Table, Value};

use crate::experiment::Experiment;
use crate::settings;

/// Options that change an experiment without changing its file.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Changes {
    /// Only the variants of these names
    #[arg(long, value_name = "VARIANT")]
    only: Vec<String>,
    /// Run under this seed instead of those of the file; may be repeated
    #[arg(long)]
    seed: Vec<u64>,
    /// Rounds of every run
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Set a key of every variant: a dotted key that begins with `workload`, `run`, `compression` or `engine`,
    /// such as run.train.learning_rate=0.1 or 'compression.uplink.budget="0.5 bits"'; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Changes {
    /// Reads an experiment and changes it. `base`: the file's folder.
    ///
    /// # Errors
    /// As [`Experiment::from_toml`], or if an option names what the file does not have.
    pub(crate) fn read(&self, text: &str, base: &Path) -> anyhow::Result<Experiment> {
        // For its errors, which name the line.
        let given: Experiment = toml::from_str(text)?;
        let names: Vec<&str> = given.variant.iter().map(|variant| variant.name.as_str()).collect();
        if let Some(name) = self.only.iter().find(|name| !names.contains(&name.as_str())) {
            anyhow::bail!(
                "`--only {name}`: there is no such variant; there are {}",
                names.join(", ")
            );
        }
        let mut file: Table = text.parse()?;
        if let Some(variants) = file.get_mut("variant").and_then(Value::as_array_mut) {
            variants.retain(|variant| {
                let name = variant.get("name").and_then(Value::as_str);
                name.is_some_and(|name| self.only.is_empty() || self.only.iter().any(|only| only == name))
            });
        }
        if !self.seed.is_empty() {
            for (at, seed) in self.seed.iter().enumerate() {
                ensure!(!self.seed[..at].contains(seed), "`--seed {seed}` is there twice");
            }
            let seeds = self.seed.iter().map(|&seed| i64::try_from(seed).map(Value::Integer));
            let seeds: Result<Vec<Value>, _> = seeds.collect();
            file.insert("seeds".into(), seeds.context("`--seed` must be below 2^63")?.into());
        }
        if let Some(rounds) = self.rounds {
            settings::set(&mut file, "run.rounds", &i64::from(rounds).into())?;
        }
        for text in &self.set {
            let (key, value) = text
                .split_once('=')
                .with_context(|| format!("`--set {text}`: give KEY=VALUE"))?;
            settings::set(&mut file, key.trim(), &settings::value(value.trim())).context("`--set`")?;
        }
        let mut experiment: Experiment = Value::Table(file).try_into()?;
        experiment.relative_to(base);
        experiment.check()?;
        Ok(experiment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "seeds = [1, 2]\n[workload]\nlearner = \"mlp\"\nclients = 2\ndata = { builtin = {} }\n\
        [run]\nrounds = 3\ncohort = { min = 2, target = 2 }\n\
        [[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\nrun = { rounds = 5 }\n";

    fn read(changes: &Changes) -> anyhow::Result<Experiment> {
        changes.read(FILE, Path::new("/base"))
    }

    #[test]
    fn without_options_the_experiment_is_that_of_the_file() {
        let found = read(&Changes::default()).unwrap();
        let file = Experiment::from_toml(FILE, Path::new("/base")).unwrap();
        assert_eq!(format!("{found:?}"), format!("{file:?}"));
    }

    #[test]
    fn seeds_rounds_and_keys_are_changed() {
        let changes = Changes {
            only: vec!["b".into()],
            seed: vec![9],
            rounds: Some(2),
            set: vec![
                "compression.uplink.budget=0.5 bits".into(),
                "workload.clients = 3".into(),
            ],
        };
        let found = read(&changes).unwrap();
        assert_eq!((found.seeds.as_slice(), found.variant.len()), (&[9][..], 1));
        let run: Table = found.run_toml(&found.variant[0], 9).unwrap().parse().unwrap();
        assert_eq!(run["rounds"].as_integer(), Some(2));
        assert_eq!(run["compression"]["uplink"]["budget"].as_str(), Some("0.5 bits"));
        assert_eq!(found.workload_of(&found.variant[0]).clients, 3);
    }

    #[test]
    fn an_option_that_names_nothing_is_refused() {
        let with = |set: &str| Changes {
            set: vec![set.into()],
            ..Changes::default()
        };
        for (changes, want) in [
            (with("run.rounds"), "give KEY=VALUE"),
            (with("run.roundz=2"), "roundz"),
            (with("rounds=2"), "begins with"),
            (with("workload.clients=1"), "`cohort.min` needs 2"),
        ] {
            let error = format!("{:#}", read(&changes).unwrap_err());
            assert!(error.contains(want), "{error}");
        }
    }
}
