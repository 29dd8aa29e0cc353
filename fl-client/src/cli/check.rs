//! `fl-client check`: everything that can be found out without the server.

use std::path::PathBuf;

use fl_cli::out;

use super::dry_run::dry_run;
use crate::client_file::{ClientFile, LearnerEntry, TaskEntry, TrainerEntry};
use crate::error::Error;
use crate::learners;

/// Check a configuration: keys, certificates, learners, data.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The client's configuration.
    config: PathBuf,
    /// Start each trainer, train so many steps from its own first weights, and print speed, memory and the tensors.
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    dry_run: Option<u32>,
}

impl Args {
    /// Whether what trainers print is shown.
    pub(super) fn prints_output(&self) -> bool {
        self.dry_run.is_some()
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let file = ClientFile::read(&args.config)?;
    out::line(format_args!(
        "{}: every key is known and in range",
        args.config.display()
    ))?;
    let mut wrong = Vec::new();
    let fault = |config: &crate::ClientConfig| {
        crate::identity::own_fault(config).or_else(|| {
            let usable = fl_proto::client_tls(&config.authority, &config.own).err();
            usable.map(|error| format!("`certificate` and `key`: {error}"))
        })
    };
    match crate::check_certificates(&file.config).map(|ends| (ends, fault(&file.config))) {
        Ok((_, Some(fault))) => wrong.push(fault),
        Ok((ends, None)) => out::line(format_args!("certificate: good until {}", ends.date()))?,
        Err(error) => wrong.push(error.to_string()),
    }
    if file.tasks.is_empty() {
        wrong.push("no [tasks.NAME]: the client could take part in nothing".to_owned());
    }
    for (name, entry) in &file.tasks {
        let checked = match &entry.learner {
            LearnerEntry::BuiltIn(_) => built_in(&file, name, entry),
            LearnerEntry::Trainer(trainer) => self::trainer(&file, name, trainer, args.dry_run),
        };
        if let Err(error) = checked {
            wrong.push(format!("task {name}: {error:#}"));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Error::Config(wrong.join("\n       ")).into())
    }
}

fn built_in(file: &ClientFile, name: &str, entry: &TaskEntry) -> anyhow::Result<()> {
    let Some((learner, data)) = entry.built_in() else {
        return Ok(());
    };
    let data = data.load()?;
    let (train, test) = (data.train.len(), data.test.len());
    let parameters = learners::find(learner)?.build(file.device, data)?.layout().len();
    out::line(format_args!(
        "task {name}: {learner}, {parameters} parameters; {train} examples to train on, {test} held out"
    ))
}

fn trainer(file: &ClientFile, name: &str, trainer: &TrainerEntry, steps: Option<u32>) -> anyhow::Result<()> {
    match (&trainer.command, steps) {
        (Some(_), Some(steps)) => dry_run(name, file.trainer_aside(name)?, steps),
        (Some(command), None) => out::line(format_args!(
            "task {name}: trainer `{}`; `--dry-run 3` starts it",
            command.join(" ")
        )),
        (None, _) => out::line(format_args!(
            "task {name}: a trainer attaches to {}; a dry run needs `command`",
            file.config
                .state
                .join(trainer.attach.as_deref().unwrap_or(std::path::Path::new("")))
                .display()
        )),
    }
}
