//! `fl-sim fleet`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use fl_cli::out;

use super::device::{Device, Misfortune};
use super::outcome::{Events, FleetOutcome};
use crate::dice::Dice;
use crate::ground::{Ground, LOOK_EVERY, MANY_ROUNDS, Metrics, RunSettings, SOON};
use crate::keep::Keep;

/// Options of `fl-sim fleet`.
#[derive(Debug, Clone, Args)]
pub(crate) struct FleetRun {
    /// Devices
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(4..=100))]
    clients: u32,
    /// Probability that something happens to a device in a round
    #[arg(long, default_value_t = 0.3, value_parser = probability)]
    churn: f64,
    /// How long it runs
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    minutes: u64,
    /// Run for so many rounds instead of minutes
    #[arg(long, conflicts_with = "minutes", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: Option<u64>,
    /// Seconds that a certificate is valid
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(3..=86_400))]
    lifetime: u64,
    /// Seed of the events and of the training
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the federation stays.
    #[command(flatten)]
    pub(crate) keep: Keep,
}

fn probability(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (0.0..=1.0).contains(value));
    value.ok_or_else(|| "must be 0 to 1".to_owned())
}

/// Rounds before the first event and after the last one.
const CALM_ROUNDS: u64 = 3;
/// Longest absence in rounds.
const ABSENCE: u64 = 4;

impl FleetRun {
    /// Runs in the folder `dir`.
    ///
    /// # Errors
    /// If the fleet cannot be set up or examined. Broken promises are in the result.
    pub(crate) async fn run(&self, dir: &Path) -> anyhow::Result<FleetOutcome> {
        let ground = Ground::found(dir, self.seed).await?;
        ground.plan(&self.plan()).await?;
        let lifetime = format!("{}s", self.lifetime);
        let server = ground.serve(&["--lifetime", &lifetime]).await?;
        let mut fleet = Fleet {
            ground: &ground,
            lifetime: self.lifetime,
            devices: Vec::new(),
            events: Events::default(),
            broken: Vec::new(),
        };
        let began = Instant::now();
        for number in 0..self.clients {
            fleet
                .devices
                .push(Device::enroll(&ground, number, self.lifetime).await?);
        }
        out::note(format_args!(
            "{} devices enrolled in {:.1} s",
            self.clients,
            began.elapsed().as_secs_f64()
        ));
        ground.closed(CALM_ROUNDS).await?;
        self.churn(&mut fleet).await?;
        fleet.gather().await?;
        let metrics = ground.metrics().await?;
        let seconds = began.elapsed().as_secs_f64();
        // Clients stop first: their models are then versions of the server's.
        for device in &mut fleet.devices {
            fleet.broken.extend(device.stop().await?);
        }
        fleet
            .broken
            .extend(server.stop().await.context("the server does not stop")?);
        let lasted = self.examine(fleet, &metrics, seconds).await?;
        Ok(lasted.judged(u64::from(self.clients)))
    }

    /// Cohorts of three fifths of the fleet, of which two thirds have to answer.
    fn plan(&self) -> RunSettings {
        let size = (3 * self.clients).div_ceil(5).max(3);
        let target = (2 * size).div_ceil(3).max(2);
        RunSettings {
            rounds: MANY_ROUNDS,
            evaluate: false,
            cohort: format!(
                "min = 2\ntarget = {target}\nsize = {size}\ngrace = \"500ms\"\nabsent = \"1s\"\ndeadline = \"20s\"\nretries = 3"
            ),
        }
    }

    async fn churn(&self, fleet: &mut Fleet<'_>) -> anyhow::Result<()> {
        let end = Instant::now() + Duration::from_secs(60 * self.minutes);
        let mut dice = Dice(self.seed);
        let mut seen = 0;
        let mut said = Instant::now();
        loop {
            let closed = fleet.next_round(seen).await?;
            // Rounds that closed together count as one step.
            seen = closed;
            let over = match self.rounds {
                Some(rounds) => closed >= rounds,
                None => Instant::now() >= end,
            };
            if over {
                return Ok(());
            }
            fleet.step(closed, self.churn, &mut dice).await?;
            if said.elapsed() >= Duration::from_secs(60) {
                said = Instant::now();
                out::note(format_args!("round {closed}: {}", fleet.events.text()));
            }
        }
    }

