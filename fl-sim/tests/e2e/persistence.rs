//! The server dies, or its disk becomes full, at a persistence point: at the writes, fsyncs, renames, removals and
//! commits of a run in turn. After a restart it continues, and the model equals that of an undisturbed run.
//!
//! The server is a separate process that ends like under SIGKILL; its clients stay alive in the test process. The
//! regular tests sample the points; the ignored tests take every point.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fl_client::{Backoff, ClientFile, Evaluation, Fit, FitPlan, Tasks, TrainersOnly, weights};
use fl_compress::Digest;
use fl_sim::ready;
use fl_sim::workload::TASK;
use tokio::runtime::Runtime;

use crate::fixtures::COMPRESSED;
use crate::fixtures::fed::Fed;
use crate::fixtures::process::{Line, Process, TIMEOUT};
use crate::learners::{Practice, plain};

const CLIENTS: usize = 2;
const ROUNDS: u64 = 2;
const VALUES: usize = 3000;
/// Signal number of SIGABRT.
const ABORT: i32 = 6;

/// Changes every weight by a function of the seed of the round, independent of earlier rounds.
struct Drift;

impl Practice for Drift {
    fn fit(&mut self, weights: &mut [f32], plan: &FitPlan) -> anyhow::Result<Fit> {
        for (i, weight) in weights.iter_mut().enumerate() {
            *weight += ((plan.seed % 1009) as f32 + i as f32 * 0.7).sin() * 0.01;
        }
        Ok(Fit::new(10 + plan.seed % 5, 0.5))
    }

    fn evaluate(&mut self, _: &[f32]) -> Option<Evaluation> {
        Some(Evaluation::new(10, 0.5, 5.0))
    }
}

/// A federation whose run can be restarted from the beginning.
struct Stage {
    fed: Fed,
    runtime: Runtime,
    lines: Receiver<Line>,
    sender: Sender<Line>,
    life: u32,
}

/// Index of the server; the clients count from 1.
const SERVER: usize = 0;

/// Exit status of one server process, its stderr, and the number of clients that had not finished.
struct End {
    status: ExitStatus,
    said: String,
    waiting: usize,
}

impl Stage {
    fn set() -> Self {
        let fed = Fed::found();
        let layout = ready::layout(VALUES).unwrap();
        weights::export(&fed.path("init.safetensors"), &layout, &vec![0.25; VALUES]).unwrap();
        let run = format!(
            "model = \"init.safetensors\"\nname = \"points\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = 5\n\
             [cohort]\nmin = {CLIENTS}\ntarget = {CLIENTS}\n{COMPRESSED}"
        );
        std::fs::write(fed.path("run.toml"), run).unwrap();
        // Frequent checkpoints and removals, which are persistence points too.
        let server = std::fs::read_to_string(fed.path("fed/server.toml")).unwrap();
        let server = format!("checkpoint_every = 1\nkeep_updates = false\n{server}");
        std::fs::write(fed.path("fed/server.toml"), server).unwrap();
        (1..=CLIENTS).for_each(|client| fed.issue(&name(client), ""));
        let (sender, lines) = channel();
        Self {
            fed,
            runtime: Runtime::new().unwrap(),
            lines,
            sender,
            life: 0,
        }
    }

    /// Deletes all state and starts the clients.
    fn begin(&mut self) {
        let state = |client: usize| self.fed.path(&name(client)).join("state");
        let folders: Vec<PathBuf> = (1..=CLIENTS).map(state).chain([self.fed.path("fed/data")]).collect();
        folders
            .iter()
            .filter(|dir| dir.exists())
            .for_each(|dir| std::fs::remove_dir_all(dir).unwrap());
        for who in 1..=CLIENTS {
            let mut config = ClientFile::read(&self.fed.path(&name(who)).join("client.toml"), &TrainersOnly)
                .unwrap()
                .config;
            config.exit_when_done = true;
            config.backoff = Backoff {
                first: Duration::from_millis(5),
                max: Duration::from_millis(20),
            };
            let sender = self.sender.clone();
            let layout = Arc::new(ready::layout(VALUES).unwrap());
            let tasks = Tasks::new().with(TASK, plain(layout, Drift));
            self.runtime.spawn(async move {
                let ended = Box::pin(fl_client::run(config, tasks, |_| {}, std::future::pending())).await;
                // A failed client reports its error; a finished one only ends.
                let text = ended.err().map(|error| format!("{}: {error}", name(who)));
                let _ = sender.send(Line { who, life: 0, text });
            });
        }
    }

