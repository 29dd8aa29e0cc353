//! The federation of a soak test: set up, disturbed, and examined at the end.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fl_cli::out;
use fl_compress::Digest;
use fl_proto::RunName;
use fl_server::disk::Disk;
use fl_server::record::Record;
use fl_server::report::Report;
use fl_server::store::Store;

use super::hostile::{BROKEN, Hostile, Hostility, MALICIOUS};
use super::outcome::Soaked;
use crate::dice::Dice;
use crate::ground::{free_ports, kept};
use crate::process::{self, Process, sim};
use crate::workload::TASK;

const RUN: &str = "soak";
/// More than any soak test closes.
const ROUNDS: u64 = 1_000_000;
/// Share of the time with kills. After it, one process of the server shows how its memory grows.
const KILLING: f64 = 0.6;
/// Range of the pause between two kills, in milliseconds.
const APART: (u64, u64) = (4_000, 12_000);
/// Time limit of a process after SIGTERM.
const END_WITHIN: Duration = Duration::from_secs(30);

/// The folders of a federation.
pub(super) struct Stage {
    dir: PathBuf,
    address: String,
    clients: Vec<String>,
}

impl Stage {
    /// Sets up the federation, issues its clients and writes the run.
    pub(super) async fn set(dir: &Path, clients: u32, seed: u64) -> anyhow::Result<Self> {
        let [port] = free_ports()?;
        let address = format!("127.0.0.1:{port}");
        // Keeps every update, so that the whole run can be verified at the end.
        let init = [
            "server", "init", "fed", "--listen", &address, "--admin", "off", "--audit",
        ];
        process::done(dir, &init).await?;
        let names: Vec<String> = (0..clients).map(|client| format!("client-{client:02}")).collect();
        for (name, client) in names.iter().zip(0..) {
            issue(dir, name).await?;
            let path = dir.join(name).join("client.toml");
            let text = std::fs::read_to_string(&path)?;
            let data = format!("{{ builtin = {{ seed = {seed}, client = {client}, train = 200, test = 50 }} }}");
            let task = format!("[tasks.{TASK}]\nlearner = \"mlp\"\ndata = {data}\n");
            std::fs::write(&path, format!("sync = false\n{text}\n{task}"))?;
        }
        for name in [MALICIOUS, BROKEN] {
            issue(dir, name).await?;
        }
        let text = seed.to_string();
        let init = [
            "client",
            "init",
            "--learner",
            "mlp",
            "--seed",
            &text,
            "-o",
            "init.safetensors",
        ];
        process::done(dir, &init).await?;
        // The attackers are selected too; the server waits for them as briefly as possible.
        let (size, target) = (clients + 2, clients - 1);
        let run = format!(
            "model = \"init.safetensors\"\nname = \"{RUN}\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = {seed}\n\
             [cohort]\nmin = 2\ntarget = {target}\nsize = {size}\ngrace = \"500ms\"\ndeadline = \"5s\"\nretries = 1000\n\
             [train]\nepochs = 1\nbatch_size = 20\nlearning_rate = 0.1\n"
        );
        std::fs::write(dir.join("run.toml"), run)?;
        Ok(Self {
            dir: dir.to_owned(),
            address,
            clients: names,
        })
    }

    fn server(&self, seed: u64) -> anyhow::Result<Process> {
        let seed = seed.to_string();
        Process::start(sim(
            &self.dir,
            &["soak-server", ".", "--listen", &self.address, "--seed", &seed],
        )?)
    }

    fn client(&self, name: &str) -> anyhow::Result<Process> {
        let config = format!("{name}/client.toml");
        Process::start(sim(&self.dir, &["client", "run", &config, "--device", "cpu"])?)
    }

