//! `fl-client run`: take part until stopped, or until the run is over.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use fl_cli::service;
use indicatif::ProgressBar;

use super::pulse::{self, Pulse};
use super::show::Show;
use crate::client_file::ClientFile;
use crate::config::{ConfigReload, Reload, check_address};
use crate::device::DeviceChoice;
use crate::error::Error;
use crate::named::Learners;
use crate::session::Outcome;

/// Stack of each thread, as large as the main thread's, on which `check` computes: the way back through a deep model of candle's
/// operations calls itself.
const STACK: usize = 8 << 20;

/// Take part in the runs of a federation.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The client's configuration.
    #[arg(default_value = "client.toml")]
    config: PathBuf,
    /// Connect to this host:port instead of the configuration's `server`.
    #[arg(long)]
    server: Option<String>,
    /// Keep the state in this folder instead of the configuration's `state`.
    #[arg(long)]
    state: Option<PathBuf>,
    /// Compute on this device instead of the configuration's `device`: auto, cpu, cuda:0.
    #[arg(long)]
    device: Option<DeviceChoice>,
    /// Return when the run is over, instead of waiting for the next one.
    #[arg(long)]
    exit_when_done: bool,
}

impl Args {
    /// To run with this configuration as it is.
    pub(super) fn of(config: PathBuf) -> Self {
        Self {
            config,
            server: None,
            state: None,
            device: None,
            exit_when_done: false,
        }
    }
}

pub(super) fn run(args: Args, learners: &Arc<dyn Learners>, bar: &ProgressBar) -> anyhow::Result<()> {
    fl_proto::raise_open_files();
    fl_proto::make_new_files_private();
    let mut file = read(&args, learners.as_ref())?;
    file.config.exit_when_done = args.exit_when_done;
    crate::check_certificates(&file.config)?;
    if let Some(name) = file.config.name() {
        fl_cli::log::name_client(name.as_str());
    }
    if file.tasks.is_empty() {
        let path = args.config.display();
        let why = format!(
            "{path} has no [tasks.NAME] table: bind a task to a learner and data (configs/client.toml shows how)"
        );
        return Err(Error::Config(why).into());
    }

    let before = file.clone();
    let learners = learners.clone();
    file.config.reload = Some(Reload::new(move || {
        let now = read(&args, learners.as_ref()).map_err(|error| error.to_string())?;
        crate::check_certificates(&now.config).map_err(|error| error.to_string())?;
        Ok(ConfigReload {
            ignored: before.changed_keys(&now),
            config: now.config,
        })
    }));

    // Before there is a second thread.
    file.config.limits.apply_to_process()?;
    if file.names_learners() {
        crate::keep_buffers();
    }
    // The network needs little: one thread. Learners compute on the blocking pool.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(1)
        .thread_stack_size(STACK)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(async {
        let shutdown = fl_cli::signal::stop()?;
        let show = Show::start(bar.clone());
        let tasks = file.learners();
        let socket = pulse::socket(&file.config.state);
        let pulse = Pulse::new();
        let health = pulse.subscribe();
        let client = crate::run(
            file.config,
            tasks,
            move |event| {
                pulse.note(&event);
                show.event(event);
            },
            shutdown,
        );
        Ok::<_, anyhow::Error>(pulse::beside(client, health, &socket, service::watchdog_interval()).await?)
    })?;
    // The end of the run was logged when its event came.
    if matches!(outcome, Outcome::Stopped) {
        tracing::info!("stopped; the next start resumes here");
    }
    Ok(())
}

/// The configuration, with what the command line replaces of it.
fn read(args: &Args, learners: &dyn Learners) -> Result<ClientFile, Error> {
    let mut file = ClientFile::read(&args.config, learners)?;
    if let Some(server) = &args.server {
        check_address(server).map_err(Error::Config)?;
        file.config.server.clone_from(server);
    }
    if let Some(state) = &args.state {
        file.config.state.clone_from(state);
    }
    file.device = args.device.unwrap_or(file.device);
    Ok(file)
}
