//! The command line of `fl-sim`.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use fl_cli::log::{self, LogFormat};
use fl_cli::{Format, args, exit, out};
use fl_client::DeviceChoice;
use tokio::signal::unix::{SignalKind, signal};

use crate::bench_train::BenchTrain;
use crate::changes::Changes;
use crate::demo::Demo;
use crate::experiment::{self, Place};
use crate::federation;
use crate::fleet::FleetRun;
use crate::hostile::HostileRun;
use crate::keep::Keep;
use crate::load::{Load, LoadClients};
use crate::presets;
use crate::score::bytes;
use crate::soak::{Soak, SoakServer};
use crate::sweep::SweepCommand;
use crate::update::Update;
use crate::workload::Evaluation;
use crate::wrong::{self, wrong};

/// A whole federation in one process: the demo, experiments, and a load generator.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 130 and 143 stopped by SIGINT and SIGTERM; the commands
/// `server` and `client` have their own.
#[derive(Debug, Parser)]
#[command(name = "fl-sim", version)]
struct Cli {
    /// How results are printed on the standard output
    #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
    format: Format,
    #[command(subcommand)]
    command: Command,
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
        /// Where learners compute: cpu or cuda:0
        #[arg(long, default_value = "cpu")]
        device: DeviceChoice,
        #[command(flatten)]
        changes: Changes,
        #[command(flatten)]
        keep: Keep,
    },
    /// Runs an experiment over grids of settings: chooses on some seeds, reports on others; resumable
    Sweep(SweepCommand),
    /// Trains one client once and writes its update as safetensors, to try codecs on with `fl-compress`
    Update(Update),
    /// Lists the named codecs, their sources and what those claim
    Presets,
    /// Measures the training speed of learners, beside PyTorch
    BenchTrain(BenchTrain),
    /// Measures rounds without training
    Load(Load),
    /// Runs a federation for minutes among strangers, bad clients, kills and clock jumps, and checks every invariant
    Soak(Soak),
    /// Attacks both ports of a server while clients train, and checks that no round, byte or bit is lost
    Hostile(HostileRun),
    /// Runs a fleet of clients that come, go, sleep, renew, are revoked and lose their links, and checks that nothing is lost
    Fleet(FleetRun),
    /// The server of `soak`, started by it
    #[command(hide = true)]
    SoakServer(SoakServer),
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

/// Runs the program. `args`: its name first.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli: Cli = match args::parse(NAME, args) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let done = match cli.command {
        Command::Server { args } => {
            fl_server::settle_allocator();
            return fl_server::cli::main(std::iter::once("fl-server".into()).chain(args));
        }
        Command::Client { args } => {
            let args = std::iter::once("fl-client".into()).chain(args);
            return fl_learn::run(args, fl_learn::Registry::built_in());
        }
        Command::Demo(demo) => {
            fl_client::keep_buffers();
            let run = async |dir: &Path| show(cli.format, &demo.run(dir, cli.format == Format::Text).await?, None);
            in_kept(&demo.keep, run)
        }
        Command::Experiment {
            file,
            at_once,
            device,
            changes,
            keep,
        } => {
            fl_client::keep_buffers();
            let at_once = at_once.unwrap_or_else(crate::demo::cores);
            let gate = federation::gate(at_once);
            let place = Place { gate, device };
            let run = async |dir: &Path| run_experiment(&file, dir, &place, &changes, cli.format).await;
            in_kept(&keep, run)
        }
        Command::Sweep(sweep) => {
            fl_client::keep_buffers();
            let done = on_runtime(async {
                let (outcome, text) = sweep.run().await?;
                show(cli.format, &outcome, Some(text))
            });
            sweep.clean_up();
            done
        }
        Command::BenchTrain(bench) => {
            fl_client::keep_buffers();
            let text = cli.format == Format::Text;
            let speeds = bench.run(|learner| {
                if text {
                    out::note(format_args!("measuring {learner}"));
                }
            });
            speeds.and_then(|speeds| show(cli.format, &speeds, Some(speeds.text())))
        }
        Command::Update(update) => update
            .run()
            .and_then(|text| show(cli.format, &text, Some(text.clone()))),
        Command::Presets => {
            let presets = presets::all();
            show(cli.format, &presets, Some(presets::text(&presets)))
        }
        Command::LoadClients(clients) => {
            // As `fl-client run` does.
            fl_client::keep_buffers();
            on_runtime(clients.run())
        }
        Command::Soak(soak) => in_kept(&soak.keep, async |dir: &Path| {
            let outcome = soak.run(dir).await?;
            verdict(cli.format, &outcome, outcome.text(), &outcome.broken)
        }),
        Command::Hostile(hostile) => {
            fl_proto::raise_open_files();
            in_kept(&hostile.keep, async |dir: &Path| {
                let outcome = hostile.run(dir).await?;
                verdict(cli.format, &outcome, outcome.text(), &outcome.broken)
            })
        }
        Command::Fleet(fleet) => in_kept(&fleet.keep, async |dir: &Path| {
            let outcome = fleet.run(dir).await?;
            verdict(cli.format, &outcome, outcome.text(), &outcome.broken)
        }),
        Command::SoakServer(server) => {
            fl_server::settle_allocator();
            server.run()
        }
        Command::Load(load) => {
            fl_server::settle_allocator();
            in_folder(async |dir: &Path| {
                let outcome = load.run(dir).await?;
                show(cli.format, &outcome, Some(outcome.text()))
            })
        }
    };
    ended(done)
}

