//! The wire in memory beside TLS: equal models and frames, and all bytes within 1 %.

use fl_sim::federation::{self, Setup};
use fl_sim::score::{RoundLine, Score};
use fl_sim::wire::{self, Engine};
use fl_sim::workload::{TASK, Workload};

use crate::fixtures::EXACT;

/// A federation of perceptrons on built-in digits.
struct Case {
    clients: u32,
    /// Clients of a round.
    asked: u32,
    rounds: u64,
    evaluate: bool,
    compression: &'static str,
}

/// Frames of about 8 KB, which travel on the stream.
const SMALL: &str = "[compression.uplink]\nbudget = \"2 bits\"\n[compression.downlink]\nbudget = \"2 bits\"\n";

/// Frames of about 32 KB, which travel by calls of one chunk.
const LARGER: &str = "[compression.uplink]\ndefault = { quantize = { uniform = 8 }, code = \"pack\" }\n\
    [compression.downlink]\ndefault = { quantize = { uniform = 8 }, code = \"pack\" }\n";

impl Case {
    fn setup(&self, dir: &std::path::Path) -> Setup {
        let workload = format!(
            "learner = {{ name = \"mlp\", hidden = [40] }}\nclients = {}\ndata = {{ builtin = {{ train = 40, test = 20 }} }}",
            self.clients
        );
        let workload: Workload = toml::from_str(&workload).unwrap();
        let Self {
            asked,
            rounds,
            evaluate,
            compression,
            ..
        } = self;
        let run = format!(
            "name = \"wires\"\ntask = \"{TASK}\"\nrounds = {rounds}\nseed = 7\nevaluate = {evaluate}\n\
             [train]\nbatch_size = 20\n[cohort]\nmin = {asked}\ntarget = {asked}\n{compression}"
        );
        Setup::new(dir, run, workload.initial(7).unwrap(), workload.members().unwrap())
    }

    /// Runs the federation on both wires and compares them.
    async fn compare(&self) {
        let dir = tempfile::tempdir().unwrap();
        let tls = federation::run(self.setup(&dir.path().join("tls")), |_| {})
            .await
            .unwrap();
        let model = wire::run(self.setup(&dir.path().join("model")), &Engine::default(), |_| {})
            .await
            .unwrap();
        assert_eq!(tls.model, model.model);
        let (mut there, mut here) = (frames(&tls), frames(&model));
        if self.asked < self.clients {
            // In memory, every client evaluates the last model.
            let last =
                [&mut there, &mut here].map(|rounds| rounds.last_mut().map(|(_, quality)| std::mem::take(quality)));
            assert!(last[1].is_some_and(|[_, loss]| loss.is_some()));
        }
        assert_eq!(there, here);
        for (tls, model) in tls.rounds.iter().zip(&model.rounds) {
            let beside = |up: u64, frames: u64| up as i64 - frames as i64;
            eprintln!(
                "round {}: up {} and {}, down {} and {} beside frames",
                tls.round,
                beside(tls.up, tls.frames_up),
                beside(model.up, model.frames_up),
                beside(tls.down, tls.frames_down),
                beside(model.down, model.frames_down),
            );
        }
        let (there, here) = (tls.server_socket, model.server_socket);
        eprintln!("up {} and {}, down {} and {}", there.0, here.0, there.1, here.1);
        let off = |there: u64, here: u64| (here as f64 / there as f64 - 1.0).abs();
        assert!(
            off(tls.sent(), model.sent()) < 0.01,
            "{} and {}",
            tls.sent(),
            model.sent()
        );
        assert!(off(there.0, here.0) < 0.02 && off(there.1, here.1) < 0.02);
        assert!(model.balanced());
    }
}

/// What must be equal to the bit.
fn frames(score: &Score) -> Vec<([u64; 4], [Option<f64>; 2])> {
    let line = |round: &RoundLine| {
        let counts = [round.round, round.updates, round.frames_up, round.frames_down];
        (counts, [round.accuracy, round.test_loss])
    };
    score.rounds.iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_frames_of_every_client() {
    let case = Case {
        clients: 4,
        asked: 4,
        rounds: 4,
        evaluate: true,
        compression: SMALL,
    };
    case.compare().await;
}

/// Clients that are away fetch the frames that round, or a short snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_that_are_rounded() {
    let case = Case {
        clients: 6,
        asked: 2,
        rounds: 7,
        evaluate: true,
        compression: "[model.snapshot]\nbits = 6\nevery = 2\n\
            [compression.uplink]\nbudget = \"2 bits\"\n[compression.downlink]\nbudget = \"2 bits\"\n",
    };
    case.compare().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_evaluation() {
    let case = Case {
        clients: 3,
        asked: 3,
        rounds: 4,
        evaluate: false,
        compression: SMALL,
    };
    case.compare().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_of_the_clients_in_a_round() {
    let case = Case {
        clients: 6,
        asked: 2,
        rounds: 7,
        evaluate: true,
        compression: SMALL,
    };
    case.compare().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_travel_by_calls() {
    for compression in [LARGER, EXACT] {
        let case = Case {
            clients: 3,
            asked: 2,
            rounds: 3,
            evaluate: true,
            compression,
        };
        case.compare().await;
    }
}

async fn on_clock(case: &Case, engine: &str) -> Score {
    let engine: Engine = toml::from_str(&format!("wire = \"model\"\n{engine}")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    wire::run(case.setup(dir.path()), &engine, |_| {}).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_takes_as_long_as_its_slowest_client_and_no_waiting() {
    let case = Case {
        clients: 3,
        asked: 3,
        rounds: 2,
        evaluate: false,
        compression: SMALL,
    };
    let links =
        "links = [{ up = \"1Gbit/s\", clients = 2 }, { up = \"8kbit/s\", latency = \"50ms\" }]\ntrain_seconds = 100.0";
    let slow = on_clock(&case, links).await;
    // A frame of about 8 KB at 1 KB a second, and two ways or more.
    for round in &slow.rounds {
        let least = 100.0 + round.frames_up as f64 / 3.0 / 1_000.0 + 0.1;
        assert!(
            (least * 0.98..least + 4.0).contains(&round.seconds),
            "{}: {least}",
            round.seconds
        );
    }
    assert_eq!(slow, on_clock(&case, links).await, "the same seconds and bytes again");
    let free = on_clock(&case, "").await;
    assert!(free.rounds.iter().all(|round| round.seconds == 0.0));
    assert_eq!((free.model, free.server_socket), (slow.model, slow.server_socket));
    assert_eq!(free.times.len(), 9);
    assert!(free.times[0].seconds > free.times[3].seconds && free.times[2].seconds > free.times[0].seconds);
    assert!((slow.times[0].seconds - free.times[0].seconds - 200.0).abs() < 1e-6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_on_a_slow_link_comes_too_late_for_a_round_that_does_not_wait() {
    let case = Case {
        clients: 3,
        asked: 2,
        rounds: 3,
        evaluate: true,
        compression: "size = 3\ngrace = \"1s\"\n[compression]\nuplink = { budget = \"2 bits\" }",
    };
    let links = "links = [{ clients = 2 }, { up = \"8kbit/s\" }]";
    let score = on_clock(&case, links).await;
    for round in &score.rounds {
        assert_eq!((round.updates, round.seconds), (2, 1.0));
    }
    assert_eq!(score, on_clock(&case, links).await);
}
