//! The demo: a federation that a newcomer can watch.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use fl_cli::out;
use fl_learn::data::{Builtin, DataSource, Idx, Split};
use fl_learn::learners::{self, LearnerChoice};
use fl_proto::Issued;
use fl_server::{Event, Live};

use crate::display::Display;
use crate::federation::{self, News, Setup};
use crate::keep::Keep;
use crate::score::{self, Score};
use crate::workload::{TASK, Workload};

/// The compression of plain federated averaging.
const EXACT: &str = "\
[compression.uplink]
memory  = \"none\"
default = { reduce = \"keep\", quantize = \"exact\", code = \"pack\" }
[compression.downlink]
memory  = \"none\"
default = { reduce = \"keep\", quantize = \"exact\", code = \"pack\" }
";

/// Options of `fl-sim demo`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Demo {
    /// Clients of the federation
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Rounds to run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
    #[arg(long, help = learners::help(), default_value = "mlp")]
    learner: LearnerChoice,
    /// Folder with MNIST-like idx files (see `fl-client data get`), or any data as in client.toml, such as
    /// '{ roles = { dir = "tinyshakespeare" } }'; without it, the built-in set is drawn
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Concentration of the Dirichlet split of a folder in `--data`: small gives each client few classes
    #[arg(long, default_value_t = 0.5)]
    alpha: f64,
    /// Take at most so many training examples a client, of a folder or of the built-in set
    #[arg(long)]
    limit: Option<u32>,
    /// Learning rate
    #[arg(long, default_value_t = 0.1)]
    learning_rate: f32,
    /// Seed of everything random
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Send fp32 both ways instead of compressed frames
    #[arg(long)]
    uncompressed: bool,
    /// Learners at work at once [default: one per core]
    #[arg(long)]
    at_once: Option<usize>,
    /// Where the federation stays.
    #[command(flatten)]
    pub(crate) keep: Keep,
}

impl Demo {
    fn workload(&self) -> anyhow::Result<Workload> {
        let table = self.data.as_ref().and_then(|data| data.to_str());
        let data = match (table.filter(|text| text.trim_start().starts_with('{')), &self.data) {
            (Some(table), _) => DataSource::from_argument(table)?,
            (None, Some(dir)) => DataSource::new(
                "idx",
                &Idx {
                    dir: dir.clone(),
                    client: 0,
                    clients: 1,
                    split: Split::Dirichlet(self.alpha),
                    seed: self.seed,
                    limit: self.limit,
                    test_limit: None,
                },
            )?,
            (None, None) => DataSource::new(
                "builtin",
                &Builtin {
                    seed: self.seed,
                    train: self.limit.unwrap_or(Builtin::default().train),
                    ..Builtin::default()
                },
            )?,
        };
        Ok(Workload {
            learner: self.learner.clone(),
            clients: self.clients,
            data,
        })
    }

    fn run_toml(&self) -> String {
        let Self {
            clients,
            rounds,
            seed,
            learning_rate,
            ..
        } = self;
        let compression = if self.uncompressed { EXACT } else { "" };
        format!(
            "name = \"demo\"\ntask = \"{TASK}\"\nrounds = {rounds}\nseed = {seed}\n\
             [cohort]\nmin = {clients}\ntarget = {clients}\ndeadline = \"30min\"\n\
             [train]\nepochs = 1\nbatch_size = 32\nlearning_rate = {learning_rate:?}\n{compression}"
        )
    }

    /// Runs the demo in `dir`, an empty folder that is created if it is missing. `table`: print a line per round and a summary
    /// to stdout.
    pub(crate) async fn run(&self, dir: &Path, table: bool) -> anyhow::Result<Score> {
        let workload = self.workload()?;
        let (layout, weights) = workload.initial(self.seed)?;
        let parameters = layout.len() as u64;
        let display = Display::new(self.rounds);
        let page = live()?;
        if table {
            let source = self
                .data
                .as_ref()
                .map_or("built-in digits".to_owned(), |dir| dir.display().to_string());
            display.println(&format!("live page: {}\n", page.url()));
            display.println(&format!(
                "{} clients, {} ({parameters} parameters), {source}, mutual TLS\n\n{}",
                self.clients,
                self.learner,
                score::header()
            ));
        }
        let setup = Setup {
            dir: dir.to_owned(),
            run: self.run_toml(),
            layout,
            weights,
            learner: self.learner.to_string(),
            members: workload.members()?,
            gate: federation::gate(self.at_once.unwrap_or_else(cores)),
            live: Some(page),
        };
        let drawing = tokio::spawn(display.clone().draw());
        let mut lines = Lines {
            parameters,
            table,
            pending: None,
        };
        let outcome = federation::run(setup, |news| match news {
            News::Server(event) => {
                if let Event::RoundOpened { round, cohort, .. } = event {
                    display.open(*round, self.rounds, cohort);
                }
                lines.note(event, &display);
            }
            News::Client(name, event) => {
                if let fl_client::Event::LeftRound { round, why } = event {
                    display.eprintln(&format!("{name} left round {round}: {why}"));
                }
                if let fl_client::Event::NotEvaluated { version, why } = event {
                    display.eprintln(&format!("{name} did not evaluate version {version}: {why}"));
                }
                display.note(name, event);
            }
        })
        .await;
        drawing.abort();
        lines.flush(&display);
        display.clear();
        let score = outcome?;
        if table {
            out::line(format_args!("\n{}", score.summary(out::is_bold())))?;
            let path = self.write_report(dir).await?;
            out::line(format_args!("report          {}", path.display()))?;
            if self.keep.is_asked() {
                out::line(format_args!("more            fl-server report {}", dir.display()))?;
            }
        }
        Ok(score)
    }

    /// Writes the report of the federation in `dir` as a page, into the kept folder or to a temporary file.
    async fn write_report(&self, dir: &Path) -> anyhow::Result<PathBuf> {
        let path = match self.keep.is_asked() {
            true => dir.join("report.html"),
            false => {
                let file = tempfile::Builder::new().prefix("fl-demo-").suffix(".html").tempfile();
                let file = file.context("cannot make a file for the report")?;
                file.into_temp_path().keep().context("cannot keep the report")?
            }
        };
        let args = ["fl-server", "report", "--format", "html", "-o"].map(OsString::from);
        let args = args.into_iter().chain([path.clone().into(), dir.into()]);
        let written = tokio::task::spawn_blocking(move || fl_server::cli::main(args)).await?;
        // The command has printed the reason to stderr.
        anyhow::ensure!(written == ExitCode::SUCCESS, "the report was not written");
        Ok(path)
    }
}

/// The page of the run: at the port of `fl-server serve`, or at any free port if that one is taken.
fn live() -> anyhow::Result<Live> {
    let none = Issued {
        certificate: String::new(),
        key: String::new(),
    };
    let usual = Live::bind(SocketAddr::from(([127, 0, 0, 1], 7071)), None, &none);
    let page = usual.or_else(|_| Live::bind(SocketAddr::from(([127, 0, 0, 1], 0)), None, &none));
    page.context("no page")
}

/// Prints a round's line once its model is evaluated, which is when the next round closes.
struct Lines {
    parameters: u64,
    table: bool,
    pending: Option<score::RoundLine>,
}

impl Lines {
    fn note(&mut self, event: &Event, display: &Display) {
        match event {
            Event::RoundClosed(_) => {
                self.flush(display);
                self.pending = score::RoundLine::from_event(event);
            }
            Event::Evaluated(evaluated) => {
                if let Some(line) = self.pending.as_mut().filter(|line| line.round == evaluated.version) {
                    line.evaluated(evaluated);
                }
            }
            Event::Alert(text) => display.eprintln(&format!("ALERT: {text}")),
            Event::Warning(text) => display.eprintln(&format!("warning: {text}")),
            _ => {}
        }
    }

    fn flush(&mut self, display: &Display) {
        if let Some(line) = self.pending.take().filter(|_| self.table) {
            display.println(&line.text(self.parameters));
        }
    }
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
