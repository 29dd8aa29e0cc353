//! The program with a trainer: check, first weights, evaluation, rounds, and what a kill leaves behind.

use std::path::Path;
use std::process::{Command, Stdio};

#[path = "../../src/trainer/fake.rs"]
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
    let certificates = Certificates::new("fed");
    let server = TestServer::start(&certificates, World::new(4));
    let script = Script {
        in_round: [(2, Fault::Raises), (3, Fault::Unchanged)].into(),
        ..script()
    };
    server.world().spec = fl_compress::Spec::exact();
    let dir = folder_with(server.address(), &certificates, &task(&script));
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
    let status = tokio::task::spawn_blocking(move || client.wait().unwrap())
        .await
        .unwrap();
    assert!(status.success());
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
