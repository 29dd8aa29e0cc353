//! The command line of `fl-sim`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};

use crate::demo::Demo;
use crate::experiment::{self, Experiment};
use crate::load::{Load, LoadClients};
use crate::score::bytes;

/// A whole federation in one process: the demo, experiments, and a load generator.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "fl-sim", version)]
struct Cli {
    /// How results are printed on the standard output
    #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
    format: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Trains a small federation and shows every round
    Demo(Demo),
    /// Runs every variant of an experiment file under every seed and compares accuracy and bytes
    Experiment {
        /// The experiment, such as configs/experiments/fashion-mlp.toml
        file: PathBuf,
        /// Learners at work at once [default: one per core]
        #[arg(long)]
        at_once: Option<usize>,
        /// Only the variants of these names
        #[arg(long)]
        only: Vec<String>,
    },
    /// Measures rounds without training
    Load(Load),
    /// The clients of `load`, started by it
    #[command(hide = true)]
    LoadClients(LoadClients),
    /// The same as the program `fl-server`
    #[command(disable_help_flag = true)]
    Server {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// The same as the program `fl-client`
    #[command(disable_help_flag = true)]
    Client {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// Runs the program. `args`: the program's name first.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let named = |name: &str, args: Vec<OsString>| std::iter::once(OsString::from(name)).chain(args);
    let done = match cli.command {
        Command::Server { args } => {
            fl_server::settle_allocator();
            return fl_server::cli::main(named("fl-server", args));
        }
        Command::Client { args } => return fl_client::cli::main(named("fl-client", args)),
        Command::Demo(demo) => {
            on_runtime(async { show(cli.format, &demo.run(cli.format == Format::Text).await?, None) })
        }
        Command::Experiment { file, at_once, only } => on_runtime(run_experiment(
            &file,
            at_once.unwrap_or_else(crate::demo::cores),
            &only,
            cli.format,
        )),
        Command::LoadClients(clients) => on_runtime(clients.run()),
        Command::Load(load) => {
            fl_server::settle_allocator();
            on_runtime(async {
                let measured = load.run().await?;
                let (fastest, slowest) = (measured.seconds.first(), measured.seconds.last());
                let text = format!(
                    "{} clients, {} values: median {:.1} ms a round ({:.1} to {:.1}), server memory {} at most, ratio {:.1}x",
                    measured.clients,
                    measured.values,
                    1e3 * measured.median,
                    1e3 * fastest.unwrap_or(&0.0),
                    1e3 * slowest.unwrap_or(&0.0),
                    bytes(measured.server_peak),
                    measured.score.ratio(),
                );
                show(cli.format, &measured, Some(text))
            })
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fl-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn on_runtime(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "error".into());
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
    // Enough to keep a disk busy with writes that wait for it; more threads would only hold memory.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(64)
        .enable_all()
        .build()?;
    runtime.block_on(Box::pin(work))
}

fn show(format: Format, value: &impl serde::Serialize, text: Option<String>) -> anyhow::Result<()> {
    match (format, text) {
        (Format::Json, _) => println!("{}", serde_json::to_string_pretty(value)?),
        (Format::Text, Some(text)) => println!("{text}"),
        (Format::Text, None) => {}
    }
    Ok(())
}

async fn run_experiment(file: &Path, at_once: usize, only: &[String], format: Format) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let base = file.parent().unwrap_or(Path::new("."));
    let experiment = Experiment::from_toml(&text, base).with_context(|| file.display().to_string())?;
    let dir = tempfile::tempdir()?;
    let mut trials = Vec::new();
    let wanted = |name: &String| only.is_empty() || only.contains(name);
    for variant in experiment.variant.iter().filter(|variant| wanted(&variant.name)) {
        for &seed in &experiment.seeds {
            let trial = experiment.trial(variant, seed, dir.path(), at_once, |_| {}).await?;
            let score = &trial.score;
            let accuracy = score.accuracy().map_or("-".into(), |a| format!("{:.2} %", 100.0 * a));
            eprintln!(
                "{} seed {seed}: {accuracy}, {}, {:.1}x",
                variant.name,
                bytes(score.sent()),
                score.ratio()
            );
            trials.push(trial);
        }
    }
    show(format, &trials, Some(experiment::table(&trials)))
}
