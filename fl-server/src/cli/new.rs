//! `fl-server new NAME --task T`: a commented run.toml, from configs/run.toml.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use fl_cli::out;

use crate::cli::failure::{Failure, Outcome};
use crate::cli::init::write_new;
use crate::config::plan::RunPlan;
use crate::identity::PUBLIC;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the run: letters, digits, `-`, `_` and `.`.
    name: String,
    /// The task that clients bind to a learner and data.
    #[arg(long)]
    task: String,
    /// Rounds of the run.
    #[arg(long, default_value_t = 10)]
    rounds: u64,
    /// With fewer answers at the deadline, a round is tried again; default: 2, or `--target` if that is less.
    #[arg(long)]
    min: Option<usize>,
    /// With so many answers, a round closes after the time of grace.
    #[arg(long, default_value_t = 8)]
    target: usize,
    /// File of the initial weights, relative to the run.toml.
    #[arg(long, default_value = "init.safetensors")]
    model: String,
    /// File to write, which must not exist yet; default: standard output.
    #[arg(short, long)]
    output: Option<PathBuf>,
}

/// The commented example; the lines of [`keys`] are filled in.
const TEMPLATE: &str = include_str!("../../../configs/run.toml");

pub(super) fn run(args: &Args) -> Outcome {
    let text = filled(args);
    let base = args.output.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    RunPlan::from_toml(&text, base).map_err(Failure::usage)?;
    let Some(path) = &args.output else {
        out::text(format_args!("{text}"))?;
        return Ok(());
    };
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Failure::usage(anyhow!("{} is not a file name", path.display())))?;
    write_new(base, &[(name, &text, PUBLIC)])?;
    let path = path.display();
    let model = base.join(&args.model);
    out::text(format_args!(
        "{path}: run `{}` of task `{}`, {} rounds; every other key has its default\n\
         next: fl-client init --learner NAME -o {}     # initial weights, if there are none yet\n      \
         fl-server check {path}\n",
        args.name,
        args.task,
        args.rounds,
        model.display()
    ))?;
    Ok(())
}

/// The lines of required keys in the template, and their replacements.
fn keys(args: &Args) -> [(&'static str, String); 6] {
    [
        ("name = \"example\"", text("name", &args.name)),
        ("task = \"fashion-mlp\"", text("task", &args.task)),
        ("rounds = 10", format!("rounds = {}", args.rounds)),
        ("weights = \"init.safetensors\"", text("weights", &args.model)),
        ("min = 2", format!("min = {}", args.min.unwrap_or(args.target.min(2)))),
        ("target = 8", format!("target = {}", args.target)),
    ]
}

fn text(key: &str, text: &str) -> String {
    format!("{key} = {}", toml::Value::from(text))
}

fn filled(args: &Args) -> String {
    let keys = keys(args);
    let mut text = String::with_capacity(TEMPLATE.len() + 64);
    for line in TEMPLATE.lines() {
        let filled = keys.iter().find(|(key, _)| *key == line);
        text.push_str(filled.map_or(line, |(_, filled)| filled));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(name: &str, task: &str) -> Args {
        Args {
            name: name.to_owned(),
            task: task.to_owned(),
            rounds: 10,
            min: None,
            target: 8,
            model: "init.safetensors".to_owned(),
            output: None,
        }
    }

    #[test]
    fn the_example_of_configs_is_what_is_written() {
        assert_eq!(filled(&args("example", "fashion-mlp")), TEMPLATE);
    }

    #[test]
    fn every_argument_reaches_the_plan() {
        let mut args = args("digits", "a \"quoted\" task");
        (args.rounds, args.min, args.target) = (3, Some(4), 5);
        args.model = "weights/first.safetensors".to_owned();
        let plan = RunPlan::from_toml(&filled(&args), Path::new("runs")).unwrap();
        assert_eq!(
            (plan.name.as_str(), plan.task.as_str()),
            ("digits", "a \"quoted\" task")
        );
        assert_eq!(
            (plan.rounds, plan.cohort.min, plan.cohort.target, plan.seed),
            (3, 4, 5, 0)
        );
        assert_eq!(plan.model, Path::new("runs/weights/first.safetensors"));
        (args.min, args.target) = (None, 1);
        let plan = RunPlan::from_toml(&filled(&args), Path::new("runs")).unwrap();
        assert_eq!((plan.cohort.min, plan.cohort.target), (1, 1));
    }
}
