//! Twenty clients that renew their certificates in every round, while the authority is rotated and one of them is revoked: no round
//! is lost, and the last model has the same bits.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

use fl_client::{ClientConfig, FitPlan, IdentityFiles, Learner, Tasks};
use fl_proto::{Authority, Issued};
use fl_server::disk::Disk;
use fl_server::store::{Store, Table};
use fl_server::{Enrollment, Event, LiveSettings, Outcome, Reload, RunPlan, Serve, ServerFiles};
use fl_sim::ready::{self, Ready};
use fl_sim::workload::TASK;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fixtures::COMPRESSED;
use crate::learners::Before;

const CLIENTS: u64 = 20;
const ROUNDS: u64 = 5;
/// A round without news for this long is stuck: its deadline is later.
const ROUND_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const VALUES: usize = 2_000;
const LIFETIME: Duration = Duration::from_secs(90 * 60);
/// Above two thirds of the lifetime, and in all rounds together below the day by which validity begins early.
const STEP_SECONDS: u64 = 61 * 60;
/// The client that is revoked, and the round in which it trains at that moment.
const REVOKED: u64 = CLIENTS - 1;
const REVOKED_IN: u64 = 3;

/// How far the clock of this test is ahead, in seconds.
static AHEAD: AtomicU64 = AtomicU64::new(0);

fn server_clock() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    now.as_millis() as u64 + 1000 * AHEAD.load(Ordering::Relaxed)
}

fn client_clock() -> OffsetDateTime {
    OffsetDateTime::now_utc() + Duration::from_secs(AHEAD.load(Ordering::Relaxed))
}

/// The client is revoked while it trains, in round [`REVOKED_IN`]. `list`: the server's list of revoked clients.
fn revoke(list: &Path, plan: &FitPlan) -> anyhow::Result<()> {
    if plan.round == REVOKED_IN {
        std::fs::write(list, name(REVOKED))?;
        // Trains until its client has ended.
        let (_sender, never) = channel::<()>();
        while !plan.progress.stopped() {
            let _ = never.recv_timeout(Duration::from_millis(10));
        }
    }
    Ok(())
}

fn name(client: u64) -> String {
    format!("client-{client:02}")
}

/// Runs the federation in `dir`; with `renews`, the clock moves past the time of renewal in every round.
async fn run(dir: &Path, renews: bool) -> Outcome {
    let text = format!(
        "name = \"renewal\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = 1\nevaluate = false\nmodel = \"init.safetensors\"\n\
         [cohort]\nmin = {REVOKED}\ntarget = {CLIENTS}\n{COMPRESSED}"
    );
    fl_client::weights::export(
        &dir.join("init.safetensors"),
        &ready::layout(VALUES).unwrap(),
        &vec![0.0; VALUES],
    )
    .unwrap();
    let plan = RunPlan::load(&text, dir).unwrap();
    let (now, valid) = (OffsetDateTime::now_utc(), time::Duration::try_from(LIFETIME).unwrap());
    let (authority, root) = Authority::create("fed", now, time::Duration::days(9)).unwrap();
    std::fs::write(dir.join("authority.pem"), &root.certificate).unwrap();
    std::fs::write(dir.join("authority.key"), &root.key).unwrap();
    let own = authority.issue_server(now, time::Duration::days(9)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (events, mut news) = tokio::sync::mpsc::channel(1024);
    let options = Serve {
        events: Some(events),
        first: CLIENTS as usize,
        clock: server_clock,
        enrollment: Enrollment {
            lifetime: LIFETIME,
            ..Enrollment::new(dir)
        },
        ..Serve::new(dir.join("data"), plan, root.certificate.clone(), own.clone())
    };
    let options = Serve {
        reload: Some(reload(dir, &own, options.live_settings())),
        ..options
    };
    let server = tokio::spawn(fl_server::serve(listener, options, std::future::pending()));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let name = name(client);
        let folder = dir.join(&name);
        std::fs::create_dir(&folder).unwrap();
        let own = authority.issue_client(&name.parse().unwrap(), now, valid).unwrap();
        let [root_file, certificate, key] = ["authority.pem", "client.pem", "client.key"].map(|name| folder.join(name));
        std::fs::write(&root_file, &root.certificate).unwrap();
        std::fs::write(&certificate, &own.certificate).unwrap();
        std::fs::write(&key, &own.key).unwrap();
        let config = ClientConfig {
            sync: false,
            clock: client_clock,
            identity: Some(IdentityFiles::new(root_file, certificate, key)),
            ..ClientConfig::new(&address, &root.certificate, own, folder.join("state"))
        };
        let list = dir.join("data/revoked");
        let make = move || {
            let inner = Ready::new(VALUES, client)?;
            Ok(match client {
                REVOKED => {
                    let before = move |plan: &FitPlan| revoke(&list, plan);
                    Box::new(Before { inner, before }) as Box<dyn Learner>
                }
                _ => Box::new(inner),
            })
        };
        let tasks = Tasks::new().with_lazy(TASK, make);
        let running = fl_client::run(config, tasks, |_| {}, std::future::pending());
        clients.spawn(async move { (client, Box::pin(running).await) });
    }
    let new = authority.successor("fed", now, time::Duration::days(9)).unwrap();
    // The certificates at the clock's last step.
    let mut before = BTreeMap::new();
    while let Some(event) = timeout(ROUND_TIMEOUT, news.recv())
        .await
        .expect("a round takes too long")
    {
        match event {
            // Not behind the last round: a server that ends does not wait for a client that is away to renew.
            Event::RoundClosed(summary) if renews && summary.round < ROUNDS => {
                rotate(dir, &root, &new, summary.round);
                // Two steps are more than a lifetime: each client renews between them.
                let live = if summary.round < REVOKED_IN { CLIENTS } else { REVOKED };
                let own = |client| std::fs::read_to_string(dir.join(name(client)).join("client.pem")).unwrap();
                let renewed = async {
                    while (0..live).any(|client| before.get(&client) == Some(&own(client))) {
                        tokio::time::sleep(POLL_INTERVAL).await;
                    }
                };
                timeout(ROUND_TIMEOUT, renewed).await.expect("a renewal takes too long");
                before = (0..live).map(|client| (client, own(client))).collect();
                AHEAD.fetch_add(STEP_SECONDS, Ordering::Relaxed);
            }
            Event::RoundOpened { attempt, .. } => assert_eq!(attempt, 1, "a round was tried again"),
            _ => {}
        }
    }
    while let Some(ended) = clients.join_next().await {
        let (client, outcome) = ended.unwrap();
        match client {
            REVOKED => assert!(outcome.unwrap_err().to_string().contains("revoked")),
            _ => drop(outcome.unwrap()),
        }
    }
    server.await.unwrap().unwrap()
}

