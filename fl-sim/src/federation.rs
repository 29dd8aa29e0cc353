//! A whole federation in one process: a real server, real clients, mutual TLS over loopback sockets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use fl_client::weights::export_with;
use fl_client::{ClientConfig, Tasks};
use fl_compress::Layout;
use fl_compress::weights::LEARNER;
use fl_proto::{Authority, ClientId, Issued, Meter, RunName};
use fl_server::disk::Disk;
use fl_server::ledger::{Ledger, Row};
use fl_server::store::Store;
use fl_server::{Event, Live, RunPlan, Serve};
use time::{Duration, OffsetDateTime};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::score::{RoundLine, Score};

/// Validity of the certificates of a simulated federation.
pub(crate) const VALID: Duration = Duration::days(2);

/// One client of the federation.
#[derive(Debug)]
pub struct Member {
    /// Its name.
    pub name: ClientId,
    /// The client's tasks.
    pub tasks: Tasks,
}

/// A federation to run.
#[derive(Debug)]
pub struct Setup {
    /// Folder of the federation; created if missing.
    pub dir: PathBuf,
    /// The text of `run.toml`, without `model`.
    pub run: String,
    /// The model's layout.
    pub layout: Arc<Layout>,
    /// Its first weights.
    pub weights: Vec<f32>,
    /// The built-in learner of the clients, for the report; empty if they have none.
    pub learner: String,
    /// The clients.
    pub members: Vec<Member>,
    /// As many permits as learners may work at once; federations may share it (see [`gate`]).
    pub gate: Arc<Semaphore>,
    /// The page of the run, if any.
    pub live: Option<Live>,
}

impl Setup {
    /// Two learners work at once, and there is no page.
    pub fn new(dir: &Path, run: String, (layout, weights): (Arc<Layout>, Vec<f32>), members: Vec<Member>) -> Self {
        Self {
            dir: dir.to_owned(),
            run,
            layout,
            weights,
            learner: String::new(),
            members,
            gate: gate(2),
            live: None,
        }
    }
}

/// The gate of at most `at_once` learners at work; of one, if it is 0.
pub fn gate(at_once: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(at_once.max(1)))
}

/// The server's data folder in the folder of the federation.
const DATA: &str = "server";

/// An event of a federation.
#[derive(Debug)]
pub enum News<'a> {
    /// An event of the server.
    Server(&'a Event),
    /// An event of a client.
    Client(&'a ClientId, &'a fl_client::Event),
}

