//! The load generator: rounds without training, to measure everything else. The server runs in this process and the
//! clients in another, so that this process's memory is the server's.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use clap::Args;
use fl_cli::out;
use fl_client::{ClientConfig, Error, Tasks};
use fl_proto::{Authority, ClientId, Meter};
use fl_server::{Ending, Serve};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::federation::{VALID, ledger, note, plan};
use crate::ground;
use crate::process;
use crate::ready::{self, Ready};
use crate::score::{Score, bytes};
use crate::workload::TASK;
use crate::wrong::wrong;

/// How the clients' updates are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Codec {
    /// fp32 in both directions
    Dense,
    /// The largest 1 % at 4 bits, in both directions
    TopK,
}

/// Options of `fl-sim load`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Load {
    /// Clients of the federation
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Values of the model
    #[arg(long, default_value_t = 1_000_000)]
    values: usize,
    /// Rounds to run; the first is a warm-up and not counted
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    rounds: u64,
    /// How updates are compressed
    #[arg(long, value_enum, default_value_t = Codec::TopK)]
    codec: Codec,
    /// The `[compression]` table in place of `--codec`, as inline TOML, such as '{ uplink = { budget = "0.5 bits" } }'
    #[arg(long, value_name = "TABLE", conflicts_with = "codec")]
    spec: Option<String>,
    /// Clients' states survive power loss too (fsync), not only the death of the process
    #[arg(long)]
    sync: bool,
}

/// The clients of a load run, in a process of their own.
#[derive(Debug, Args)]
pub(crate) struct LoadClients {
    /// Folder of certificates and states
    dir: PathBuf,
    /// The server
    address: String,
    /// Clients
    clients: u32,
    /// Values of the model
    values: usize,
    /// See [`Load::sync`]
    #[arg(long)]
    sync: bool,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct LoadOutcome {
    pub(crate) clients: u32,
    pub(crate) values: usize,
    /// Seconds of each counted round, ascending.
    pub(crate) seconds: Vec<f64>,
    pub(crate) median: f64,
    /// Largest resident memory of the server while it served, in bytes; 0 if the system does not say.
    pub(crate) server_peak: u64,
    /// Processor time of the server per round, in seconds, including start and stop; 0 if the system does not say.
    pub(crate) server_cpu: f64,
    /// Processor time of all clients per round, in seconds, including start and stop; 0 if the system does not say.
    pub(crate) clients_cpu: f64,
    /// Largest resident memory of all clients together, in bytes; 0 if the system does not say.
    pub(crate) clients_peak: u64,
    pub(crate) score: Score,
}

#[derive(Debug, Serialize, Deserialize)]
struct ClientFigures {
    /// Bytes written to and read from the sockets.
    socket: (u64, u64),
    cpu: f64,
    peak: u64,
}

impl Load {
    /// The text of run.toml.
    ///
    /// # Errors
    /// `Config` if `--spec` is no table.
    fn run_toml(&self) -> Result<String, Error> {
        let spec = match self.codec {
            Codec::Dense => "memory = \"none\"\ndefault = { reduce = \"keep\", quantize = \"exact\", code = \"pack\" }",
            Codec::TopK => {
                "memory = \"error-feedback\"\n\
                 default = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = \"rans\" }"
            }
        };
        let compression = match &self.spec {
            None => format!("[compression.uplink]\n{spec}\n[compression.downlink]\n{spec}\n"),
            Some(text) => {
                let option = format!("`--spec {text}`");
                let table = format!("compression = {text}").parse::<toml::Table>();
                let table = table.map_err(|error| wrong(&option, error))?;
                if table.len() > 1 || !table.get("compression").is_some_and(toml::Value::is_table) {
                    let why = "give one inline table, such as { uplink = {}, downlink = {} }";
                    return Err(wrong(&option, why));
                }
                table.to_string()
            }
        };
        Ok(format!(
            "name = \"load\"\ntask = \"{TASK}\"\nrounds = {}\nseed = 1\nevaluate = false\n\
             [cohort]\nmin = {n}\ntarget = {n}\ndeadline = \"10min\"\n{compression}",
            self.rounds,
            n = self.clients,
        ))
    }

