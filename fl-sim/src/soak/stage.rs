//! The federation of a soak test: set up, disturbed, and examined at the end.

use std::path::Path;
use std::time::{Duration, Instant};

use fl_cli::out;

use super::hostile::{BROKEN, Hostile, Hostility, MALICIOUS};
use super::outcome::SoakOutcome;
use crate::dice::Dice;
use crate::ground::{Examination, Ground, MANY_ROUNDS, RunSettings};
use crate::process::{self, Process, sim};

/// Share of the time with kills. After it, one process of the server shows how its memory grows.
const KILLING: f64 = 0.6;
/// Range of the pause between two kills, in milliseconds.
const APART: (u64, u64) = (4_000, 12_000);

pub(super) struct Stage {
    ground: Ground,
    clients: Vec<String>,
}

impl Stage {
    /// Sets up the federation, issues its clients and writes the run.
    pub(super) async fn set(dir: &Path, clients: u32, seed: u64) -> anyhow::Result<Self> {
        let mut ground = Ground::found(dir, seed).await?;
        ground.examples = [200, 50];
        let names: Vec<String> = (0..clients).map(|client| format!("client-{client:02}")).collect();
        let attackers = [MALICIOUS, BROKEN];
        for (name, client) in names.iter().map(String::as_str).chain(attackers).zip(0..) {
            ground.issue(name, client).await?;
            out::note(format_args!("issued {name}"));
        }
        // The attackers are selected too; the server waits for them as briefly as possible.
        let size = clients + 2;
        let target = clients - 1;
        let run = RunSettings {
            rounds: MANY_ROUNDS,
            evaluate: true,
            cohort: format!(
                "min = 2\ntarget = {target}\nsize = {size}\ngrace = \"500ms\"\ndeadline = \"5s\"\nretries = 1000"
            ),
        };
        ground.plan(&run).await?;
        let clients = names;
        Ok(Self { ground, clients })
    }

    fn server(&self, seed: u64) -> anyhow::Result<Process> {
        let seed = seed.to_string();
        let server = ["soak-server", ".", "--listen", &self.ground.main, "--seed", &seed];
        Process::start(sim(&self.ground.path(""), &server)?)
    }

    pub(super) async fn play(&self, minutes: u64, seed: u64) -> anyhow::Result<SoakOutcome> {
        let began = Instant::now();
        let whole = Duration::from_secs(60 * minutes);
        let killing = began + whole.mul_f64(KILLING);
        let end = began + whole;
        let mut dice = Dice(seed);
        let mut broken = Vec::new();
        let mut server = self.server(dice.next())?;
        let mut clients = Vec::new();
        for name in &self.clients {
            clients.push(self.ground.client(name, &[])?);
        }
        let hostile = Hostile::start(&self.ground.path(""), &self.ground.main, dice.next())?;

        let mut kills = (0, 0);
        let mut jumps = 0;
        let mut turn = 0;
        while Instant::now() < killing {
            tokio::time::sleep(dice.pause(APART)).await;
            // The server and one of the clients in turn.
            let victim = dice.below(clients.len() as u64) as usize;
            match clients.get_mut(victim) {
                Some(client) if turn % 2 == 1 => {
                    out::note(format_args!("killing {}", self.clients[victim]));
                    broken.extend(client.kill().await?);
                    *client = self.ground.client(&self.clients[victim], &[])?;
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
        let running = clients.into_iter().zip(&self.clients);
        jumps += server.count("jump ");
        broken.extend(process::stop(running, server).await?);
        let seconds = began.elapsed().as_secs_f64();
        let mut outcome = SoakOutcome {
            seconds,
            kills,
            jumps,
            hostility,
            memory,
            ..self.examine().await?
        };
        outcome.broken.extend(broken);
        Ok(outcome.judged())
    }

    async fn examine(&self) -> anyhow::Result<SoakOutcome> {
        let Examination { report, verified } = self.ground.examine().await?;
        let models = self.ground.models()?;
        let mut broken = Vec::new();
        let mut clients = Vec::new();
        for name in &self.clients {
            match self.ground.held(name, &models) {
                Ok((version, digest)) => clients.push((version, digest.to_string())),
                Err(why) => broken.push(why.to_string()),
            }
        }
        let accuracy = report.accuracy();
        let totals = &report.totals;
        Ok(SoakOutcome {
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
            verified,
            broken,
        })
    }
}