    async fn examine(&self, fleet: Fleet<'_>, metrics: &Metrics, seconds: f64) -> anyhow::Result<FleetOutcome> {
        let Fleet {
            ground,
            devices,
            events,
            mut broken,
            ..
        } = fleet;
        let kept = ground.examine().await?;
        let models = ground.models()?;
        let mut current = 0;
        for device in &devices {
            match ground.held(&device.name, &models) {
                Ok((version, _)) => current += u64::from(version + 1 >= kept.report.run.version),
                Err(error) => broken.push(format!("{error:#}")),
            }
        }
        let closed: Vec<_> = kept.report.rounds.iter().filter(|round| round.closed).collect();
        Ok(FleetOutcome {
            seconds,
            rounds: kept.report.run.version,
            attempts: closed.iter().map(|round| round.attempts).sum(),
            updates: closed.iter().map(|round| round.updates).sum(),
            replaced: ground.replaced()?,
            renewals: metrics.labeled("fl_renewals_total", "issued"),
            refused_renewals: metrics.labeled("fl_renewals_total", "refused"),
            enrollments: metrics.labeled("fl_enrollments_total", "issued"),
            events,
            balanced: kept.report.balanced,
            ledger: (kept.report.totals.socket_up, kept.report.totals.socket_down),
            verified: kept.verified,
            model: kept.report.run.model,
            current,
            broken,
        })
    }
}

struct Fleet<'a> {
    ground: &'a Ground,
    lifetime: u64,
    devices: Vec<Device>,
    events: Events,
    broken: Vec<String>,
}

impl Fleet<'_> {
    /// Waits until more than `seen` rounds have closed; returns their number. Meanwhile devices that ended because their
    /// certificate had expired are enrolled again.
    async fn next_round(&mut self, seen: u64) -> anyhow::Result<u64> {
        let began = Instant::now();
        loop {
            let closed = self.ground.metrics().await?.sum("fl_rounds_closed_total");
            if closed > seen {
                return Ok(closed);
            }
            ensure!(
                began.elapsed() < SOON,
                "no round closed in {} s after round {seen}",
                SOON.as_secs()
            );
            for device in &mut self.devices {
                self.events.enrolled_again += u64::from(device.look(self.ground, self.lifetime).await?);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What happens after a round: some devices recover, others suffer. At least half of them stay.
    async fn step(&mut self, closed: u64, churn: f64, dice: &mut Dice) -> anyhow::Result<()> {
        for at in 0..self.devices.len() {
            let absent = self.devices.iter().filter(|device| !device.is_present()).count();
            let most = self.devices.len() / 2;
            let device = &mut self.devices[at];
            // Drawn for each device in each step, so that the events of one do not depend on another's.
            let happens = dice.below(1_000_000);
            let what = Misfortune::draw(dice);
            let until = closed + 1 + dice.below(ABSENCE);
            if !device.is_present() {
                let again = device.recover(closed, self.ground, self.lifetime).await?;
                self.events.enrolled_again += u64::from(again);
            } else if (happens as f64) < churn * 1e6 && absent < most {
                self.events.enrolled_again += u64::from(device.look(self.ground, self.lifetime).await?);
                self.events.add(what);
                self.broken.extend(device.suffer(what, until, self.ground).await?);
            }
        }
        Ok(())
    }

    /// Has every device recover, and waits until all of them have taken the models of some more rounds.
    async fn gather(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            for device in &mut self.devices {
                let again = device.recover(u64::MAX, self.ground, self.lifetime).await?
                    || device.look(self.ground, self.lifetime).await?;
                self.events.enrolled_again += u64::from(again);
            }
            let metrics = self.ground.metrics().await?;
            let connected = metrics.sum("fl_clients_connected");
            if connected == self.devices.len() as u64 && self.devices.iter().all(Device::is_present) {
                return self
                    .ground
                    .closed(metrics.sum("fl_rounds_closed_total") + CALM_ROUNDS)
                    .await;
            }
            // A device may wait until its certificate has expired.
            let patience = SOON + Duration::from_secs(self.lifetime);
            ensure!(
                began.elapsed() < patience,
                "only {connected} of {} devices came back in {} s",
                self.devices.len(),
                patience.as_secs()
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
