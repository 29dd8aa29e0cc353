//! `fl-server serve server.toml --run run.toml`: serves a run and prints a line for each round.

mod again;
mod print;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use fl_cli::{out, service};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::admin::page::listener::Live;
use crate::cli::enroll;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::health;
use crate::cli::source::{self, Certificates};
use crate::clock;
use crate::config::server::ServerConfig;
use crate::identity::LIFETIME_DAYS;
use crate::registry::NamePattern;
use crate::server::options::{Ending, Enrollment, Identity, Serve};
use crate::server::serve::serve;
use crate::storage::disk::Fault;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The federation's folder, or its server.toml.
    server: PathBuf,
    /// The run.toml of the run.
    #[arg(long)]
    run: PathBuf,
    /// Exit when the run is over. Without this option, the server tells clients until it is stopped.
    #[arg(long)]
    exit_when_done: bool,
    /// Also print a line that enrolls devices, as `fl-server enroll NAME` does: a name, or a pattern such as 'camera-*'.
    #[arg(long, value_name = "NAME")]
    enroll: Option<NamePattern>,
    /// Number of devices that this line enrolls.
    #[arg(long, requires = "enroll", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    uses: u32,
    /// A fault at the N-th write: `abort@N` or `full@N`.
    #[arg(long, hide = true)]
    fault: Option<String>,
    /// The same for the writes of the server's certificate and key.
    #[arg(long, hide = true)]
    identity_fault: Option<String>,
    /// Validity of renewed certificates instead of `certificate_days`, such as 60s, for tests.
    #[arg(long, hide = true, value_parser = enroll::ttl)]
    lifetime: Option<u64>,
}

/// Capacity of the channel of events to print.
const EVENTS: usize = 1024;

pub(super) fn run(args: &Args) -> Outcome {
    fl_proto::raise_open_files();
    fl_proto::make_new_files_private();
    let config = source::config(&args.server)?;
    let plan = source::plan(&args.run)?;
    let renewer = source::renewer(&config, LIFETIME_DAYS);
    if renewer.make_if_missing(clock::system()).map_err(anyhow::Error::from)? {
        tracing::info!(file = %config.certificate.display(), "made the server's certificate and key, which were missing");
    }
    let Certificates { authority, own } = source::certificates(&config)?;
    let name = plan.name.to_string();
    let mut options = Serve::new(config.data.clone(), plan, authority, own);
    options.revoked.clone_from(&config.revoked);
    options.enrollment = Enrollment {
        listen: config.enroll,
        server: again::server(&config),
        authority: config.authority.clone(),
        authority_key: config.authority_key.clone(),
        lifetime: again::lifetime(&config, args.lifetime),
    };
    options.identity = Some(Identity {
        paths: again::own_paths(&config),
        fault: fault(args.identity_fault.as_ref())?,
        ..Identity::new(Path::new(""))
    });
    options.reload = Some(again::reload(args.server.clone(), &config, args.lifetime));
    options.tuning = config.tuning;
    options.otlp.clone_from(&config.otlp);
    options.costs.clone_from(&config.costs);
    options.exit_when_done = args.exit_when_done;
    options.live = page(&config)?;
    options.fault = fault(args.fault.as_ref())?;

    if let Some(name) = &args.enroll {
        // A line for a port that another server has would be of no use.
        let ports = [("listen", Some(config.listen)), ("enroll", config.enroll)];
        for (key, address) in ports.into_iter().filter_map(|(key, port)| Some((key, port?))) {
            let free = std::net::TcpListener::bind(address);
            free.map_err(|why| cannot_listen(address, key, &why))?;
        }
        // Before the store is open here.
        enroll::before_serving(&args.server, name, args.uses)?;
    }

    // Enough threads to keep a disk busy; more would only use memory.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(64)
        .enable_all()
        .build()
        .context("no runtime")?;
    let outcome = runtime.block_on(async {
        let listener = TcpListener::bind(config.listen).await;
        let listener = listener.map_err(|why| cannot_listen(config.listen, "listen", &why))?;
        let ready = format!("serving `{}` on {}", options.plan.name, listener.local_addr()?);
        let ready = match &options.live {
            Some(page) => format!("{ready}; look at {}", page.url()),
            None => ready,
        };
        // A server that exits prints the model's digest instead.
        let over = (!args.exit_when_done).then_some(print::OVER);
        let (events, lines) = mpsc::channel(EVENTS);
        options.events = Some(events);
        let printing = tokio::spawn(print::print(ready, over, lines, print::printer()));
        if let Some(interval) = service::watchdog_interval() {
            tokio::spawn(health::feed_watchdog(config.data.clone(), interval));
        }
        let outcome = serve(listener, options, fl_cli::signal::stop()?).await?;
        let _ = printing.await;
        Ok::<_, Failure>(outcome)
    })?;
    match outcome.ending {
        Ending::Done => {
            match source::report(&config, Some(&name)) {
                Ok(report) => fl_report::notes(&report)
                    .iter()
                    .try_for_each(|note| out::line(format_args!("{note}")))?,
                Err(failure) => tracing::warn!("the run is done, but its report cannot be made: {}", failure.error()),
            }
            out::line(format_args!(
                "done: version {}, digest {}",
                outcome.version, outcome.model
            ))?;
        }
        Ending::Stopped => out::line(format_args!(
            "stopped after version {}; serve again to continue",
            outcome.version
        ))?,
        Ending::Failed { round, why } => {
            return Err(
                anyhow::anyhow!("the run failed in round {round}: {why}; start the server again to retry").into(),
            );
        }
    }
    Ok(())
}

fn fault(text: Option<&String>) -> Result<Option<Arc<Fault>>, Failure> {
    let fault = text.map(|text| text.parse::<Fault>().map_err(|e| Failure::usage(anyhow::anyhow!(e))));
    Ok(fault.transpose()?.map(Arc::new))
}

/// The error for an address that cannot be listened on, with the key to change.
fn cannot_listen(address: SocketAddr, key: &str, why: &std::io::Error) -> anyhow::Error {
    match why.kind() {
        ErrorKind::AddrInUse => anyhow::anyhow!(
            "cannot listen on {address}: another process listens there; choose another with `{key}` in server.toml"
        ),
        _ => anyhow::anyhow!("cannot listen on {address} (`{key}` in server.toml): {why}"),
    }
}

/// The page of the run, unless `admin` is `off`.
fn page(config: &ServerConfig) -> Result<Option<Live>, Failure> {
    let Some(address) = config.admin else { return Ok(None) };
    let (token, own) = source::page(config, address)?;
    let page = Live::bind(address, token.as_deref(), &own);
    Ok(Some(page.map_err(|error| source::page_failure(config, error))?))
}