    /// Runs the load in the empty folder `dir`.
    pub(crate) async fn run(&self, dir: &Path) -> anyhow::Result<LoadOutcome> {
        let plan = plan(
            dir,
            &self.run_toml()?,
            "",
            &ready::layout(self.values)?,
            &vec![0.0; self.values],
        )?;
        let name = plan.name.clone();
        let now = OffsetDateTime::now_utc();
        let (authority, root) = Authority::create("load", now, VALID)?;
        std::fs::write(dir.join("authority.pem"), &root.certificate)?;
        for client in 0..self.clients {
            let client = client_name(client)?;
            let own = authority.issue_client(&client, now, VALID)?;
            std::fs::write(dir.join(format!("{client}.pem")), &own.certificate)?;
            std::fs::write(dir.join(format!("{client}.key")), &own.key)?;
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command
            .arg("load-clients")
            .arg(dir)
            .arg(listener.local_addr()?.to_string());
        command
            .arg(self.clients.to_string())
            .arg(self.values.to_string())
            .args(self.sync.then_some("--sync"));
        let clients = command
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?
            .wait_with_output();

        forget_peak();
        let before = processor_seconds();
        let (events, mut news) = mpsc::channel(1024);
        let options = Serve {
            events: Some(events),
            ..Serve::new(
                dir.join("server"),
                plan,
                root.certificate.clone(),
                authority.issue_server(now, VALID)?,
            )
        };
        let mut rounds = Vec::new();
        let reading = async {
            while let Some(event) = news.recv().await {
                note(&mut rounds, &event);
            }
        };
        let serving = Box::pin(fl_server::serve(listener, options, std::future::pending()));
        let (outcome, clients, ()) = tokio::join!(serving, clients, reading);
        let server_peak = peak();
        let outcome = outcome?;
        let clients = clients?;
        let server_cpu = (processor_seconds() - before) / self.rounds as f64;
        ensure!(outcome.ending == Ending::Done, "the run ended as {:?}", outcome.ending);
        ensure!(clients.status.success(), "the clients failed: {}", clients.status);
        let figures: ClientFigures = serde_json::from_slice(&clients.stdout).context("what the clients counted")?;

        let ledger = ledger(&dir.join("server"), &name)?.total();
        let score = Score {
            parameters: self.values as u64,
            clients: u64::from(self.clients),
            rounds,
            server_socket: outcome.socket,
            client_socket: figures.socket,
            ledger: (ledger.socket_up, ledger.socket_down),
            model: outcome.model.to_string(),
            times: Vec::new(),
        };
        let mut seconds: Vec<f64> = score.rounds.iter().skip(1).map(|round| round.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(seconds.len() / 2).copied().unwrap_or_default();
        Ok(LoadOutcome {
            clients: self.clients,
            values: self.values,
            seconds,
            median,
            server_peak,
            server_cpu,
            clients_cpu: figures.cpu / self.rounds as f64,
            clients_peak: figures.peak,
            score,
        })
    }
}

impl LoadOutcome {
    pub(crate) fn text(&self) -> String {
        let beside = self
            .score
            .fixed()
            .map(|bytes| format!(", {bytes:.0} B beside the frames per client and round"));
        format!(
            "{} clients, {} values: median {:.1} ms a round ({:.1} to {:.1}), server {:.1} ms of processor a round and clients {:.1}, memory {} and {} at most, ratio {:.1}x{}",
            self.clients,
            self.values,
            1e3 * self.median,
            1e3 * self.seconds.first().unwrap_or(&0.0),
            1e3 * self.seconds.last().unwrap_or(&0.0),
            1e3 * self.server_cpu,
            1e3 * self.clients_cpu,
            bytes(self.server_peak),
            bytes(self.clients_peak),
            self.score.ratio(),
            beside.unwrap_or_default(),
        )
    }
}

impl LoadClients {
    /// Runs the clients until the run is over and prints what they counted.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let meter = Arc::new(Meter::default());
        let gate = Arc::new(Semaphore::new(crate::demo::cores()));
        let authority = ground::read(&self.dir.join("authority.pem"))?;
        let mut running = JoinSet::new();
        // All clients share one delta, so that the load generator itself takes little time and memory.
        let delta = ready::delta(self.values, 0);
        for client in 0..self.clients {
            let name = client_name(client)?;
            let own = ground::pair(&self.dir, name.as_str())?;
            let delta = Arc::clone(&delta);
            let from = client as usize * SHIFT;
            let config = ClientConfig {
                sync: self.sync,
                gate: Arc::clone(&gate),
                meter: Arc::clone(&meter),
                ..ClientConfig::new(
                    &self.address,
                    &authority,
                    own,
                    self.dir.join("clients").join(name.as_str()),
                )
            };
            let tasks = Tasks::new().with_lazy(TASK, move || {
                Ok(Box::new(Ready::shifted(Arc::clone(&delta), from)?) as Box<dyn fl_client::Learner>)
            });
            running.spawn(Box::pin(fl_client::run(config, tasks, |_| {}, std::future::pending())));
        }
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        let figures = ClientFigures {
            socket: (meter.written(), meter.read()),
            cpu: processor_seconds(),
            peak: peak(),
        };
        out::line(format_args!("{}", serde_json::to_string(&figures)?))
    }
}

/// Places between the first values of two clients in the delta that they share.
const SHIFT: usize = 7919;

fn client_name(client: u32) -> anyhow::Result<ClientId> {
    Ok(format!("client-{client:03}").parse()?)
}

/// The largest resident memory of this process.
fn peak() -> u64 {
    process::memory("self", "VmHWM:")
}

/// Processor time of this process without its children, in steps of 10 ms (proc(5)); 0 if the system does not say.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    // In user mode and in the kernel, from the state, which is the third field.
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Resets the peak of resident memory, where the system can (Linux, proc(5)), so that only serving counts.
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use fl_server::RunPlan;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        load: Load,
    }

