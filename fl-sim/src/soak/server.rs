//! The server of a soak test: `fl-server serve` with a clock that jumps.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use clap::Args;
use fl_cli::out;
use fl_server::{RunPlan, Serve};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::dice::Dice;
use crate::ground;

/// The server of a soak test, started by it.
#[derive(Debug, Args)]
pub(crate) struct SoakServer {
    /// The folder of the soak test
    dir: PathBuf,
    /// Address and port to listen on
    #[arg(long)]
    listen: SocketAddr,
    /// Seed of the clock's jumps
    #[arg(long)]
    seed: u64,
}

/// Range of the pause between two jumps, in milliseconds.
const APART: (u64, u64) = (1_000, 6_000);
/// Largest jump, in milliseconds: a day in either direction.
const FURTHEST: u64 = 86_400_000;

/// Current error of the clock, in milliseconds.
static WRONG: AtomicI64 = AtomicI64::new(0);

/// Milliseconds since 1970 by the clock that jumps.
fn clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since.map_or(0, |since| since.as_millis() as u64);
    now.saturating_add_signed(WRONG.load(Ordering::Relaxed))
}

impl SoakServer {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(self.serve())
    }

    async fn serve(&self) -> anyhow::Result<()> {
        let fed = self.dir.join("fed");
        let own = ground::pair(&fed, "server")?;
        let authority = ground::read(&fed.join("authority.pem"))?;
        let text = ground::read(&self.dir.join("run.toml"))?;
        let plan = RunPlan::from_toml(&text, &self.dir)?;
        let mut options = Serve::new(fed.join("data"), plan, authority, own);
        options.exit_when_done = false;
        // As in the federation's server.toml: the whole run is verified at the end.
        options.tuning.keep_updates = true;
        options.tuning.stop_within = Duration::from_secs(2);
        options.clock = clock;
        let listener = TcpListener::bind(self.listen).await?;
        let mut stop = signal(SignalKind::terminate())?;
        let mut dice = Dice(self.seed);
        jump(&mut dice)?;
        let jumping = tokio::spawn(async move {
            loop {
                tokio::time::sleep(dice.pause(APART)).await;
                if jump(&mut dice).is_err() {
                    return;
                }
            }
        });
        let stopped = async move {
            stop.recv().await;
        };
        let outcome = Box::pin(fl_server::serve(listener, options, stopped)).await?;
        jumping.abort();
        out::line(format_args!(
            "stopped after version {}, digest {}",
            outcome.version, outcome.model
        ))
    }
}

fn jump(dice: &mut Dice) -> anyhow::Result<()> {
    let wrong = dice.below(2 * FURTHEST) as i64 - FURTHEST as i64;
    WRONG.store(wrong, Ordering::Relaxed);
    out::line(format_args!("jump to {wrong} ms"))
}
