//! The load generator: rounds without training, to measure everything else.

use clap::Args;
use fl_client::Tasks;
use serde::Serialize;

use crate::federation::{self, Member, Setup};
use crate::ready::{self, Ready};
use crate::score::Score;
use crate::workload::TASK;

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
pub struct Load {
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
    /// Clients' states survive power loss too (fsync), not only the death of the process
    #[arg(long)]
    sync: bool,
}

/// What a load run measured.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Clients.
    pub clients: u32,
    /// Values of the model.
    pub values: usize,
    /// Seconds of each counted round, ascending.
    pub seconds: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// Largest resident memory of this process so far, server and clients together, in bytes; 0 where unknown.
    pub peak_rss: u64,
    /// The run.
    pub score: Score,
}

impl Load {
    fn run_toml(&self) -> String {
        let spec = match self.codec {
            Codec::Dense => "memory = \"none\"\ndefault = { reduce = \"keep\", quantize = \"exact\", code = \"pack\" }",
            Codec::TopK => {
                "memory = \"error-feedback\"\n\
                 default = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = \"rans\" }"
            }
        };
        format!(
            "name = \"load\"\ntask = \"{TASK}\"\nrounds = {}\nseed = 1\nevaluate = false\n\
             [cohort]\nmin = {n}\ntarget = {n}\ndeadline = \"10min\"\n\
             [compression.uplink]\n{spec}\n[compression.downlink]\n{spec}\n",
            self.rounds,
            n = self.clients,
        )
    }

    /// Runs the load.
    ///
    /// # Errors
    /// If the federation fails.
    pub async fn run(&self) -> anyhow::Result<Measured> {
        let dir = tempfile::tempdir()?;
        let values = self.values;
        let member = |client: u32| {
            let make = move || Ok(Box::new(Ready::new(values, u64::from(client))?) as Box<dyn fl_client::Learner>);
            let name = format!("client-{client:03}").parse()?;
            Ok(Member { name, tasks: Tasks::new().with_lazy(TASK, make) })
        };
        let setup = Setup {
            dir: dir.path().to_owned(),
            run: self.run_toml(),
            layout: std::sync::Arc::new(ready::layout(values)?),
            weights: vec![0.0; values],
            members: (0..self.clients).map(member).collect::<anyhow::Result<_>>()?,
            at_once: crate::demo::cores(),
            sync: self.sync,
        };
        let score = federation::run(setup, |_| {}).await?;
        let mut seconds: Vec<f64> = score.rounds.iter().skip(1).map(|round| round.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(seconds.len() / 2).copied().unwrap_or_default();
        Ok(Measured { clients: self.clients, values, seconds, median, peak_rss: peak_rss(), score })
    }
}

/// `VmHWM` of this process in bytes; 0 where the system does not tell.
fn peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
