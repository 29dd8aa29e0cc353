//! `fl-sim soak`.

use std::path::Path;

use clap::Args;

use super::outcome::SoakOutcome;
use super::stage::Stage;
use crate::keep::Keep;

/// Options of `fl-sim soak`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Soak {
    /// How long it runs
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    minutes: u64,
    /// Seed of kills, jumps and attacks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Honest clients
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(3..=50))]
    clients: u32,
    /// Where the federation stays.
    #[command(flatten)]
    pub(crate) keep: Keep,
}

impl Soak {
    /// Runs in the folder `dir`.
    ///
    /// # Errors
    /// If the federation cannot be set up or examined. Broken invariants are in the result.
    pub(crate) async fn run(&self, dir: &Path) -> anyhow::Result<SoakOutcome> {
        std::fs::create_dir_all(dir)?;
        let stage = Stage::set(dir, self.clients, self.seed).await?;
        stage.play(self.minutes, self.seed).await
    }
}