/// Runs the federation until its run is over.
///
/// # Errors
/// If the run fails, or the server or a client gives up.
pub async fn run(setup: Setup, mut news: impl FnMut(News<'_>)) -> anyhow::Result<Score> {
    std::fs::create_dir_all(&setup.dir).with_context(|| format!("make {}", setup.dir.display()))?;
    let plan = plan(&setup.dir, &setup.run, &setup.learner, &setup.layout, &setup.weights)?;
    let name = plan.name.clone();
    let parameters = setup.layout.len() as u64;
    let clients = setup.members.len() as u64;
    let now = OffsetDateTime::now_utc();
    let (authority, root) = Authority::create("simulation", now, VALID)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?.to_string();

    let (events, mut server_news) = mpsc::channel(1024);
    let (stop, stopped) = oneshot::channel::<()>();
    let own = authority.issue_server(now, VALID)?;
    found(&setup.dir, &root.certificate, &own)?;
    let options = Serve {
        events: Some(events),
        exit_when_done: false,
        first: setup.members.len(),
        live: setup.live,
        ..Serve::new(setup.dir.join(DATA), plan, root.certificate.clone(), own)
    };
    let mut server = tokio::spawn(fl_server::serve(listener, options, async {
        let _ = stopped.await;
    }));

    let meter = Arc::new(Meter::default());
    let (tell, mut client_news) = mpsc::unbounded_channel();
    let mut running = JoinSet::new();
    for member in setup.members {
        let own = authority.issue_client(&member.name, now, VALID)?;
        let state = setup.dir.join("clients").join(member.name.as_str());
        let config = ClientConfig {
            sync: false,
            gate: Arc::clone(&setup.gate),
            meter: Arc::clone(&meter),
            ..ClientConfig::new(&address, &root.certificate, own, state)
        };
        let tell = tell.clone();
        let client = fl_client::run(
            config,
            member.tasks,
            move |event| {
                // The receiver is gone only while the federation shuts down.
                let _ = tell.send((member.name.clone(), event));
            },
            std::future::pending(),
        );
        running.spawn(Box::pin(client));
    }
    drop(tell);

    let mut rounds: Vec<RoundLine> = Vec::new();
    while !(running.is_empty() && client_news.is_closed() && client_news.is_empty()) {
        tokio::select! {
            Some(event) = server_news.recv() => {
                note(&mut rounds, &event);
                news(News::Server(&event));
                if let Event::Failed { round, why } = event {
                    bail!("round {round} failed: {why}");
                }
            }
            Some((name, event)) = client_news.recv() => news(News::Client(&name, &event)),
            Some(ended) = running.join_next() => { ended??; }
            ended = &mut server => {
                ended?.context("the server stopped")?;
                bail!("the server stopped before its clients");
            }
            else => break,
        }
    }
    // An error means that the server has already ended; its outcome has the reason.
    let _ = stop.send(());
    while let Some(event) = server_news.recv().await {
        note(&mut rounds, &event);
        news(News::Server(&event));
    }
    let outcome = server.await?.context("the server stopped")?;
    let ledger = ledger(&setup.dir.join(DATA), &name)?.total();
    Ok(Score {
        parameters,
        clients,
        rounds,
        server_socket: outcome.socket,
        client_socket: (meter.written(), meter.read()),
        ledger: (ledger.socket_up, ledger.socket_down),
        model: outcome.model.to_string(),
        times: Vec::new(),
    })
}

/// Writes run.toml and the first model to `dir` and returns the plan. `run`: the text of `run.toml` without `model`.
pub(crate) fn plan(dir: &Path, run: &str, learner: &str, layout: &Layout, weights: &[f32]) -> anyhow::Result<RunPlan> {
    let made = (!learner.is_empty()).then(|| (LEARNER.to_owned(), learner.to_owned()));
    export_with(
        &dir.join("init.safetensors"),
        layout,
        weights,
        &made.into_iter().collect(),
    )?;
    let text = format!("model.weights = \"init.safetensors\"\n{run}");
    let plan = RunPlan::from_toml(&text, dir)?;
    std::fs::write(dir.join("run.toml"), text).context("write run.toml")?;
    Ok(plan)
}

/// Makes `dir` a federation's folder for the commands of `fl-server`: server.toml and the files that it names.
fn found(dir: &Path, authority: &str, own: &Issued) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let config = format!(
        "# A federation in one process, created by fl-sim. All other keys have their defaults.\ndata = \"{DATA}\"\n"
    );
    let files = [
        ("server.toml", config.as_str(), 0o644),
        ("authority.pem", authority, 0o644),
        ("server.pem", &own.certificate, 0o644),
        ("server.key", &own.key, 0o600),
    ];
    for (name, text, mode) in files {
        let path = dir.join(name);
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(mode).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// The ledger of a run, read from disk.
pub(crate) fn ledger(data: &Path, run: &RunName) -> anyhow::Result<Ledger> {
    let store = Store::open(data, Disk::default())?;
    let mut ledger = Ledger::default();
    for row in store.run(run)?.rows() {
        let row = row?;
        ledger.add(Row::from_bytes(&row).context("a row of the ledger is broken")?);
    }
    Ok(ledger)
}

/// Adds an event to the rounds.
pub(crate) fn note(rounds: &mut Vec<RoundLine>, event: &Event) {
    match event {
        Event::RoundClosed(_) => rounds.extend(RoundLine::from_event(event)),
        Event::Evaluated(evaluated) => {
            if let Some(line) = rounds.iter_mut().find(|line| line.round == evaluated.version) {
                line.evaluated(evaluated);
            }
        }
        _ => {}
    }
}
