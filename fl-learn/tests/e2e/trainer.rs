//! The program with a trainer: check, first weights, evaluation, rounds, and what a kill leaves behind.

use std::path::Path;
use std::process::{Command, Stdio};

#[path = "../../../fl-client/src/trainer/tests/fake.rs"]
mod fake;

use fake::{Fault, Script, act, change};

use crate::binary::{fails, folder_with, program};
use crate::support::{Call, Certificates, TestServer, World, layout, rounds_of};

/// A trainer, if the environment says so.
#[test]
fn fake_trainer() {
    act();
}

fn script() -> Script {
    let tensors = layout();
    let tensors = tensors
        .tensors()
        .iter()
        .map(|tensor| (tensor.name.clone(), "F32", tensor.shape.clone()));
    Script {
        tensors: tensors.collect(),
        ..Script::default()
    }
}

/// The text of a task with this trainer. JSON strings are TOML strings.
fn task(script: &Script) -> String {
    let words = serde_json::to_string(&script.command("trainer::fake_trainer")).unwrap();
    format!("learner = {{ command = {words} }}")
}

pub(crate) fn output(mut command: Command) -> String {
    let output = command.output().unwrap();
    let (text, errors) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{text}{errors}");
    text
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).map_or(true, |mut files| files.next().is_none())
}

#[test]
fn a_dry_run_shows_speed_memory_and_tensors() {
    let certificates = Certificates::new("fed");
    let dir = folder_with("127.0.0.1:7070", &certificates, &task(&script()));
    let tmp = dir.path().join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    let checked = output(program(dir.path(), &["check", "client.toml"]));
    assert!(checked.contains("`--dry-run 3` starts it"), "{checked}");
    let mut command = program(dir.path(), &["check", "client.toml", "--dry-run", "3"]);
    command.env("TMPDIR", &tmp);
    let text = output(command);
    for expected in [
        "2 tensors, 43 values",
        "3 steps in",
        "60 examples, loss 0.5000",
        "MiB in 1 process",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(
        rows.iter()
            .any(|row| row.starts_with(&["a.weight", "F32", "[8,", "5]", "trained"])),
        "{text}"
    );
    assert!(text.contains("accuracy 0.7000 (7 of 10)"), "{text}");
    assert!(is_empty(&tmp), "the work folder is left");
}

#[test]
fn a_dry_run_takes_the_settings_of_a_run_and_warns_of_a_loss_above_that_of_a_guess() {
    let learner = "learner = 'mlp'\ndata = { builtin = { train = 20, test = 10 } }";
    let dir = folder_with("127.0.0.1:7070", &Certificates::new("fed"), learner);
    let run = |task: &str, rate: &str| {
        let text = format!("name = 'r'\ntask = '{task}'\n[train]\nlearning_rate = {rate}\nbatch_size = 4\n");
        std::fs::write(dir.path().join("run.toml"), text).unwrap();
        program(
            dir.path(),
            &["check", "client.toml", "--dry-run", "5", "--run", "run.toml"],
        )
    };
    let text = output(run("arithmetic", "200.0"));
    let line = text.lines().find(|line| line.contains("5 steps in")).unwrap();
    assert!(line.starts_with("warning") && line.contains("20 examples"), "{text}");
    assert!(
        line.ends_with("with the run's [train]; a constant guess among 10 has 2.3026"),
        "{text}"
    );
    let text = output(run("arithmetic", "0.01"));
    let line = text.lines().find(|line| line.contains("5 steps in")).unwrap();
    assert!(
        line.starts_with("good") && line.ends_with("with the run's [train]"),
        "{text}"
    );
    fails(run("another", "0.01"), 2, "client.toml has no [tasks.another]");
    fails(run("arithmetic", "-1"), 2, "must be finite and above 0");
    let without = output(program(dir.path(), &["check", "client.toml", "--dry-run", "1"]));
    assert!(without.contains("with the defaults of [train]"), "{without}");
}

#[test]
fn first_weights_of_a_trainer_that_attaches_are_waited_for_and_the_command_says_where() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let task = "learner = { attach = 'trainer.sock' }";
    let dir = folder_with("127.0.0.1:7070", &Certificates::new("fed"), task);
    let init = ["init", "--config", "client.toml", "-o", "init.safetensors"];
    let mut init = program(dir.path(), &init).spawn().unwrap();
    let mut note = String::new();
    let mut said = BufReader::new(init.stderr.take().unwrap());
    said.read_line(&mut note).unwrap();
    let (_, rest) = note.split_once("`fl.attach(\"").unwrap();
    let socket = dir.path().join(rest.split_once("\")`").unwrap().0);
    let mut trainer = loop {
        assert!(init.try_wait().unwrap().is_none(), "{note}");
        match std::os::unix::net::UnixStream::connect(&socket) {
            Ok(trainer) => break trainer,
            Err(_) => std::thread::yield_now(),
        }
    };
    let mut lines = BufReader::new(trainer.try_clone().unwrap()).lines().map(Result::unwrap);
    let start: serde_json::Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    let header = r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 8]].concat();
    std::fs::write(Path::new(start["folder"].as_str().unwrap()).join("w"), &file).unwrap();
    let hello = r#"{"type":"hello","version":1,"weights":"w","tensors":[{"name":"w","dtype":"F32","shape":[2]}]}"#;
    writeln!(trainer, "{hello}").unwrap();
    assert!(init.wait().unwrap().success());
    assert_eq!(std::fs::read(dir.path().join("init.safetensors")).unwrap(), file);
}

