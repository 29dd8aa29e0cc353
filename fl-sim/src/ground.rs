//! A federation of separate processes on loopback: its folders, its server and its clients.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fl_compress::Digest;
use fl_compress::wire::Reader;
use fl_proto::{Issued, RunName};
use fl_server::disk::Disk;
use fl_server::record::Record;
use fl_server::report::Report;
use fl_server::store::Store;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::process::{self, Process, sim};
use crate::workload::TASK;

const RUN: &str = "edge";
/// More rounds than any run of these commands closes.
pub(crate) const MANY_ROUNDS: u64 = 1_000_000;
/// Time limit of what normally takes a moment.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// Pause between two looks at the server.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The folder of a federation: `fed/`, a folder for each client, `run.toml`.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    dir: PathBuf,
    /// Where clients connect.
    pub(crate) main: String,
    /// Where devices enroll.
    pub(crate) enroll: String,
    admin: String,
    seed: u64,
    /// Training and test examples of a client.
    pub(crate) examples: [u32; 2],
}

/// The parts of run.toml that differ.
#[derive(Debug, Clone)]
pub(crate) struct RunSettings {
    pub(crate) rounds: u64,
    /// Whether clients evaluate the models.
    pub(crate) evaluate: bool,
    /// The table `[cohort]`, without its head.
    pub(crate) cohort: String,
}

/// The report of a stopped server, and the verdict of `verify`.
#[derive(Debug)]
pub(crate) struct Examination {
    pub(crate) report: Report,
    pub(crate) verified: i32,
}

