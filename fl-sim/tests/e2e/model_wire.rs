//! The wire in memory beside TLS: equal models and frames, and all bytes within 1 %.

use fl_sim::federation::{self, Setup};
use fl_sim::score::{RoundLine, Score};
use fl_sim::wire;
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
        let (layout, weights) = workload.initial(7).unwrap();
        let Self {
            asked,
            rounds,
            evaluate,
            compression,
            ..
        } = self;
        Setup {
            dir: dir.to_owned(),
            run: format!(
                "name = \"wires\"\ntask = \"{TASK}\"\nrounds = {rounds}\nseed = 7\nevaluate = {evaluate}\n\
                 [cohort]\nmin = {asked}\ntarget = {asked}\n[train]\nbatch_size = 20\n{compression}"
            ),
            layout,
            weights,
            members: workload.members().unwrap(),
            gate: federation::gate(2),
            sync: false,
            live: None,
        }
    }

    /// Runs the federation on both wires and compares them.
    async fn compare(&self) {
        let dir = tempfile::tempdir().unwrap();
        let tls = federation::run(self.setup(&dir.path().join("tls")), |_| {})
            .await
            .unwrap();
        let model = wire::run(self.setup(&dir.path().join("model")), |_| {}).await.unwrap();
        assert_eq!(tls.model, model.model);
        assert_eq!(frames(&tls), frames(&model));
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
