//! `fl-server status FED`: where the runs of a federation stand, and which certificates end soon.

use std::path::PathBuf;

use fl_proto::expiry;
use time::{Duration, OffsetDateTime};

use super::{Outcome, source};
use crate::admin::{Answer, Ask, Status};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The federation's folder, or its server.toml.
    fed: PathBuf,
}

/// A certificate that ends sooner than this is warned about.
const SOON: Duration = Duration::days(30);

pub(super) fn run(args: &Args) -> Outcome {
    let (_, config) = source::federation(&args.fed)?;
    let Answer::Status(status) = source::ask(&config, &Ask::Status)? else {
        return Err(source::unexpected().into());
    };
    let Status { serving, runs } = status;
    match &serving {
        Some(live) => {
            println!(
                "serving `{}` on {}; {} clients connected",
                live.run,
                live.listen,
                live.present.len()
            );
            for client in &live.present {
                println!("  {client}");
            }
        }
        None => println!("not serving"),
    }
    if runs.is_empty() {
        println!("no run yet");
    }
    for run in &runs {
        println!(
            "{}: {}; {} of {} rounds closed",
            run.run, run.state, run.closed, run.planned
        );
    }
    for path in [&config.authority, &config.certificate] {
        let end = std::fs::read_to_string(path).ok().and_then(|pem| expiry(&pem).ok());
        if let Some(end) = end.filter(|end| *end - OffsetDateTime::now_utc() < SOON) {
            println!("warning: {} ends on {}; issue a new one", path.display(), end.date());
        }
    }
    Ok(())
}
