//! A federation of one client for tests: certificates, a scripted server on a real socket, and a learner in closed
//! form.
#![allow(dead_code, unused_imports, missing_docs, unreachable_pub, clippy::unwrap_used)]

mod certificates;
mod learner;
mod server;
mod world;

pub use certificates::Certificates;
pub use learner::{Arithmetic, delta_of};
pub use server::TestServer;
pub use world::{Call, Fault, Tamper, World};

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fl_client::{Backoff, ClientConfig, Error, Event, Outcome, Tasks};
use fl_compress::{Ack, Encoder, Frame, Layout, Spec};
use tokio::task::JoinHandle;

pub const RUN: &str = "test-run";
pub const TASK: &str = "arithmetic";

pub fn layout() -> Arc<Layout> {
    Arc::new(Layout::new([("a.weight", vec![8, 5]), ("b.bias", vec![3])]).unwrap())
}

/// Sends a quarter of the values exactly: sums of dyadic numbers are exact, so tests compare with `==`.
pub fn spec() -> Spec {
    serde_json::from_str(r#"{"memory":"error-feedback","default":{"reduce":{"top_k":0.25}}}"#).unwrap()
}

pub fn config(server: &TestServer, state: &Path) -> ClientConfig {
    let certificates = &server.certificates;
    let mut config = ClientConfig::new(
        server.address(),
        &certificates.authority.certificate,
        certificates.client.clone(),
        state,
    );
    config.backoff = Backoff {
        first: Duration::from_millis(1),
        max: Duration::from_millis(20),
    };
    config.sync = false;
    config
}

pub type Seen = Arc<Mutex<Vec<Event>>>;

/// A running client.
pub struct Client {
    pub task: JoinHandle<Result<Outcome, Error>>,
    pub seen: Seen,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Client {
    pub fn start(config: ClientConfig, learner: Arithmetic) -> Self {
        let seen = Seen::default();
        let events = Arc::clone(&seen);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let tasks = Tasks::new().with(TASK, Box::new(learner));
        let task = tokio::spawn(fl_client::run(
            config,
            tasks,
            move |event| events.lock().unwrap().push(event),
            async move {
                if stopped.await.is_err() {
                    std::future::pending::<()>().await;
                }
            },
        ));
        Self {
            task,
            seen,
            stop: Some(stop),
        }
    }

    pub async fn finish(self) -> Result<Outcome, Error> {
        self.task.await.unwrap()
    }

    /// Requests a graceful shutdown and waits for it.
    pub async fn stop(mut self) -> Outcome {
        self.stop.take().unwrap().send(()).unwrap();
        self.task.await.unwrap().unwrap()
    }
}

/// The residual in the state folder, after the pending frame is settled by `verdict`.
pub fn residual(state: &Path, verdict: Ack) -> Vec<f32> {
    let bytes = std::fs::read(state.join("runs").join(RUN).join("memory")).unwrap();
    let head = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
    let (mut encoder, pending) = Encoder::load(layout(), &spec(), &bytes[head..]).unwrap();
    encoder.settle(&pending.unwrap(), verdict).unwrap();
    encoder.residual().unwrap().to_vec()
}

/// Sum of the accepted updates.
pub fn accepted(world: &World) -> Vec<f32> {
    let layout = layout();
    let mut sum = vec![0.0; layout.len()];
    for (_, _, frame) in &world.accepted {
        Frame::parse(frame, &layout).unwrap().accumulate(1.0, &mut sum).unwrap();
    }
    sum
}

/// Sum of the deltas of the given rounds.
pub fn deltas(rounds: impl IntoIterator<Item = u64>) -> Vec<f32> {
    let len = layout().len();
    rounds.into_iter().fold(vec![0.0; len], |sum, round| {
        sum.iter().zip(delta_of(round, len)).map(|(a, b)| a + b).collect()
    })
}

pub fn sum(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// Copies a state folder, like a crash at this moment.
pub fn copy_state(from: &Path, to: &Path) {
    for name in [
        "current",
        "runs/test-run/memory",
        "runs/test-run/verdict",
        "runs/test-run/model",
        "runs/test-run/step",
        "runs/test-run/optimizer",
        "runs/test-run/optimizer-next",
        "runs/test-run/model-updates",
    ] {
        if from.join(name).is_dir() {
            std::fs::create_dir_all(to.join(name)).unwrap();
            for file in std::fs::read_dir(from.join(name)).unwrap() {
                let file = file.unwrap().path();
                std::fs::copy(&file, to.join(name).join(file.file_name().unwrap())).unwrap();
            }
            continue;
        }
        if from.join(name).exists() {
            std::fs::create_dir_all(to.join(name).parent().unwrap()).unwrap();
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

/// Checks that sent values plus residual equal the sum of the deltas of these rounds.
pub fn is_all_of(world: &World, state: &Path, rounds: std::ops::RangeInclusive<u64>) {
    assert_eq!(sum(&accepted(world), &residual(state, Ack::Accepted)), deltas(rounds));
}

/// The rounds whose updates were accepted.
pub fn rounds_of(world: &World) -> Vec<u64> {
    world.accepted.iter().map(|(round, ..)| *round).collect()
}

/// Waits for a message from another thread.
pub async fn heard(messages: std::sync::mpsc::Receiver<()>) {
    let heard = tokio::task::spawn_blocking(move || messages.recv());
    heard.await.unwrap().unwrap();
}
