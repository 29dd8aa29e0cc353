//! Sweeps as processes: killed and resumed, refused where the file or the folder is wrong.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;

use serde_json::Value;

use crate::fixtures::process::{Process, done, fails, sim, wait_for};

const FILE: &str = "choose = [1]\nreport = [11]\nbaseline = \"fp32\"\n\
    [workload]\nlearner = \"mlp\"\nclients = 2\ndata = { builtin = { train = 60, test = 40 } }\n\
    [run]\nrounds = 2\ncohort = { min = 2, target = 2 }\ntrain = { epochs = 1, batch_size = 8, learning_rate = 0.1 }\n\
    [[grid]]\nonly = [\"ours\"]\n\"compression.uplink.budget, compression.downlink.budget\" = [\"0.5 bits\", \"1 bits\"]\n\
    [[variant]]\nname = \"fp32\"\n\
    compression = { uplink = { memory = \"none\", default = {} }, downlink = { memory = \"none\", default = {} } }\n\
    [[variant]]\nname = \"ours\"\n";

struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    fn set() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tiny.toml"), FILE).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn sweep(&self, args: &[&str]) -> Command {
        let mut command = sim(["sweep", "tiny.toml"]);
        command.args(args).current_dir(self.dir.path());
        command
    }

    /// The files of the finished trials.
    fn results(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path("tiny/trials")).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    /// The tables without what the clock and the sizes of TLS records change.
    fn tables(&self) -> Vec<Value> {
        let tables: Value = serde_json::from_str(&done(self.sweep(&["--format", "json"]))).unwrap();
        let mut rows = Vec::new();
        for phase in tables["phases"].as_array().unwrap() {
            for row in phase["rows"].as_array().unwrap() {
                let keys = [
                    "variant",
                    "label",
                    "chosen",
                    "seeds",
                    "last",
                    "tail",
                    "tail_difference",
                    "bits",
                ];
                rows.push(keys.iter().map(|key| row[*key].clone()).collect());
            }
        }
        rows
    }
}

fn model(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap();
    let record: Value = serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
    record["score"]["model"].clone()
}

#[test]
fn a_killed_sweep_is_resumed_with_equal_tables() {
    let stage = Stage::set();
    let first = done(stage.sweep(&[]));
    assert!(
        first.contains("validation part") && first.contains("test set"),
        "{first}"
    );
    assert_eq!(done(stage.sweep(&[])), first, "nothing ran, so every byte is the same");
    let (tables, results) = (stage.tables(), stage.results());
    assert_eq!(results.len(), 3 + 2);
    let models: Vec<Value> = results.iter().map(|path| model(path)).collect();

    results
        .iter()
        .step_by(2)
        .for_each(|path| std::fs::remove_file(path).unwrap());
    let (sender, lines) = channel();
    let killed = Process::start(stage.sweep(&["--jobs", "1"]), 0, 1, &sender);
    wait_for(&lines, 0, " seed ");
    killed.kill();
    assert!(
        stage.results().len() > results.len() / 2,
        "the trial that had ended is kept"
    );

    assert_eq!(stage.tables(), tables);
    let again: Vec<Value> = stage.results().iter().map(|path| model(path)).collect();
    assert_eq!(again, models);
    assert!(!stage.path("tiny/work").exists());
}

