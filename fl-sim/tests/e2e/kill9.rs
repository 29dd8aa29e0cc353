//! Real processes, really killed: one server and three clients, compressed both ways, SIGKILLed again and again at seeded
//! moments and started again each time. The model is the one that the same federation makes undisturbed, and every
//! update counts once.
//!
//! A moment is never a time: it is the n-th line that the victim logs after a round has closed, and every HTTP/2 frame
//! is a line. So kills fall while clients connect, fetch, train, send, and wait for a receipt that is lost.

use std::sync::mpsc::{Receiver, Sender, channel};

use fl_client::data::{Builtin, DataSource};
use fl_sim::workload::{TASK, Workload};

use crate::fixtures::fed::Fed;
use crate::fixtures::process::{Line, Process, TIMEOUT};
use crate::fixtures::{COMPRESSED, train};

const CLIENTS: usize = 3;
const KILLS: usize = 10;
/// Rounds from one kill to the next, at least: a client that is started again has joined by then.
const APART: usize = 2;
/// Enough that the last kill falls before the run is over, even if each comes a round late: a client logs more than
/// [`REACH`] lines in two rounds.
const ROUNDS: usize = KILLS * (APART + 1);
const SEED: u64 = 11;
const DATA: Builtin = Builtin {
    seed: SEED,
    client: 0,
    train: 60,
    test: 20,
};
/// Every frame that travels is a line.
const LOG: &str = "info,h2=debug";
/// A kill falls at most so many lines after its round began.
const REACH: u64 = 40;

/// `splitmix64`, for moments and victims.
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

/// When and who: once `round` rounds are closed, after `lines` more lines of the `victim`.
#[derive(Debug)]
struct Kill {
    victim: usize,
    round: usize,
    lines: u64,
}

/// The server, then the clients.
const SERVER: usize = 0;

fn name(client: usize) -> String {
    format!("client-{:02}", client - 1)
}

/// Another optimizer and aggregator than the default, and an uplink that sends every coordinate.
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

/// `more`: the tables of compression, and of methods if they are not the defaults.
fn run_toml(more: &str) -> String {
    format!(
        "name = \"kill9\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = {SEED}\n\
         [cohort]\nmin = {CLIENTS}\ntarget = {CLIENTS}\n\
         [train]\nepochs = 1\nbatch_size = 20\nlearning_rate = 0.1\n{more}"
    )
}

/// The processes, and what they say.
struct Stage {
    fed: Fed,
    lines: Receiver<Line>,
    sender: Sender<Line>,
    /// `None` once a client is through.
    running: Vec<Option<Process>>,
    /// Lives of each, and streams of the present life that have ended.
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

    /// Lets the federation run until every client is through, and kills meanwhile. Returns how many were killed.
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

    /// A stream of `who` has ended. After the second, the process has, which only clients may.
    fn ended(&mut self, who: usize) {
        self.lives[who].1 += 1;
        if self.lives[who].1 == 2 {
            assert_ne!(who, SERVER, "the server ended by itself");
            let mut process = self.running[who].take().expect("it has just ended");
            assert!(process.end().success(), "{} failed", name(who));
        }
    }

    /// Stops the server.
    fn stop(&mut self) {
        let mut server = self.running[SERVER].take().expect("it runs until now");
        server.terminate();
        assert!(server.end().success());
    }
}

/// The round that the server says has closed: `round    3  3 updates ..`.
fn closed_round(line: &str) -> Option<usize> {
    let mut words = line.strip_prefix("round ")?.split_whitespace();
    let round = words.next()?.parse().ok()?;
    (words.nth(1)? == "updates").then_some(round)
}

/// Kills by turns the server and one of the clients.
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
        learner: "mlp".into(),
        clients: CLIENTS as u32,
        data: DataSource::Builtin(DATA),
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
