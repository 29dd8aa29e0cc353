//! Clients whose devices do not always allow them to train, against a real server: over TLS, with made-up files of the kernel.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fl_client::{ClientFile, Error, Event, Fit, FitPlan, Outcome, Tasks, TrainersOnly, When, weights};
use fl_compress::Layout;
use tokio::task::JoinHandle;

use crate::fixtures::fed::Fed;
use crate::fixtures::process::{Line, Process, done, wait_for};
use crate::learners::{Practice, plain};

const TASK: &str = "steps";
const UNPLUGGED: &str = "laptop is paused: on battery: BAT0";

/// Trains by adding a constant.
struct Steps {
    /// The training takes steps until this is set.
    go: Arc<AtomicBool>,
}

impl Practice for Steps {
    fn fit(&mut self, weights: &mut [f32], plan: &FitPlan) -> anyhow::Result<Fit> {
        while !self.go.load(Ordering::SeqCst) {
            anyhow::ensure!(!plan.progress.stopped(), "the round is over");
            std::thread::yield_now();
        }
        weights.iter_mut().for_each(|weight| *weight += 0.25);
        Ok(Fit::new(10, 0.5))
    }
}

fn layout() -> Arc<Layout> {
    Arc::new(Layout::new([("w", vec![4])]).unwrap())
}

/// A client in this process.
struct Client {
    events: Arc<Mutex<Vec<Event>>>,
    go: Arc<AtomicBool>,
    run: JoinHandle<Result<Outcome, Error>>,
}

impl Client {
    fn start(fed: &Fed, name: &str, when: When) -> Self {
        let mut config = ClientFile::read(&fed.path(name).join("client.toml"), &TrainersOnly)
            .unwrap()
            .config;
        (config.exit_when_done, config.when) = (true, when);
        let (events, go) = (Arc::default(), Arc::new(AtomicBool::new(true)));
        let seen: Arc<Mutex<Vec<Event>>> = Arc::clone(&events);
        let steps = Steps { go: Arc::clone(&go) };
        let tasks = Tasks::new().with(TASK, plain(layout(), steps));
        let tell = move |event| seen.lock().unwrap().push(event);
        let run = tokio::spawn(Box::pin(fl_client::run(config, tasks, tell, std::future::pending())));
        Self { events, go, run }
    }

    fn trainings(&self) -> usize {
        let events = self.events.lock().unwrap();
        events
            .iter()
            .filter(|event| matches!(event, Event::Training { .. }))
            .count()
    }
}

/// The power supplies of a laptop, in a folder that takes the place of `/`.
struct Laptop(tempfile::TempDir);

impl Laptop {
    fn new(on_mains: bool) -> Self {
        let laptop = Self(tempfile::tempdir().unwrap());
        for (file, text) in [
            ("AC/type", "Mains"),
            ("BAT0/type", "Battery"),
            ("BAT0/status", "Discharging"),
        ] {
            laptop.write(file, text);
        }
        laptop.plug(on_mains);
        laptop
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.path().join("sys/class/power_supply").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path.with_extension("new"), text).unwrap();
        std::fs::rename(path.with_extension("new"), path).unwrap();
    }

    fn plug(&self, on_mains: bool) {
        self.write("AC/online", if on_mains { "1\n" } else { "0\n" });
    }

    fn when(&self, max_pause: u64) -> When {
        let mut when = When {
            on_mains: true,
            every: Duration::from_millis(1),
            settle: Duration::ZERO,
            max_pause: Duration::from_secs(max_pause),
            ..When::default()
        };
        when.surroundings.root = self.0.path().to_owned();
        when
    }
}

struct Server {
    process: Process,
    lines: Receiver<Line>,
}

fn serve(fed: &Fed, clients: &[&str], cohort: &str, rounds: u64) -> Server {
    weights::export(&fed.path("init.safetensors"), &layout(), &[0.0; 4]).unwrap();
    let run = format!(
        "name = \"r\"\ntask = \"{TASK}\"\nmodel = \"init.safetensors\"\nrounds = {rounds}\nevaluate = false\n[cohort]\n{cohort}\n"
    );
    std::fs::write(fed.path("run.toml"), run).unwrap();
    clients.iter().for_each(|name| fed.issue(name, ""));
    let (sender, lines) = channel();
    let process = Process::start(fed.serve(&["--exit-when-done"]), 0, 1, &sender);
    wait_for(&lines, 0, "serving `r` on");
    Server { process, lines }
}

