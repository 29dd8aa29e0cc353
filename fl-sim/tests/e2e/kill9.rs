//! Real processes under SIGKILL: one server and three clients, compressed both ways, are killed repeatedly at seeded
//! moments and restarted. The model equals that of an undisturbed run, and every update counts once.
//!
//! A moment is not a time, but the n-th line that the victim logs after a round has closed, and every HTTP/2 frame is a
//! line. So kills occur while clients connect, fetch, train, upload, and wait for a lost receipt.

use std::sync::mpsc::{Receiver, Sender, channel};

use fl_learn::data::{Builtin, DataSource};
use fl_sim::workload::{TASK, Workload};

use crate::fixtures::fed::Fed;
use crate::fixtures::process::{Line, Process, TIMEOUT};
use crate::fixtures::{COMPRESSED, train};

const CLIENTS: usize = 3;
const KILLS: usize = 10;
/// Minimum number of rounds between two kills, so that a restarted client has joined.
const APART: usize = 2;
/// Enough rounds for the last kill to occur before the run ends, even if each kill is a round late: a client logs more
/// than [`REACH`] lines in two rounds.
const ROUNDS: usize = KILLS * (APART + 1);
const SEED: u64 = 11;
const DATA: Builtin = Builtin {
    seed: SEED,
    client: 0,
    train: 60,
    test: 20,
};
/// Logs every HTTP/2 frame as a line.
const LOG: &str = "info,h2=debug";
/// A kill occurs at most this many lines after its round began.
const REACH: u64 = 40;

/// SplitMix64, for moments and victims.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }
}

/// One kill: after `round` closed rounds and `lines` more lines of `victim`.
#[derive(Debug)]
struct Kill {
    victim: usize,
    round: usize,
    lines: u64,
}

/// Index 0 is the server; the clients follow.
const SERVER: usize = 0;

fn name(client: usize) -> String {
    format!("client-{:02}", client - 1)
}

/// Non-default optimizer and aggregator, and an uplink that sends every coordinate.
const METHODS: &str = r#"
[optimizer]
name = "fedadam"
[aggregator]
name = "trimmed-mean"
trim = 0.34
[compression.uplink]
memory  = "error-feedback"
default = { quantize = { uniform = 8 }, code = "rans" }
"#;

/// `more`: further keys of `[train]`, then the tables of compression and, if not the defaults, of optimizer and aggregator.
fn run_toml(more: &str) -> String {
    format!(
        "name = \"kill9\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = {SEED}\n\
         [cohort]\nmin = {CLIENTS}\ntarget = {CLIENTS}\n\
         [train]\nepochs = 1\nbatch_size = 20\nlearning_rate = 0.1\n{more}"
    )
}

/// The processes and their output.
struct Stage {
    fed: Fed,
    lines: Receiver<Line>,
    sender: Sender<Line>,
    /// `None` once a client has finished.
    running: Vec<Option<Process>>,
    /// Number of starts of each process, and closed output streams of the current one.
    lives: Vec<(u32, u32)>,
}

impl Stage {
    fn set(more: &str) -> Self {
        let fed = Fed::found();
        fed.plan(&run_toml(more), "mlp", SEED);
        for client in 1..=CLIENTS {
            let data = format!(
                "{{ builtin = {{ seed = {SEED}, client = {}, train = 60, test = 20 }} }}",
                client - 1
            );
            fed.issue(
                &name(client),
                &format!("[tasks.{TASK}]\nlearner = \"mlp\"\ndata = {data}"),
            );
        }
        let (sender, lines) = channel();
        let mut stage = Self {
            fed,
            lines,
            sender,
            running: Vec::new(),
            lives: vec![(0, 0); CLIENTS + 1],
        };
        for who in SERVER..=CLIENTS {
            let process = stage.start(who);
            stage.running.push(Some(process));
        }
        stage
    }

    fn start(&mut self, who: usize) -> Process {
        let mut command = if who == SERVER {
            self.fed.serve(&[])
        } else {
            self.fed.client(&name(who))
        };
        command.env("RUST_LOG", LOG);
        self.lives[who] = (self.lives[who].0 + 1, 0);
        Process::start(command, who, self.lives[who].0, &self.sender)
    }

    /// Runs the federation until every client has finished, with kills. Returns the number of kills.
    fn play(&mut self, kills: &[Kill]) -> usize {
        let (mut closed, mut lines, mut killed) = (0, 0, 0);
        while self.running.iter().skip(1).any(Option::is_some) {
            let line = self.lines.recv_timeout(TIMEOUT).expect("something happens");
            if line.life != self.lives[line.who].0 {
                continue;
            }
            let Some(text) = line.text else {
                self.ended(line.who);
                continue;
            };
            assert!(!text.contains("panicked"), "{text}");
            assert!(!text.contains("the model differs from the server's"), "{text}");
            if line.who == SERVER {
                closed = closed.max(closed_round(&text).unwrap_or(0));
            }
            let Some(next) = kills
                .get(killed)
                .filter(|next| line.who == next.victim && closed >= next.round)
            else {
                continue;
            };
            lines += 1;
            if lines > next.lines {
                self.running[next.victim]
                    .take()
                    .expect("it has just said something")
                    .kill();
                println!("killed {} in round {}, after: {text}", next.victim, closed + 1);
                let again = self.start(next.victim);
                self.running[next.victim] = Some(again);
                (lines, killed) = (0, killed + 1);
            }
        }
        killed
    }