/// Reads the authorities of `dir` again; the server's certificate stays.
fn reload(dir: &Path, own: &Issued, settings: LiveSettings) -> Reload {
    let (authority, own) = (dir.join("authority.pem"), own.clone());
    Reload::new(move || {
        Ok(ServerFiles {
            authority: std::fs::read_to_string(&authority).map_err(|error| error.to_string())?,
            own: own.clone(),
            page: None,
            settings: settings.clone(),
            changed: Vec::new(),
            ignored: Vec::new(),
        })
    })
}

/// The steps of `fl-server authority rotate`, each after a round.
fn rotate(dir: &Path, old: &Issued, new: &Issued, round: u64) {
    match round {
        1 => {
            std::fs::write(dir.join("authority.pem"), old.certificate.clone() + &new.certificate).unwrap();
            let own = std::process::id().to_string();
            let sent = std::process::Command::new("kill").args(["-HUP", &own]).status();
            assert!(sent.unwrap().success());
        }
        2 => std::fs::write(dir.join("authority.key"), &new.key).unwrap(),
        _ => {}
    }
}

/// Certificates that each client has used.
fn used(dir: &Path) -> BTreeMap<String, usize> {
    let store = Store::open(&dir.join("data"), Disk::default()).unwrap();
    let count = |entry: Result<(String, Vec<u8>), _>| {
        let (name, bytes) = entry.unwrap();
        let record: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let certificates = record["certificates"].as_array().unwrap();
        (name, certificates.iter().filter(|one| one["used"].is_u64()).count())
    };
    store.entries(Table::Clients).map(count).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_renew_in_every_round_lose_no_round_and_no_bit_while_one_is_revoked() {
    let (plain, renewed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = run(plain.path(), false).await;
    assert_eq!(
        used(plain.path()).into_values().collect::<Vec<_>>(),
        [1; CLIENTS as usize]
    );
    let found = run(renewed.path(), true).await;
    assert_eq!((found.version, found.model), (ROUNDS, expected.model));
    let mut used = used(renewed.path());
    assert_eq!(used.len() as u64, CLIENTS);
    assert!(
        used.remove(&name(REVOKED)).is_some_and(|count| count > 1),
        "the revoked client has renewed"
    );
    // A client that sees the clock's next step late renews once for two of them.
    assert!(used.values().all(|&count| count as u64 >= ROUNDS - 2), "{used:?}");
}