#[test]
fn a_trainer_that_fails_its_dry_run_is_exit_code_2_with_the_reason() {
    let certificates = Certificates::new("fed");
    let script = Script {
        in_round: [(1, Fault::Exits)].into(),
        ..script()
    };
    let dir = folder_with("127.0.0.1:7070", &certificates, &task(&script));
    let check = program(dir.path(), &["check", "client.toml", "--dry-run", "3"]);
    fails(check, 2, "ValueError: the camera is unplugged");
    for (task, named) in [
        (
            "learner = { command = ['no-such-program'] }",
            "`tasks.arithmetic.learner.command`: there is no program",
        ),
        ("learner = { command = ['./client.toml'] }", "chmod +x"),
    ] {
        let dir = folder_with("127.0.0.1:7070", &certificates, task);
        for command in ["check", "run"] {
            fails(program(dir.path(), &[command, "client.toml"]), 2, named);
        }
    }
}

#[test]
fn a_training_that_does_not_reach_the_model_fails_its_dry_run() {
    let script = Script {
        in_round: [(1, Fault::Unchanged)].into(),
        ..script()
    };
    let dir = folder_with("127.0.0.1:7070", &Certificates::new("fed"), &task(&script));
    let check = program(dir.path(), &["check", "client.toml", "--dry-run", "3"]);
    fails(check, 2, "did not reach the model: 60 examples and loss 0.5");
}

#[test]
fn first_weights_are_the_trainers_own_and_a_model_is_evaluated_by_it() {
    let certificates = Certificates::new("fed");
    let dir = folder_with("127.0.0.1:7070", &certificates, &task(&script()));
    let text = output(program(
        dir.path(),
        &["init", "--config", "client.toml", "-o", "init.safetensors"],
    ));
    assert!(text.contains("2 tensors, 43 values"), "{text}");
    let weights = fl_client::weights::import(&dir.path().join("init.safetensors"), &layout()).unwrap();
    assert_eq!(weights, vec![0.25; 43]);
    let evaluate = ["evaluate", "--config", "client.toml", "init.safetensors"];
    let text = output(program(dir.path(), &evaluate));
    assert!(text.contains("accuracy 0.7000 (7 of 10), loss 10.7500"), "{text}");
    fails(
        program(
            dir.path(),
            &["init", "--config", "client.toml", "--task", "x", "-o", "y"],
        ),
        2,
        "must be one of: arithmetic",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_a_trainer_takes_part_and_leaves_the_rounds_in_which_it_fails() {
    let server = TestServer::start(World::new(4));
    let script = Script {
        in_round: [(2, Fault::Raises), (3, Fault::Unchanged)].into(),
        ..script()
    };
    server.world().spec = fl_compress::Spec::exact();
    let dir = folder_with(server.address(), &server.certificates, &task(&script));
    let mut client = program(dir.path(), &["run", "client.toml", "--exit-when-done"]);
    let mut client = client.stdout(Stdio::null()).spawn().unwrap();
    // The scripted server waits for an update; this one it does not get.
    for left in 1..=2 {
        let leaves = |call: &&Call| matches!(call, Call::Leave(_));
        while server.world().calls.iter().filter(leaves).count() < left {
            assert!(client.try_wait().unwrap().is_none(), "the client ended");
            std::thread::yield_now();
        }
        server.world().advance(&vec![0.0; layout().len()]);
    }
    let ended = tokio::task::spawn_blocking(move || client.wait_with_output().unwrap());
    let ended = ended.await.unwrap();
    let log = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success(), "{log}");
    let name = server.certificates.name();
    for line in log.lines() {
        assert!(line.starts_with(&format!("{name} 20")), "{line}");
    }
    let said: Vec<&str> = log.lines().filter(|line| line.contains("unplugged")).collect();
    assert_eq!(said.len(), 2, "the traceback once, and one line about the round: {log}");
    let line = "WARN left round 2: ValueError: the sensor is unplugged (train.py:16)";
    assert!(said[1].ends_with(line), "{log}");
    let world = server.world();
    assert_eq!(rounds_of(&world), [1, 4]);
    for (round, _, frame) in &world.accepted {
        let mut update = vec![0.0; layout().len()];
        let frame = fl_compress::Frame::parse(frame, &world.layout).unwrap();
        frame.accumulate(1.0, &mut update).unwrap();
        let expected: Vec<f32> = (0..layout().len() as u64).map(|i| change(0, *round, i)).collect();
        assert_eq!(update, expected, "round {round}");
    }
    let state = std::fs::read_dir(dir.path().join("state")).unwrap();
    let left = state.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with("fl-trainer")
    });
    assert_eq!(left.count(), 0);
}
