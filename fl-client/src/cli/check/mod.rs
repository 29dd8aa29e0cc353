//! `fl-client check`: what can be found out about a client before it runs, without the server and with it. Each group of checks is
//! a file, which returns lines; this one puts them together.

mod conditions;
mod device;
mod disk;
mod dry_run;
mod identity;
mod limits;
mod online;
mod subject;
mod tasks;

use std::path::{Path, PathBuf};

use fl_cli::findings::{Findings, Level, Line};
use fl_cli::{Format, out};
use serde::Serialize;
use time::{Duration, OffsetDateTime};

use crate::client_file::ClientFile;
use crate::error::Error;
use crate::named::Learners;
use online::{Asked, RoundCost};
use subject::{DryRun, Subject};

/// Check this client: configuration, certificate, disk, device, learners and data, and with --online the way to the server.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// The client's configuration.
    #[arg(default_value = "client.toml")]
    config: PathBuf,
    /// Also ask the server: name, port, TLS, clock, admission, run, model and speed. The client joins nothing; 512 KiB are
    /// transferred.
    #[arg(long)]
    online: bool,
    /// Train so many steps: of each task from its own first weights, and print speed, memory and the tensors of trainers; with
    /// --online of the run's task, with the run's settings.
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    dry_run: Option<u32>,
    /// Take `[train]` of this run.toml for the dry run of its task; without it, --dry-run has the defaults of `[train]`.
    #[arg(long, value_name = "RUN_TOML", requires = "dry_run", conflicts_with = "online")]
    run: Option<PathBuf>,
    /// How the result is written.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// How many seconds this device's clock is ahead.
    #[arg(long, hide = true, default_value_t = 0, allow_negative_numbers = true)]
    ahead: i64,
}

const EXIT_CODES: &str = "Exit codes: 0 nothing is wrong (there may be warnings), 2 something of this device is wrong, 3 this device \
                          is good and something between it and the server is wrong.";

impl Args {
    /// Whether what trainers print is shown.
    pub(super) fn prints_output(&self) -> bool {
        self.dry_run.is_some()
    }
}

/// The groups without the server, in their order.
const OFFLINE: [fn(&Subject<'_>) -> Vec<Line>; 5] = [
    identity::lines,
    disk::lines,
    device::lines,
    |subject| conditions::lines(&subject.file.config.when),
    tasks::lines,
];

pub(super) fn run(args: &Args, learners: &dyn Learners) -> anyhow::Result<()> {
    if args.dry_run.is_some() {
        // As in `run`, so that steps take as long here as there.
        crate::keep_buffers();
    }
    let mut findings = Findings::new(args.format);
    let file = ClientFile::read(&args.config, learners)?;
    let path = args.config.display();
    findings.push(Line::good(
        "configuration",
        format!("{path}: every key is known and in range"),
    ))?;
    let ahead = Duration::seconds(args.ahead);
    let run = args.run.as_ref().map(|path| DryRun::of_run(path, &file)).transpose()?;
    let run = run.unwrap_or_default();
    let subject = Subject {
        file: &file,
        learners,
        path: &args.config,
        now: OffsetDateTime::now_utc().saturating_add(ahead),
        steps: args
            .dry_run
            .filter(|_| !args.online)
            .map(|steps| DryRun { steps, ..run }),
    };
    for group in OFFLINE {
        findings.extend(group(&subject))?;
    }
    let mut round = None;
    if args.online {
        let asked = Asked {
            steps: args.dry_run,
            ahead,
        };
        round = online::run(&file, asked, &mut findings)?;
    }
    if args.format == Format::Json {
        let result = Checked {
            kind: "client",
            file: &args.config,
            verdict: findings.verdict(),
            lines: findings.lines(),
            round,
        };
        out::json(&result)?;
    }
    let device = findings.faults(|line| !line.is_remote);
    let network = findings.faults(|line| line.is_remote).map(Error::Refused);
    device
        .map(Error::Config)
        .or(network)
        .map_or(Ok(()), |error| Err(error.into()))
}

/// The result as JSON; docs/reference/check.md describes its keys.
#[derive(Debug, Serialize)]
struct Checked<'a> {
    kind: &'static str,
    file: &'a Path,
    verdict: Level,
    lines: &'a [Line],
    round: Option<RoundCost>,
}