    pub(super) async fn play(&self, minutes: u64, seed: u64) -> anyhow::Result<Soaked> {
        let began = Instant::now();
        let whole = Duration::from_secs(60 * minutes);
        let (killing, end) = (began + whole.mul_f64(KILLING), began + whole);
        let mut dice = Dice(seed);
        let mut broken = Vec::new();
        let mut server = self.server(dice.next())?;
        let mut clients = Vec::new();
        for name in &self.clients {
            clients.push(self.client(name)?);
        }
        let hostile = Hostile::start(&self.dir, &self.address, dice.next())?;

        let (mut kills, mut jumps) = ((0, 0), 0);
        let mut turn = 0;
        while Instant::now() < killing {
            tokio::time::sleep(dice.pause(APART)).await;
            // The server and one of the clients in turn.
            let victim = dice.below(clients.len() as u64) as usize;
            match clients.get_mut(victim) {
                Some(client) if turn % 2 == 1 => {
                    out::note(format_args!("killing {}", self.clients[victim]));
                    broken.extend(client.kill().await?);
                    *client = self.client(&self.clients[victim])?;
                    kills.1 += 1;
                }
                _ => {
                    out::note(format_args!("killing the server"));
                    jumps += server.count("jump ");
                    broken.extend(server.kill().await?);
                    server = self.server(dice.next())?;
                    kills.0 += 1;
                }
            }
            turn += 1;
        }
        // The memory of the last process, from after some rounds to the end.
        let left = end.saturating_duration_since(Instant::now());
        out::note(format_args!("no more kills for the last {} s", left.as_secs()));
        tokio::time::sleep(left / 4).await;
        let first = server.memory();
        tokio::time::sleep(end.saturating_duration_since(Instant::now())).await;
        let memory = (first, server.memory());

        let hostility = hostile.end().await;
        // Clients stop first: their models are then versions of the server's.
        for (client, name) in clients.into_iter().zip(&self.clients) {
            broken.extend(
                client
                    .stop(END_WITHIN)
                    .await
                    .with_context(|| format!("{name} does not stop"))?,
            );
        }
        jumps += server.count("jump ");
        broken.extend(server.stop(END_WITHIN).await.context("the server does not stop")?);
        let seconds = began.elapsed().as_secs_f64();
        let mut soaked = Soaked {
            seconds,
            kills,
            jumps,
            hostility,
            memory,
            ..self.examine().await?
        };
        soaked.broken.extend(broken);
        Ok(soaked.judged())
    }

    /// Examines store and states after the end.
    async fn examine(&self) -> anyhow::Result<Soaked> {
        let (code, _) = process::output(&self.dir, &["server", "verify", "fed"]).await?;
        let (reported, report) = process::output(&self.dir, &["server", "report", "fed", "--format", "json"]).await?;
        ensure!(reported == 0, "the report ends with code {reported}: {report}");
        let report: Report = serde_json::from_str(&report).context("the report")?;
        let models = self.models()?;
        let mut broken = Vec::new();
        let mut clients = Vec::new();
        for name in &self.clients {
            let path = self.dir.join(name).join("state/runs").join(RUN).join("model");
            let (version, said, found) = kept(&path).with_context(|| path.display().to_string())?;
            let recorded = models.iter().find(|(of, _)| *of == version).map(|(_, digest)| digest);
            if said != found || recorded != Some(&said) {
                broken.push(format!(
                    "{name} holds version {version} with digest {found} and says {said}; the server recorded {recorded:?}"
                ));
            }
            clients.push((version, found.to_string()));
        }
        let accuracy = report.accuracy();
        let totals = &report.totals;
        Ok(Soaked {
            seconds: 0.0,
            rounds: report.run.version,
            attempts: report.rounds.iter().map(|round| round.attempts).sum(),
            kills: (0, 0),
            jumps: 0,
            hostility: Hostility::default(),
            server: (report.run.version, report.run.model.clone()),
            clients,
            accuracy,
            memory: (0, 0),
            balanced: report.balanced,
            ledger: (totals.socket_up, totals.socket_down),
            verified: code,
            broken,
        })
    }

    /// Versions and digests of all models that the server recorded.
    fn models(&self) -> anyhow::Result<Vec<(u64, Digest)>> {
        let store = Store::open(&self.dir.join("fed/data"), Disk::default())?;
        let run: RunName = RUN.parse()?;
        let mut models = Vec::new();
        for record in store.run(&run)?.records() {
            match record? {
                Record::Started { model, .. } => models.push((0, model)),
                Record::RoundClosed { round, model, .. } => models.push((round, model)),
                _ => {}
            }
        }
        Ok(models)
    }
}

async fn issue(dir: &Path, name: &str) -> anyhow::Result<()> {
    process::done(dir, &["server", "issue", name, "--fed", "fed", "--out", name]).await?;
    out::note(format_args!("issued {name}"));
    Ok(())
}