impl Ground {
    /// `server init` in the folder `dir`, with the three ports on loopback.
    pub(crate) async fn found(dir: &Path, seed: u64) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let [main, enroll, admin] = free_ports()?.map(|port| format!("127.0.0.1:{port}"));
        let init = ["server", "init", "fed", "--listen", &main, "--admin", &admin, "--audit"];
        process::done(dir, &init).await?;
        let path = dir.join("fed/server.toml");
        let text = std::fs::read_to_string(&path)?;
        let others = text.lines().filter(|line| !line.starts_with("enroll = "));
        let text = others.fold(String::new(), |text, line| text + line + "\n");
        std::fs::write(&path, format!("{text}enroll = \"{enroll}\"\n"))?;
        Ok(Self {
            dir: dir.to_owned(),
            main,
            enroll,
            admin,
            seed,
            examples: [60, 20],
        })
    }

    /// `fl-sim ARGS` in the folder of the federation, which must succeed; returns its stdout.
    pub(crate) async fn done(&self, args: &[&str]) -> anyhow::Result<String> {
        process::done(&self.dir, args).await
    }

    /// The line of a token for `client enroll`. `server`: the arguments of `server enroll`.
    pub(crate) async fn token(&self, server: &[&str]) -> anyhow::Result<String> {
        let line = self.done(server).await?;
        let line = line.trim().strip_prefix("fl-client enroll ");
        Ok(line.context("the line of a token")?.to_owned())
    }

    /// Whether `fl-sim ARGS` in the folder of the federation succeeds.
    pub(crate) async fn succeeds(&self, args: &[&str]) -> anyhow::Result<bool> {
        Ok(process::output(&self.dir, args).await?.0 == 0)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes run.toml and the initial weights.
    pub(crate) async fn plan(&self, run: &RunSettings) -> anyhow::Result<()> {
        let weights = "init.safetensors";
        let seed = self.seed.to_string();
        let init = ["client", "init", "--learner", "mlp", "--seed", &seed, "-o", weights];
        self.done(&init).await?;
        let RunSettings {
            rounds,
            evaluate,
            cohort,
        } = run;
        let text = format!(
            "model = \"{weights}\"\nname = \"{RUN}\"\ntask = \"{TASK}\"\nrounds = {rounds}\nseed = {seed}\nevaluate = {evaluate}\n\
             [cohort]\n{cohort}\n[train]\nepochs = 1\nbatch_size = 20\nlearning_rate = 0.1\n"
        );
        std::fs::write(self.path("run.toml"), text)?;
        Ok(())
    }

    /// `server issue`, and a task for the client.
    pub(crate) async fn issue(&self, name: &str, client: u32) -> anyhow::Result<()> {
        self.done(&["server", "issue", name, "--fed", "fed", "--out", name])
            .await?;
        self.give_task(name, client)
    }

    /// Adds the task to a client.toml that has none.
    pub(crate) fn give_task(&self, name: &str, client: u32) -> anyhow::Result<()> {
        let path = self.path(name).join("client.toml");
        let text = std::fs::read_to_string(&path)?;
        let [train, test] = self.examples;
        let seed = self.seed;
        let data = format!("{{ builtin = {{ seed = {seed}, client = {client}, train = {train}, test = {test} }} }}");
        let task = format!("[tasks.{TASK}]\nlearner = \"mlp\"\ndata = {data}\n");
        std::fs::write(&path, format!("sync = false\n{text}\n{task}"))?;
        Ok(())
    }

    /// `server serve`, as a process that answers.
    pub(crate) async fn serve(&self, more: &[&str]) -> anyhow::Result<Process> {
        let serve = ["server", "serve", "fed/server.toml", "--run", "run.toml"];
        let server = Process::start(sim(&self.dir, &[&serve, more].concat())?)?;
        let began = Instant::now();
        // The page is the last of its doors to open.
        while self.metrics().await.is_err() {
            ensure!(began.elapsed() < SOON, "the server does not answer: {}", server.last());
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(server)
    }

    /// `client run`, which stays when the run is over unless `more` says otherwise.
    pub(crate) fn client(&self, name: &str, more: &[&str]) -> anyhow::Result<Process> {
        let config = format!("{name}/client.toml");
        let run = ["client", "run", &config, "--device", "cpu"];
        Process::start(sim(&self.dir, &[&run, more].concat())?)
    }

    /// `/metrics` of the server.
    pub(crate) async fn metrics(&self) -> anyhow::Result<Metrics> {
        let ask = async {
            let mut io = TcpStream::connect(&self.admin).await?;
            let request = format!(
                "GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
                self.admin
            );
            io.write_all(request.as_bytes()).await?;
            let mut text = String::new();
            io.read_to_string(&mut text).await?;
            Ok::<_, std::io::Error>(text)
        };
        let text = tokio::time::timeout(SOON, ask)
            .await
            .context("/metrics does not answer")??;
        Ok(Metrics(text))
    }

    /// Waits until the server has closed `rounds` rounds since it started.
    pub(crate) async fn closed(&self, rounds: u64) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let closed = self.metrics().await?.sum("fl_rounds_closed_total");
            if closed >= rounds {
                return Ok(());
            }
            ensure!(
                began.elapsed() < SOON,
                "only {closed} of {rounds} rounds closed in {} s",
                SOON.as_secs()
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The report of the stopped server, and its verification.
    pub(crate) async fn examine(&self) -> anyhow::Result<Examination> {
        let verified = process::output(&self.dir, &["server", "verify", "fed"]).await?.0;
        let report = self.done(&["server", "report", "fed", "--format", "json"]).await?;
        let report = serde_json::from_str(&report).context("the report")?;
        Ok(Examination { report, verified })
    }

    /// Versions and digests of all models that the stopped server recorded.
    pub(crate) fn models(&self) -> anyhow::Result<Vec<(u64, Digest)>> {
        let store = Store::open(&self.path("fed/data"), Disk::default())?;
        let run: RunName = RUN.parse()?;
        let mut models = Vec::new();
        for record in store.run(&run)?.records() {
            match record? {
                Record::Started { model, .. } => models.push((0, model)),
                Record::RoundClosed { round, step, .. } => models.push((round, step.model)),
                _ => {}
            }
        }
        Ok(models)
    }

    /// Members of cohorts that the stopped server replaced in their rounds.
    pub(crate) fn replaced(&self) -> anyhow::Result<u64> {
        let mut replaced = 0;
        let store = Store::open(&self.path("fed/data"), Disk::default())?;
        for record in store.run(&RUN.parse()?)?.records() {
            if let Record::MembersReplaced { absent, .. } = record? {
                replaced += absent.len() as u64;
            }
        }
        Ok(replaced)
    }

    /// Version and digest of the model that a stopped client kept; an error if its bits are not those that the server recorded.
    pub(crate) fn held(&self, name: &str, models: &[(u64, Digest)]) -> anyhow::Result<(u64, Digest)> {
        let path = self.path(name).join("state/runs").join(RUN).join("model");
        let (version, said, found) = kept(&path).with_context(|| path.display().to_string())?;
        let recorded = models.iter().find(|(of, _)| *of == version).map(|(_, digest)| digest);
        ensure!(
            said == found && recorded == Some(&said),
            "{name} holds version {version} with digest {found} and says {said}; the server recorded {recorded:?}"
        );
        Ok((version, said))
    }
}

/// The model that a client kept: version, stored digest, and digest of the values.
pub(crate) fn kept(path: &Path) -> anyhow::Result<(u64, Digest, Digest)> {
    let bytes = std::fs::read(path)?;
    let mut reader = Reader::new(&bytes);
    reader.head(b"FLMD", [1, 0])?;
    let (version, digest) = reader.value("head")?;
    let values: Vec<f32> = reader.f32s(reader.left() / 4, "values")?.collect();
    Ok((version, digest, Digest::of_f32(&values)))
}

/// Ports between the first ones that two processes with consecutive numbers try.
const PORTS_OF_A_PROCESS: u64 = 61;

/// Free ports below the range for outgoing connections: a client that dials a port of that range while its server is dead may be
/// connected to itself.
pub(crate) fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    // Far from those of processes that start at the same time: a port is bound only later.
    let first = (u64::from(std::process::id()) * PORTS_OF_A_PROCESS % 10_000) as u16;
    let ports = (0..10_000).map(|next| 20_000 + (first + next) % 10_000);
    let free = ports.filter(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let ports: Vec<u16> = free.take(N).collect();
    ports.try_into().ok().context("no port is free")
}

/// The certificate `NAME.pem` and its key `NAME.key`.
pub(crate) fn pair(dir: &Path, name: &str) -> anyhow::Result<Issued> {
    Ok(Issued {
        certificate: read(&dir.join(format!("{name}.pem")))?,
        key: read(&dir.join(format!("{name}.key")))?,
    })
}

pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

/// The text of `/metrics`.
#[derive(Debug)]
pub(crate) struct Metrics(String);

impl Metrics {
    /// The sum of a metric over its labels.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        self.series(name).map(|(_, value)| value).sum()
    }

    /// The value of the series of a metric with this value of a label; 0 if there is none.
    pub(crate) fn labeled(&self, name: &str, label: &str) -> u64 {
        let quoted = format!("\"{label}\"");
        let of = self.series(name).filter(|(labels, _)| labels.contains(&quoted));
        of.map(|(_, value)| value).sum()
    }

    /// The labels, as written, and the value of each series of a metric.
    pub(crate) fn series(&self, name: &str) -> impl Iterator<Item = (&str, u64)> {
        let lines = self.0.lines().filter_map(move |line| line.strip_prefix(name));
        lines.filter_map(|rest| {
            let (labels, value) = rest.rsplit_once(' ')?;
            let whole = labels.is_empty() || labels.starts_with('{');
            let value = value.parse::<f64>().ok().filter(|_| whole)?;
            Some((labels.trim_start_matches('{').trim_end_matches('}'), value as u64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_read_by_its_whole_name() {
        let text = "# TYPE fl_a counter\nfl_a_total{port=\"main\",reason=\"x\"} 2.0\nfl_a_total{port=\"enroll\"} 3.0\n\
                    fl_a_totals 9.0\nfl_b 7.0\n";
        let metrics = Metrics(text.to_owned());
        assert_eq!(
            (metrics.sum("fl_a_total"), metrics.sum("fl_b"), metrics.sum("fl")),
            (5, 7, 0)
        );
        let first = metrics.series("fl_a_total").next();
        assert_eq!(first, Some(("port=\"main\",reason=\"x\"", 2)));
    }
}
