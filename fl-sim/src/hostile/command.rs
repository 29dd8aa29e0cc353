//! `fl-sim hostile`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use fl_cli::out;
use fl_proto::Authority;
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::attack::{Attackers, Kind};
use super::outcome::{DEVICES, Ends, HostileOutcome, Memory};
use crate::dice::Dice;
use crate::ground::{Ground, LOOK_EVERY, MANY_ROUNDS, Metrics, RunSettings, pair};
use crate::keep::Keep;
use crate::process;

/// Options of `fl-sim hostile`.
#[derive(Debug, Clone, Args)]
pub(crate) struct HostileRun {
    /// Hostile connections
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Hostile connections at once
    #[arg(long, default_value_t = 700, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    at_once: u32,
    /// Honest clients
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=100))]
    clients: u32,
    /// Seconds that an attacker waits for the server to close its connection
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    patience: u64,
    /// Seed of the attacks and of the training
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the federations stay.
    #[command(flatten)]
    pub(crate) keep: Keep,
}

/// Certified clients that attack.
const CERTIFIED: u32 = 8;
/// Rounds before the attack, past the first checkpoint: the server's memory is steady then.
const WARM_ROUNDS: u64 = 12;
/// Rounds after the attack.
const CALM_ROUNDS: u64 = 3;
/// Attempts of a device that enrolls, at most.
const ATTEMPTS: u32 = 50;

impl HostileRun {
    /// Runs in the folder `dir`: under attack, and then the same rounds in peace.
    ///
    /// # Errors
    /// If the federation cannot be set up or examined. Broken promises are in the result.
    pub(crate) async fn run(&self, dir: &Path) -> anyhow::Result<HostileOutcome> {
        let (ground, clients) = self.set(&dir.join("attacked")).await?;
        for attacker in 0..CERTIFIED {
            let name = format!("attacker-{attacker}");
            ground
                .done(&["server", "issue", &name, "--fed", "fed", "--out", &name])
                .await?;
        }
        ground.plan(&self.plan(MANY_ROUNDS)).await?;
        let mut withstood = self.attacked(&ground, &clients).await?;
        out::note(format_args!("the same {} rounds without attackers", withstood.rounds));
        let (quiet, clients) = self.set(&dir.join("quiet")).await?;
        quiet.plan(&self.plan(withstood.rounds)).await?;
        (withstood.quiet, withstood.quiet_memory) = self.quiet(&quiet, &clients).await?;
        Ok(withstood.judged(u64::from(self.connections), u64::from(self.clients)))
    }

    async fn set(&self, dir: &Path) -> anyhow::Result<(Ground, Vec<String>)> {
        let ground = Ground::found(dir, self.seed).await?;
        let mut clients = Vec::new();
        for client in 0..self.clients {
            let name = format!("client-{client:02}");
            ground.issue(&name, client).await?;
            clients.push(name);
        }
        Ok((ground, clients))
    }

    /// Every client is in every round, so that the model does not depend on time.
    fn plan(&self, rounds: u64) -> RunSettings {
        let all = self.clients;
        RunSettings {
            rounds,
            evaluate: false,
            cohort: format!("min = {all}\ntarget = {all}\ndeadline = \"2min\"\nretries = 0"),
        }
    }

