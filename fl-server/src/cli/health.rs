//! `fl-server health FED`: whether the running server works. Returns in time even if the server hangs.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use fl_cli::{out, service};
use tokio::time::MissedTickBehavior;

use crate::admin::socket::{Answer, Ask, Health, ask_server};
use crate::cli::failure::Outcome;
use crate::cli::source;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The federation's folder, or its server.toml.
    #[arg(default_value = ".")]
    fed: PathBuf,
    /// Seconds to wait for the answer.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = fl_cli::args::seconds)]
    timeout: Duration,
}

pub(super) fn run(args: &Args) -> Outcome {
    let config = source::config(&args.fed)?;
    let Health { run, listen, clients } = ask(&config.data, args.timeout)?;
    out::line(format_args!(
        "healthy: serving `{run}` on {listen}; {clients} clients connected"
    ))?;
    Ok(())
}

/// Tells the service manager that the server makes progress, each time that the coordinator has answered over the admin socket.
pub(super) async fn feed_watchdog(data: PathBuf, interval: Duration) {
    let mut tick = tokio::time::interval(interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let data = data.clone();
        match tokio::task::spawn_blocking(move || ask(&data, interval)).await {
            Ok(Ok(_)) => service::alive(),
            Ok(Err(error)) => tracing::warn!("no progress to report to the service manager: {error:#}"),
            Err(_) => return,
        }
    }
}

pub(super) fn ask(data: &Path, timeout: Duration) -> anyhow::Result<Health> {
    let (sender, answer) = mpsc::channel();
    let folder = data.to_owned();
    // A hung server blocks the caller as soon as its queue of connections is full, so that a read timeout is not enough.
    std::thread::spawn(move || {
        // The caller may have given up.
        let _ = sender.send(ask_server(&folder, &Ask::Health));
    });
    let data = data.display();
    let seconds = timeout.as_secs_f64();
    let Ok(answered) = answer.recv_timeout(timeout) else {
        anyhow::bail!(
            "the server of {data} does not answer within {seconds} s: the process hangs or is overloaded; a restart loses nothing"
        );
    };
    match answered.with_context(|| format!("the server of {data} does not answer"))? {
        Some(Answer::Health(health)) => Ok(health),
        Some(Answer::Failed { why, .. }) => anyhow::bail!("the server of {data} is not healthy: {why}"),
        Some(_) => Err(source::unexpected()),
        None => anyhow::bail!("no server runs in {data}; start it with `fl-server serve`"),
    }
}