/// Asks for the status until it contains `part`.
async fn status_with(fed: &Path, part: &'static str, shown: bool) {
    let fed = fed.to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        let fed = fed.to_str().unwrap();
        while done(crate::fixtures::process::sim(["server", "status", fed])).contains(part) != shown {}
    });
    asked.await.unwrap();
}

async fn ends(client: Client, round: u64) {
    assert_eq!(client.run.await.unwrap(), Ok(Outcome::Done { round }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_laptop_on_battery_is_not_chosen_into_a_cohort_of_ten() {
    let fed = Fed::found();
    let others = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];
    let names = [&others[..], &["laptop"]].concat();
    let mut server = serve(&fed, &names, "min = 5\ntarget = 10\ngrace = \"1s\"", 3);
    let power = Laptop::new(false);
    let laptop = Client::start(&fed, "laptop", power.when(60));
    status_with(&fed.path("fed"), UNPLUGGED, true).await;
    let running: Vec<_> = others
        .iter()
        .map(|name| Client::start(&fed, name, When::default()))
        .collect();
    for client in running {
        let events = Arc::clone(&client.events);
        ends(client, 3).await;
        let trained = events
            .lock()
            .unwrap()
            .iter()
            .filter(|event| matches!(event, Event::Sent { .. }))
            .count();
        assert_eq!(trained, 3);
    }
    assert_eq!(laptop.trainings(), 0);
    let events = Arc::clone(&laptop.events);
    ends(laptop, 3).await;
    let selected = |event: &Event| matches!(event, Event::Round { selected: true, .. } | Event::LeftRound { .. });
    assert!(!events.lock().unwrap().iter().any(selected));
    assert!(server.process.end().success());
    drop(server.lines);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_laptop_that_is_unplugged_while_it_trains_resumes_in_the_same_round() {
    let fed = Fed::found();
    let mut server = serve(&fed, &["desk", "laptop"], "min = 2\ntarget = 2", 1);
    let power = Laptop::new(true);
    let laptop = Client::start(&fed, "laptop", power.when(600));
    laptop.go.store(false, Ordering::SeqCst);
    let desk = Client::start(&fed, "desk", When::default());
    trains(&laptop).await;
    power.plug(false);
    status_with(&fed.path("fed"), UNPLUGGED, true).await;
    laptop.go.store(true, Ordering::SeqCst);
    power.plug(true);
    ends(desk, 1).await;
    assert_eq!(laptop.trainings(), 1);
    ends(laptop, 1).await;
    assert!(server.process.end().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_laptop_that_stays_unplugged_is_replaced_before_the_deadline() {
    let fed = Fed::found();
    let mut server = serve(&fed, &["desk", "laptop", "spare"], "min = 2\ntarget = 2\nsize = 2", 1);
    let power = Laptop::new(true);
    let laptop = Client::start(&fed, "laptop", power.when(0));
    laptop.go.store(false, Ordering::SeqCst);
    let desk = Client::start(&fed, "desk", When::default());
    trains(&laptop).await;
    let spare = Client::start(&fed, "spare", When::default());
    power.plug(false);
    wait_for(&server.lines, 0, "asks spare in place of laptop");
    ends(desk, 1).await;
    assert_eq!(spare.trainings(), 1);
    ends(spare, 1).await;
    ends(laptop, 1).await;
    assert!(server.process.end().success());
}

/// Waits until the client trains.
async fn trains(client: &Client) {
    let events = Arc::clone(&client.events);
    let began = move || {
        let is_training = |event: &Event| matches!(event, Event::Training { .. });
        while !events.lock().unwrap().iter().any(is_training) {
            std::thread::yield_now();
        }
    };
    tokio::task::spawn_blocking(began).await.unwrap();
}