    fn run_toml(args: &[&str]) -> Result<String, String> {
        let args = std::iter::once(&"load").chain(args);
        let command = Command::try_parse_from(args).map_err(|error| error.to_string())?;
        command.load.run_toml().map_err(|error| error.to_string())
    }

    #[test]
    fn a_spec_is_the_compression_table() {
        let plan = |args: &[&str]| {
            let text = format!("model = \"first\"\n{}", run_toml(args).unwrap());
            RunPlan::from_toml(&text, Path::new("")).unwrap()
        };
        let given = plan(&[
            "--spec",
            "{ uplink = { budget = \"0.5 bits\" }, downlink = { default = {} } }",
        ]);
        assert_ne!(given.uplink, plan(&["--codec", "dense"]).uplink);
        assert_eq!(
            given.uplink.budget,
            plan(&["--spec", "{ uplink = { budget = \"0.5 bits\" } }"])
                .uplink
                .budget
        );
        assert_ne!(given.uplink.budget, plan(&["--spec", "{}"]).uplink.budget);
    }

    #[test]
    fn a_spec_that_is_no_table_is_refused() {
        for (spec, want) in [
            ("3", "give one inline table"),
            ("{}\nrounds = 3", "give one inline table"),
            ("{ uplink", "--spec"),
        ] {
            let error = run_toml(&["--spec", spec]).unwrap_err();
            assert!(error.contains(want), "{spec}: {error}");
        }
        let both = run_toml(&["--spec", "{}", "--codec", "dense"]).unwrap_err();
        assert!(both.contains("cannot be used with"), "{both}");
    }
}