    /// Handles the end of an output stream of `who`. After the second stream, the process has ended, which only clients
    /// may do.
    fn ended(&mut self, who: usize) {
        self.lives[who].1 += 1;
        if self.lives[who].1 == 2 {
            assert_ne!(who, SERVER, "the server ended by itself");
            let mut process = self.running[who].take().expect("it has just ended");
            assert!(process.end().success(), "{} failed", name(who));
        }
    }

    fn stop(&mut self) {
        let mut server = self.running[SERVER].take().expect("it runs until now");
        server.terminate();
        assert!(server.end().success());
    }
}

/// Parses the closed round from a line of the server: `round    3  3 updates ..`.
fn closed_round(line: &str) -> Option<usize> {
    let mut words = line.strip_prefix("round ")?.split_whitespace();
    let round = words.next()?.parse().ok()?;
    (words.nth(1)? == "updates").then_some(round)
}

/// Kills the server and a random client alternately.
fn kills(seed: u64) -> Vec<Kill> {
    let mut dice = Dice(seed);
    let mut kill = |turn: usize| Kill {
        victim: if turn.is_multiple_of(2) {
            SERVER
        } else {
            1 + dice.below(CLIENTS as u64) as usize
        },
        round: turn * APART,
        lines: dice.below(REACH),
    };
    (0..KILLS).map(&mut kill).collect()
}

fn survives(seed: u64, more: &str) {
    let workload = Workload {
        learner: "mlp".parse().unwrap(),
        clients: CLIENTS as u32,
        data: DataSource::new("builtin", &DATA).unwrap(),
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let undisturbed = runtime.block_on(train(&workload, SEED, &run_toml(more), 1));
    let mut stage = Stage::set(more);
    let kills = kills(seed);
    let killed = stage.play(&kills);
    stage.stop();
    assert_eq!(killed, KILLS, "the run was over too soon for {kills:?}");

    let report = stage.fed.report();
    assert_eq!((report.run.state.as_str(), report.run.version), ("done", ROUNDS as u64));
    assert_eq!(report.run.model, undisturbed.model, "{kills:?}");
    assert!(report.balanced, "{:?}", report.totals);
    assert_eq!(report.rounds.len(), ROUNDS);
    for round in &report.rounds {
        assert_eq!(
            (round.updates, round.asked, round.attempts),
            (CLIENTS as u64, CLIENTS as u64, 1),
            "round {}",
            round.round
        );
    }
    for client in report.clients.iter().filter(|client| client.client != "-") {
        assert_eq!(client.updates, ROUNDS as u64, "{}", client.client);
        assert_eq!(
            client.examples,
            (ROUNDS as u64) * u64::from(DATA.train),
            "{}",
            client.client
        );
    }
}

#[test]
fn killed_at_ten_moments_the_federation_makes_the_model_it_makes_undisturbed() {
    survives(1, COMPRESSED);
}

/// The moments of AdamW outlive every kill. With this eps, a learning rate of 0.1 is moderate.
#[test]
fn killed_at_ten_moments_it_does_too_with_kept_moments() {
    survives(
        3,
        &format!("optimizer = {{ adamw = {{ eps = 1.0 }} }}\nstate = \"kept\"\n{COMPRESSED}"),
    );
}

/// Every second version is rounded, on the server and on every client: each kill follows such a version.
#[test]
fn killed_at_ten_moments_it_does_too_with_rounded_versions() {
    survives(4, &format!("[model.snapshot]\nbits = 8\nevery = 2\n{COMPRESSED}"));
}

/// Residual and predictor, of the default codec, which also keeps factors.
#[test]
fn killed_at_ten_moments_it_does_too_with_cafe_and_error_feedback() {
    survives(5, "[compression.uplink]\nmemory = [\"cafe\", \"error-feedback\"]\n");
}

/// Velocity and residual.
#[test]
fn killed_at_ten_moments_it_does_too_with_dgc() {
    survives(
        6,
        "[compression.uplink]\nmemory = { dgc = { momentum = 0.9, clip = 1.0 } }\n",
    );
}

#[test]
fn killed_at_ten_other_moments_it_does_too() {
    survives(2, COMPRESSED);
}

#[test]
fn killed_at_ten_moments_it_does_too_with_fedadam_and_the_trimmed_mean() {
    survives(1, METHODS);
}

#[test]
#[ignore = "long: a hundred and sixty kills"]
fn killed_at_many_moments_it_does_too() {
    (3..19).for_each(|seed| survives(seed, COMPRESSED));
}