#[test]
fn the_sweeps_of_a_folder_run_one_after_another_and_are_resumed_with_equal_bytes_on_the_model_wire() {
    let stage = Stage::set();
    std::fs::remove_file(stage.path("tiny.toml")).unwrap();
    let file = FILE.replace("[workload]", "[engine]\nwire = \"model\"\n[workload]");
    std::fs::create_dir(stage.path("sweeps")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(stage.path("sweeps").join(name), text).unwrap();
    write("tiny.toml", &file);
    write("other.toml", &file.replace("report = [11]", "report = [12]"));
    write("experiment.toml", "seeds = [1]\n");
    let run = |args: &[&str]| {
        let mut command = sim(["sweep", "sweeps", "--keep", "."]);
        command.args(args).current_dir(stage.dir.path());
        command
    };
    let first = done(run(&[]));
    let summary = |sweep: &str| first.lines().filter(|line| line.starts_with(sweep)).count();
    assert_eq!((summary("tiny "), summary("other ")), (2, 2), "{first}");
    let (tables, results) = (done(run(&["--format", "json"])), stage.results());
    results
        .iter()
        .step_by(2)
        .for_each(|path| std::fs::remove_file(path).unwrap());
    assert_eq!(done(run(&["--format", "json"])), tables, "also bytes are the same");
    assert!(tables.contains("\"wire\": \"model\""), "{tables}");
    fails(run(&["--point", "ours=1"]), 2, &["instead of the folder"]);
    write("broken.toml", &file.replace("report = [11]", "report = [1]"));
    fails(run(&[]), 2, &["broken.toml", "seed 1 is in `choose` and in `report`"]);
}

#[test]
fn a_phase_or_a_point_is_run_alone() {
    let stage = Stage::set();
    fails(
        stage.sweep(&["--phase", "report"]),
        1,
        &["3 trials of the choice have no result", "--phase choose"],
    );
    let report = done(stage.sweep(&["--phase", "report", "--point", "ours=1"]));
    assert!(
        report.contains("1: budget=1 bits") && !report.contains("validation"),
        "{report}"
    );
    assert_eq!(stage.results().len(), 2);
    fails(
        stage.sweep(&["--point", "ours=2"]),
        2,
        &["there are 0: budget=0.5 bits; 1: budget=1 bits"],
    );
    fails(stage.sweep(&["--quick"]), 2, &["tiny.toml", "no `[quick]` table"]);
}

#[test]
fn a_point_whose_training_diverges_is_not_chosen() {
    let stage = Stage::set();
    let grid = "\"run.train.learning_rate\" = [1e30, 0.1]";
    let old = "\"compression.uplink.budget, compression.downlink.budget\" = [\"0.5 bits\", \"1 bits\"]";
    assert!(FILE.contains(old));
    std::fs::write(stage.path("tiny.toml"), FILE.replace(old, grid)).unwrap();
    let text = done(stage.sweep(&[]));
    assert!(text.contains("1 failed"), "{text}");
    let report = text.split("report: ").nth(1).unwrap();
    assert!(report.contains("1: learning_rate=0.1"), "{text}");
    fails(
        stage.sweep(&["--point", "ours=0"]),
        1,
        &[
            "FAILED: client-0",
            "failed trials: 1",
            "the same command runs them again",
        ],
    );
}

#[test]
fn another_file_is_refused_in_the_folder_of_a_sweep() {
    let stage = Stage::set();
    std::fs::create_dir(stage.path("other")).unwrap();
    std::fs::write(stage.path("other/notes"), "").unwrap();
    fails(stage.sweep(&["--keep", "other"]), 2, &["other", "holds no sweep"]);
    fails(stage.sweep(&["--phase", "report"]), 1, &["no result"]);
    let missing = FILE.replace("builtin = { train = 60, test = 40 }", "idx = { dir = \"none\" }");
    std::fs::write(stage.path("missing.toml"), missing).unwrap();
    let mut command = sim(["sweep", "missing.toml"]);
    command.current_dir(stage.dir.path());
    fails(command, 2, &["none/train-images-idx3-ubyte"]);
    let changed = FILE.replace("rounds = 2", "rounds = 3");
    std::fs::write(stage.path("tiny.toml"), changed).unwrap();
    fails(stage.sweep(&[]), 2, &["belongs to another sweep: `run` differs"]);
}

#[test]
fn budgets_are_checked_before_the_first_trial() {
    let stage = Stage::set();
    let with = |budget: &str| {
        let late = "[[variant]]\nname = \"late\"\n[variant.compression.uplink]\nbudget = ";
        std::fs::write(stage.path("tiny.toml"), format!("{FILE}{late}{budget}\n")).unwrap();
    };
    with("{ run = \"100B\" }");
    let output = stage
        .sweep(&["--phase", "report", "--point", "ours=0"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("variant `late`") && error.contains("compression.uplink.budget: 100 bytes"),
        "{error}"
    );
    let (_, named) = error.split_once("give at least ").unwrap();
    assert!(stage.results().is_empty(), "no trial has run");
    with(named.lines().next().unwrap());
    done(stage.sweep(&["--phase", "report", "--point", "ours=0"]));
    with("\"0.0001 bits\"");
    std::fs::remove_dir_all(stage.path("tiny")).unwrap();
    let mut starved = stage.sweep(&["--phase", "report", "--point", "ours=0"]);
    let output = starved.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("variant `late`: WARNING: compression.uplink: the budget cannot be met"),
        "{said}"
    );
}