    /// Runs one server process for `waiting` clients, until it ends by itself, or the clients finish and it is stopped.
    fn live(&mut self, fault: Option<&str>, mut waiting: usize) -> End {
        let faulty = fault.map_or(vec![], |fault| vec!["--fault", fault]);
        let over = ["--exit-when-done"];
        let more = if waiting == 0 {
            [&over, faulty.as_slice()].concat()
        } else {
            faulty
        };
        self.life += 1;
        let mut server = Process::start(self.fed.serve(&more), SERVER, self.life, &self.sender);
        let (mut said, mut streams) = (String::new(), 2);
        // A signal would kill the server before it serves, and clients may finish before it does.
        let (mut serves, mut told) = (false, waiting == 0);
        while streams > 0 {
            let line = self.lines.recv_timeout(TIMEOUT).expect("something happens");
            match (line.who, line.text) {
                (SERVER, Some(text)) => {
                    serves |= text.starts_with("serving `");
                    said.extend([&text, "\n"]);
                }
                (SERVER, None) => streams -= 1,
                (_, Some(error)) => panic!("{error}\nafter the server said\n{said}"),
                (_, None) => waiting -= 1,
            }
            if serves && waiting == 0 && !told {
                server.terminate();
                told = true;
            }
        }
        let status = server.end();
        assert!(!said.contains("panicked"), "{said}");
        End { status, said, waiting }
    }

    /// Runs everything with a fault in the first server process. Returns how that process ended, and the model.
    fn run(&mut self, fault: Option<&str>) -> (End, String) {
        self.begin();
        let first = self.live(fault, CLIENTS);
        if !first.status.success() {
            let second = self.live(None, first.waiting);
            assert!(second.status.success(), "{}", second.said);
        }
        let report = self.fed.report();
        assert_eq!((report.run.state.as_str(), report.run.version), ("done", ROUNDS));
        assert!(
            report
                .rounds
                .iter()
                .all(|round| (round.updates, round.attempts) == (CLIENTS as u64, 1)),
            "{report:?}"
        );
        (first, report.run.model)
    }

    /// Tries every `stride`-th point until the run ends before the fault. `is_struck` checks a process that the fault
    /// has ended.
    fn sweep(&mut self, kind: &str, stride: usize, is_struck: impl Fn(&End)) {
        let (undisturbed, model) = self.run(None);
        assert!(undisturbed.status.success(), "{}", undisturbed.said);
        assert_ne!(model, Digest::of_f32(&vec![0.25; VALUES]).to_string(), "it learned");
        let mut struck = 0;
        for at in (1..).step_by(stride) {
            let fault = format!("{kind}@{at}");
            let (end, found) = self.run(Some(&fault));
            assert_eq!(found, model, "after {fault} the server said\n{}", end.said);
            if end.status.success() {
                break;
            }
            is_struck(&end);
            struck += 1;
        }
        println!("{struck} points at a stride of {stride}");
        assert!(struck * stride > 60, "{struck} points at a stride of {stride}");
    }
}

impl Stage {
    /// Once, at the first open after every `stride`-th point, no file can be opened. The server continues.
    fn endure(&mut self, stride: usize) {
        let (undisturbed, model) = self.run(None);
        assert!(undisturbed.status.success(), "{}", undisturbed.said);
        let (mut tried, mut struck) = (0, 0);
        for at in (1..=POINTS).step_by(stride) {
            let fault = format!("busy@{at}");
            let (end, found) = self.run(Some(&fault));
            assert!(end.status.success(), "after {fault} the server said\n{}", end.said);
            assert_eq!(found, model, "after {fault} the server said\n{}", end.said);
            tried += 1;
            struck += usize::from(end.said.contains("Too many open files"));
        }
        println!("{struck} of {tried} faults struck");
        assert!(2 * struck > tried, "{struck} of {tried}");
    }
}

/// Minimum number of points of a run.
const POINTS: usize = 100;

fn name(client: usize) -> String {
    format!("client-{client}")
}

fn aborted(end: &End) {
    assert_eq!(end.status.signal(), Some(ABORT), "{}", end.said);
}

fn filled(end: &End) {
    assert_eq!(end.status.code(), Some(1), "{}", end.said);
    let line = end.said.lines().find(|line| line.starts_with("fl-server: "));
    let line = line.unwrap_or_else(|| panic!("it must say why it stopped:\n{}", end.said));
    // The data folder is created first, which changes its parent folder.
    let named = line.contains(" fed/data") || line.contains(" fed:");
    assert!(named && line.contains("free some space"), "{line}");
}

#[test]
fn a_server_killed_at_persistence_points_makes_the_same_model() {
    Stage::set().sweep("abort", 2, aborted);
}

#[test]
fn a_full_disk_is_named_and_costs_nothing_once_there_is_room() {
    Stage::set().sweep("full", 7, filled);
}

#[test]
fn a_server_that_cannot_open_a_file_for_a_moment_goes_on_and_makes_the_same_model() {
    Stage::set().endure(13);
}

#[test]
#[ignore = "long: every point of a run"]
fn a_server_that_cannot_open_a_file_at_any_moment_goes_on_and_makes_the_same_model() {
    Stage::set().endure(1);
}

#[test]
#[ignore = "long: every point of a run"]
fn a_server_killed_at_any_persistence_point_makes_the_same_model() {
    Stage::set().sweep("abort", 1, aborted);
}

#[test]
#[ignore = "long: every point of a run"]
fn a_disk_that_is_full_at_any_point_is_named_and_costs_nothing() {
    Stage::set().sweep("full", 1, filled);
}
