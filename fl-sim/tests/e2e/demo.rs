//! `fl-sim demo` as a process: with a closed stdout, stopped by a signal, and with an existing folder; and `fl-sim
//! experiment` with unknown names.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use crate::fixtures::process::{Process, TIMEOUT, done, fails, sim};

/// A demo with short rounds.
fn demo(rounds: &str, more: &[&str]) -> Command {
    let args = ["demo", "--clients", "2", "--limit", "20", "--rounds", rounds];
    sim(args.iter().chain(more))
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn a_demo_that_is_stopped_says_by_what_and_leaves_nothing_behind() {
    for (name, code, said) in [("-TERM", 143, "SIGTERM"), ("-INT", 130, "SIGINT")] {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = demo("100000", &[]);
        command.env("TMPDIR", temporary.path());
        let (sender, lines) = channel();
        let mut process = Process::start(command, 0, 1, &sender);
        drop(sender);
        // The line of the first round shows that everything is running.
        let mut text = lines.recv_timeout(TIMEOUT).unwrap().text;
        while !text.is_some_and(|text| text.trim_start().starts_with("1 ")) {
            text = lines.recv_timeout(TIMEOUT).unwrap().text;
        }
        assert!(!is_empty(temporary.path()));
        process.signal(name);
        let status = process.end();
        let rest: Vec<String> = lines.iter().filter_map(|line| line.text).collect();
        assert_eq!(status.code(), Some(code), "{rest:?}");
        assert!(
            rest.iter().any(|line| line == &format!("fl-sim: stopped by {said}")),
            "{rest:?}"
        );
        assert!(is_empty(temporary.path()), "{rest:?}");
    }
}

#[test]
fn a_demo_goes_on_when_nobody_reads_it_and_fails_if_its_result_cannot_be_written() {
    let temporary = tempfile::tempdir().unwrap();
    let with = |stdout: Stdio| {
        let mut command = demo("1", &[]);
        command.env("TMPDIR", temporary.path());
        command.stdout(stdout).output().unwrap()
    };
    let unread = with(std::io::pipe().unwrap().1.into());
    let said = String::from_utf8(unread.stderr).unwrap();
    assert_eq!((unread.status.code(), said.as_str()), (Some(0), ""));
    let full = with(
        std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
            .into(),
    );
    let said = String::from_utf8(full.stderr).unwrap();
    assert_eq!(full.status.code(), Some(1), "{said}");
    assert!(said.starts_with("fl-sim: cannot write to standard output: "), "{said}");
}

#[test]
fn a_folder_that_holds_something_is_not_kept_in() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("kept");
    let keep = || demo("1", &["--keep", kept.to_str().unwrap()]);
    let said = done(keep());
    assert!(!is_empty(&kept) && !said.contains("IS NOT"), "{said}");
    // The output begins with the address of the live page and ends with the paths of the results.
    assert!(said.starts_with("live page: http://127.0.0.1:"), "{said}");
    let page = kept.join("report.html");
    assert!(
        said.contains(&format!("report          {}\n", page.display())),
        "{said}"
    );
    assert!(std::fs::read_to_string(&page).unwrap().starts_with("<!doctype html>"));
    let fits = |line: &&str| line.chars().count() <= 80 || line.contains(kept.to_str().unwrap());
    assert!(said.lines().all(|line| fits(&line)), "{said}");
    assert!(!said.contains('\x1b'), "no terminal: {said}");
    // The folder is a federation.
    let report = done(sim(["server", "report", kept.to_str().unwrap()]));
    assert!(report.contains("equal to the byte"), "{report}");
    let json = done(sim(["server", "report", "--format", "json", kept.to_str().unwrap()]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let words = json["settings"]["words"].as_array().unwrap();
    assert_eq!(words.last().unwrap(), &serde_json::json!(["learner", "mlp"]));
    let status = done(sim(["server", "status", kept.to_str().unwrap()]));
    assert!(status.contains("demo: done; 1 of 1 rounds closed"), "{status}");
    assert!(done(sim(["server", "check", kept.join("run.toml").to_str().unwrap()])).contains("valid: run `demo`"));
    fails(keep(), 2, &["--keep", "the folder is not empty; choose a new one"]);
}

#[test]
fn what_an_experiment_has_not_is_wrong_usage() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/experiments/fashion-mlp.toml");
    let file = file.to_str().unwrap();
    fails(sim(["experiment", "none.toml"]), 2, &["none.toml: cannot read"]);
    fails(
        sim(["experiment", file, "--only", "none"]),
        2,
        &["`--only none`: there is no such variant; there are "],
    );
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).to_str().unwrap();
    fails(
        sim(["experiment", file, "--keep", full]),
        2,
        &["--keep", "is not empty"],
    );
    fails(sim(["demo", "--learner", "none"]), 2, &["none"]);
    fails(sim(["demo", "--data", "/none"]), 2, &["/none"]);
    fails(sim(["demo", "--learning-rate", "0"]), 2, &["learning_rate"]);
}

/// `docs/reference/cli.md` lists the options and commands that the program prints.
#[test]
fn the_command_line_reference_is_what_the_program_prints() {
    crate::help_page::check(env!("CARGO_BIN_EXE_fl-sim"), "fl-sim", &["server", "client"]);
}