    async fn attacked(&self, ground: &Ground, names: &[String]) -> anyhow::Result<HostileOutcome> {
        let attackers = self.attackers(ground)?;
        let server = ground.serve(&[]).await?;
        let mut clients = Vec::new();
        for name in names {
            clients.push(ground.client(name, &[])?);
        }
        ground.closed(WARM_ROUNDS).await.context("before the attack")?;
        let opened = [
            "server", "enroll", "device-*", "--fed", "fed", "--uses", "9", "--ttl", "12h",
        ];
        let line = ground.token(&opened).await?;
        let before = server.memory();
        let rounds_before = ground.metrics().await?.sum("fl_rounds_closed_total");

        let began = Instant::now();
        let mut most = before;
        let devices = tokio::spawn(enroll(ground.clone(), line));
        let attack = self.attack(Arc::new(attackers));
        let mut attack = std::pin::pin!(attack);
        let ends = loop {
            tokio::select! {
                ends = &mut attack => break ends?,
                () = tokio::time::sleep(LOOK_EVERY) => most = most.max(server.memory()),
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        let enrolled = devices.await??;
        let metrics = ground.metrics().await?;
        let during = metrics.sum("fl_rounds_closed_total") - rounds_before;
        ground
            .closed(rounds_before + during + CALM_ROUNDS)
            .await
            .context("after the attack")?;
        let metrics = ground.metrics().await?;
        let memory = Memory {
            before,
            most: most.max(server.memory()),
            after: server.memory(),
        };

        let mut broken = Vec::new();
        let running = clients.into_iter().zip(names);
        broken.extend(process::stop(running, server).await?);
        let kept = ground.examine().await?;
        let models = ground.models()?;
        for name in names {
            if let Err(error) = ground.held(name, &models) {
                broken.push(format!("{error:#}"));
            }
        }
        let closed: Vec<_> = kept.report.rounds.iter().filter(|round| round.closed).collect();
        Ok(HostileOutcome {
            seconds,
            ends,
            enrolled,
            edge: edge(&metrics),
            rounds: kept.report.run.version,
            rounds_during: during,
            attempts: closed.iter().map(|round| round.attempts).sum(),
            updates: closed.iter().map(|round| round.updates).sum(),
            memory,
            balanced: kept.report.balanced,
            ledger: (kept.report.totals.socket_up, kept.report.totals.socket_down),
            verified: kept.verified,
            model: kept.report.run.model.clone(),
            quiet: String::new(),
            quiet_memory: Memory::default(),
            broken,
        })
    }

    /// Digest of the model after the same rounds without attackers, and the server's memory.
    async fn quiet(&self, ground: &Ground, names: &[String]) -> anyhow::Result<(String, Memory)> {
        let mut server = ground.serve(&["--exit-when-done"]).await?;
        let mut clients = Vec::new();
        for name in names {
            clients.push(ground.client(name, &["--exit-when-done"])?);
        }
        ground.closed(WARM_ROUNDS).await.context("the quiet run")?;
        let before = server.memory();
        let mut memory = Memory {
            before,
            most: before,
            after: before,
        };
        while !server.is_over()? {
            // 0 once it has ended.
            let now = server.memory();
            if now > 0 {
                memory.after = now;
                memory.most = memory.most.max(now);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        server.end().await.context("the server of the quiet run")?;
        for client in clients {
            client.end().await.context("a client of the quiet run")?;
        }
        Ok((ground.examine().await?.report.run.model, memory))
    }

    /// Makes all hostile connections.
    async fn attack(&self, attackers: Arc<Attackers>) -> anyhow::Result<Ends> {
        let gate = Arc::new(Semaphore::new(self.at_once as usize));
        let mut dice = Dice(self.seed);
        let mut running = JoinSet::new();
        let mut ends = Ends::default();
        for number in 0..self.connections {
            let turn = Arc::clone(&gate).acquire_owned().await?;
            while let Some(ended) = running.try_join_next() {
                let (kind, end) = ended?;
                ends.add(kind, end);
            }
            let kind = Kind::ALL[dice.below(Kind::ALL.len() as u64) as usize];
            let attackers = Arc::clone(&attackers);
            let dice = Dice(dice.next());
            running.spawn(async move {
                let end = attackers.attack(kind, dice).await;
                drop(turn);
                (kind, end)
            });
            if number % 1_000 == 999 {
                out::note(format_args!(
                    "{} of {} hostile connections",
                    number + 1,
                    self.connections
                ));
            }
        }
        while let Some(ended) = running.join_next().await {
            let (kind, end) = ended?;
            ends.add(kind, end);
        }
        Ok(ends)
    }

    fn attackers(&self, ground: &Ground) -> anyhow::Result<Attackers> {
        let root = pair(&ground.path("fed"), "authority")?;
        let authority = Authority::from_pem(&root)?;
        let root = root.certificate.clone();
        let now = OffsetDateTime::now_utc();
        let day = time::Duration::days(1);
        let other = Authority::create("other", now, day)?.0;
        let name = "client-00".parse()?;
        let own = (0..CERTIFIED).map(|own| pair(&ground.path(&format!("attacker-{own}")), "client"));
        let own: anyhow::Result<_> = own.collect();
        Ok(Attackers {
            main: ground.main.parse()?,
            enroll: ground.enroll.clone(),
            authority: fl_proto::Fingerprint::of_pem(&root)?,
            foreign: other.issue_client(&name, now, day)?,
            expired: authority.issue_client(&name, now - 10 * day, day)?,
            own: own?,
            root,
            patience: Duration::from_secs(self.patience),
        })
    }
}

/// Enrolls devices while the attack lasts; returns the attempts of each that succeeded. A device that finds no place says so, and
/// the same command is typed again.
async fn enroll(ground: Ground, line: String) -> anyhow::Result<Vec<u32>> {
    let mut enrolled = Vec::new();
    for device in 0..DEVICES {
        let folder = format!("device-{device}");
        for attempt in 1..=ATTEMPTS {
            if ground.succeeds(&["client", "enroll", &line, "--to", &folder]).await? {
                enrolled.push(attempt);
                break;
            }
        }
    }
    Ok(enrolled)
}

/// What the server counted at its ports: series that are not 0.
fn edge(metrics: &Metrics) -> Vec<(String, u64)> {
    let names = [
        "fl_edge_accepted_total",
        "fl_edge_closed_total",
        "fl_edge_calls_limited_total",
        "fl_enrollments_total",
    ];
    let series = names.into_iter().flat_map(|name| {
        let of = metrics.series(name).filter(|(_, value)| *value > 0);
        of.map(move |(labels, value)| (format!("{}{{{labels}}}", name.trim_end_matches("_total")), value))
    });
    series.collect()
}
