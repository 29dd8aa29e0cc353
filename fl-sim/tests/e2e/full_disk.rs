//! Clients whose disks are full once, each at another write of its renewal: each goes on training with the old certificate, tries
//! again, and no round and no bit is lost.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use fl_client::{ClientConfig, FitPlan, IdentityFiles, Learner, Tasks};
use fl_proto::{Authority, Lifetime, is_pair, newest_pair};
use fl_server::{Enrollment, Event, Outcome, RunPlan, Serve};
use fl_sim::ready::{self, Ready};
use fl_sim::workload::TASK;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fixtures::COMPRESSED;
use crate::learners::Before;

/// Writes of a renewal, each the full disk of one client; one client more has none.
const WRITES: u64 = 12;
const CLIENTS: u64 = WRITES + 1;
const ROUNDS: u64 = 2;
/// A round without news for this long is stuck: its deadline is later.
const ROUND_TIMEOUT: Duration = Duration::from_secs(90);
const VALUES: usize = 500;
/// What is left of the certificates when the clients connect: their renewal is due, and tried again after a tenth of it.
const LEFT: time::Duration = time::Duration::seconds(100);

/// Closed until the test opens it.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn pass(&self, plan: &FitPlan) {
        let mut open = self.0.lock().unwrap();
        while !*open && !plan.progress.stopped() {
            open = self.1.wait_timeout(open, Duration::from_millis(10)).unwrap().0;
        }
    }
}

fn name(client: u64) -> String {
    format!("client-{client:02}")
}

/// Waits until each client has connected so many times in all; a client connects again when its certificate was renewed.
fn wait_for(connected: &Receiver<u64>, times: usize) {
    let mut counts = vec![0; CLIENTS as usize];
    while counts.iter().any(|count| *count < times) {
        let client = connected.recv_timeout(crate::fixtures::process::TIMEOUT);
        let client = client.unwrap_or_else(|_| panic!("{counts:?} connected"));
        counts[client as usize] += 1;
    }
}

/// The federation in `dir`: with `fails`, the certificates are to be renewed, and disks are full.
async fn run(dir: &Path, fails: bool) -> Outcome {
    let text = format!(
        "name = \"full\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = 1\nevaluate = false\nmodel = \"init.safetensors\"\n\
         [cohort]\nmin = {CLIENTS}\ntarget = {CLIENTS}\n{COMPRESSED}"
    );
    let layout = ready::layout(VALUES).unwrap();
    fl_client::weights::export(&dir.join("init.safetensors"), &layout, &vec![0.0; VALUES]).unwrap();
    let plan = RunPlan::load(&text, dir).unwrap();
    let now = OffsetDateTime::now_utc();
    let (issued, valid) = match fails {
        true => (now - time::Duration::hours(1), time::Duration::hours(1) + LEFT),
        false => (now, time::Duration::hours(9)),
    };
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
        enrollment: Enrollment::new(dir),
        ..Serve::new(dir.join("data"), plan, root.certificate.clone(), own)
    };
    let server = tokio::spawn(fl_server::serve(listener, options, std::future::pending()));
    let (gate, mut clients) = (Arc::<Gate>::default(), JoinSet::new());
    let (sender, connected): (Sender<u64>, _) = channel();
    for client in 0..CLIENTS {
        let folder = dir.join(name(client));
        std::fs::create_dir(&folder).unwrap();
        let own = authority
            .issue_client(&name(client).parse().unwrap(), issued, valid)
            .unwrap();
        let [root_file, certificate, key] = ["authority.pem", "client.pem", "client.key"].map(|name| folder.join(name));
        std::fs::write(&root_file, &root.certificate).unwrap();
        std::fs::write(&certificate, &own.certificate).unwrap();
        std::fs::write(&key, &own.key).unwrap();
        let mut files = IdentityFiles::new(root_file, certificate, key);
        if fails && client < WRITES {
            files = files.with_fault(&format!("full@{}", client + 1)).unwrap();
        }
        let config = ClientConfig {
            sync: false,
            identity: Some(files),
            ..ClientConfig::new(&address, &root.certificate, own, folder.join("state"))
        };
        let gate = Arc::clone(&gate);
        let make = move || {
            let inner = Ready::new(VALUES, client)?;
            // Trains until the gate is open.
            let before = move |plan: &FitPlan| {
                gate.pass(plan);
                Ok(())
            };
            Ok(Box::new(Before { inner, before }) as Box<dyn Learner>)
        };
        let (tasks, sender) = (Tasks::new().with_lazy(TASK, make), sender.clone());
        let tell = move |event| {
            if matches!(event, fl_client::Event::Connected { .. }) {
                let _ = sender.send(client);
            }
        };
        clients.spawn(Box::pin(fl_client::run(config, tasks, tell, std::future::pending())));
    }
    let times = if fails { 2 } else { 1 };
    tokio::task::spawn_blocking(move || wait_for(&connected, times))
        .await
        .unwrap();
    // All of them train since they first connected.
    gate.open();
    while let Some(event) = timeout(ROUND_TIMEOUT, news.recv())
        .await
        .expect("a round takes too long")
    {
        if let Event::RoundOpened { attempt, .. } = event {
            assert_eq!(attempt, 1, "a round was tried again");
        }
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap().unwrap();
    }
    server.await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_at_any_write_of_a_renewal_costs_no_round_and_no_bit() {
    let (plain, full) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = run(plain.path(), false).await;
    let found = run(full.path(), true).await;
    assert_eq!((found.version, found.model), (ROUNDS, expected.model));
    let now = OffsetDateTime::now_utc();
    for client in 0..CLIENTS {
        let [certificate, key] = ["client.pem", "client.key"].map(|file| full.path().join(name(client)).join(file));
        let (pair, _) = newest_pair(&certificate, &key, |path| std::fs::read_to_string(path)).unwrap();
        let lifetime = Lifetime::of_pem(&pair.certificate).unwrap();
        assert!(
            is_pair(&pair) && !lifetime.is_due(now),
            "{}: {lifetime:?}",
            name(client)
        );
    }
}