const NAME: &str = "fl-sim";

fn ended(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => exit::done(),
        Err(error) => exit::failed(NAME, format!("{error:#}"), code(&error)),
    }
}

fn code(error: &anyhow::Error) -> u8 {
    if let Some(stopped) = error.downcast_ref::<StopSignal>() {
        return stopped.code;
    }
    let usage = error.chain().any(|cause| {
        let data: Option<&fl_learn::data::Error> = cause.downcast_ref();
        matches!(cause.downcast_ref(), Some(fl_client::Error::Config(_)))
            || data.is_some_and(fl_learn::data::Error::is_input)
            || cause.is::<fl_server::plan::PlanError>()
    });
    if usage { exit::USAGE } else { exit::FAILURE }
}

/// A signal stopped the work.
#[derive(Debug)]
struct StopSignal {
    name: &'static str,
    /// The exit code that a shell reports: 128 plus the signal's number.
    code: u8,
}

impl StopSignal {
    /// Completes at SIGINT or SIGTERM.
    async fn wait() -> anyhow::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
        Ok(tokio::select! {
            _ = interrupt.recv() => Self { name: "SIGINT", code: 130 },
            _ = terminate.recv() => Self { name: "SIGTERM", code: 143 },
        })
    }
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stopped by {}", self.name)
    }
}

impl std::error::Error for StopSignal {}

/// Runs `work` in the folder of `--keep`, or in a temporary one.
fn in_kept(keep: &Keep, work: impl AsyncFnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    match keep.folder()? {
        Some(dir) => on_runtime(work(dir)),
        None => in_folder(work),
    }
}

/// Runs `work` in a temporary folder, which is removed at the end, also after a signal.
fn in_folder(work: impl AsyncFnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("cannot make a folder for the federation")?;
    // The runtime has ended, so nothing writes to the folder any more.
    let done = on_runtime(work(folder.path()));
    let path = folder.path().to_owned();
    let removed = folder
        .close()
        .with_context(|| format!("cannot remove {}", path.display()));
    done.and(removed)
}

/// Time limit for blocking work to end after a signal.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `work` until it ends or a signal stops it.
fn on_runtime(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    log::start(LogFormat::Text, "error");
    // Enough threads to keep a disk busy with synchronous writes; more would only use memory.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(64)
        .enable_all()
        .build()?;
    let done = runtime.block_on(async {
        tokio::select! {
            done = Box::pin(work) => done,
            stopped = StopSignal::wait() => Err(stopped?.into()),
        }
    });
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    done
}

/// Prints the outcome of a run that checks invariants; an error if one is broken.
fn verdict(format: Format, outcome: &impl serde::Serialize, text: String, broken: &[String]) -> anyhow::Result<()> {
    show(format, outcome, Some(text))?;
    anyhow::ensure!(broken.is_empty(), "{} invariants do not hold", broken.len());
    Ok(())
}

fn show(format: Format, value: &impl serde::Serialize, text: Option<String>) -> anyhow::Result<()> {
    match (format, text) {
        (Format::Json, _) => out::json(value),
        (Format::Text, Some(text)) => out::line(format_args!("{text}")),
        (Format::Text, None) => Ok(()),
    }
}

/// Runs an experiment in the empty folder `dir`.
async fn run_experiment(
    file: &Path,
    dir: &Path,
    place: &Place,
    changes: &Changes,
    format: Format,
) -> anyhow::Result<()> {
    let base = file.parent().unwrap_or(Path::new("."));
    let experiment = changes.read(&wrong::read(file)?, base).and_then(|experiment| {
        experiment.check_files()?;
        Ok(experiment)
    });
    let experiment = experiment.map_err(|e| wrong(file.display(), format_args!("{e:#}")))?;
    for variant in &experiment.variant {
        let name = &variant.name;
        let place = dir.join(format!("{name}-check"));
        let warnings = experiment.check_budgets(variant, experiment.seeds[0], &place);
        let _ = std::fs::remove_dir_all(&place);
        for warning in warnings.with_context(|| format!("variant `{name}`"))? {
            out::note(format_args!("variant `{name}`: {warning}"));
        }
    }
    let mut trials = Vec::new();
    for variant in &experiment.variant {
        for &seed in &experiment.seeds {
            let given = Evaluation::Given;
            let trial = experiment.trial(variant, seed, dir, place, given, |_| {}).await?;
            let score = &trial.score;
            out::note(format_args!(
                "{} seed {seed}: {}, {}, {:.1}x",
                variant.name,
                score.quality(),
                bytes(score.sent()),
                score.ratio()
            ));
            trials.push(trial);
        }
    }
    show(format, &trials, Some(experiment::table(&trials)))
}
