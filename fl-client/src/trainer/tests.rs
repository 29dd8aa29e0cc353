//! A learner with the fake trainer: faults, stops, time limits, and what is left behind.

mod fake;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fl_compress::weights::TensorFile;
use fl_compress::{Digest, Dtype, Layout, Role, TensorSpec};
use fl_proto::Training;
use tokio::sync::watch;

use self::fake::{Fault, Script, act, change, square};
use super::clock::Clock;
use super::{Program, Source, TrainerConfig, TrainerLearner};
use crate::learner::{EvaluatePlan, FitPlan, Learner, RunTensors};

/// The test that is a trainer if the environment says so.
const TRAINER: &str = "trainer::tests::fake_trainer";
const TENSORS: [(&str, &[usize]); 2] = [("a.weight", &[8, 5]), ("b.bias", &[3])];

#[test]
fn fake_trainer() {
    act();
}

fn script() -> Script {
    Script {
        tensors: TENSORS
            .map(|(name, shape)| (name.to_owned(), "F32", shape.to_vec()))
            .to_vec(),
        ..Script::default()
    }
}

fn with_fault(round: u64, fault: Fault) -> Script {
    Script {
        in_round: [(round, fault)].into(),
        ..script()
    }
}

fn config(folder: &Path, script: &Script) -> TrainerConfig {
    let program = Program::new(script.command(TRAINER), folder).unwrap();
    let mut config = TrainerConfig::new("t", Source::Command(program), folder);
    config.terminate = Duration::from_millis(200);
    config
}

fn run() -> RunTensors {
    let layout = Layout::new(TENSORS.map(|(name, shape)| (name, shape.to_vec()))).unwrap();
    RunTensors {
        run: "r".parse().unwrap(),
        instance: Digest::of(b"i"),
        client: "c".parse().unwrap(),
        rounds: 9,
        seed: 1,
        layout: Arc::new(layout),
        aside: Vec::new(),
        base: None,
        base_file: None,
        space: None,
    }
}

fn joined(config: TrainerConfig) -> TrainerLearner {
    let mut learner = TrainerLearner::new(config).unwrap();
    learner.join(&run()).unwrap();
    learner
}

fn plan(round: u64) -> FitPlan {
    FitPlan::new(Training::default(), round, 9, 7)
}

/// Trains in a round from zeros and returns the weights.
fn train(learner: &mut TrainerLearner, round: u64) -> anyhow::Result<Vec<f32>> {
    let mut weights = vec![0.0; run().layout.len()];
    learner.load(&weights)?;
    let fit = learner.fit(&plan(round))?;
    assert_eq!((fit.examples, fit.loss), (60, 0.5));
    assert_eq!(fit.metrics.get("half").unwrap().weight, 60.0);
    learner.weights(&mut weights)?;
    Ok(weights)
}

fn expected(round: u64) -> Vec<f32> {
    (0..run().layout.len() as u64).map(|i| change(0, round, i)).collect()
}

fn group_of(learner: &mut TrainerLearner) -> i32 {
    learner.hello().unwrap().1.unwrap()
}

/// Processes of a group.
fn members(group: i32) -> Vec<String> {
    let listed = Command::new("ps")
        .args(["-A", "-o", "pgid=,stat=,args="])
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let of_group = listed
        .lines()
        .filter(|line| line.split_whitespace().next() == Some(&group.to_string()));
    of_group.map(str::to_owned).collect()
}

#[test]
fn a_trainer_trains_evaluates_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut learner = joined(config(dir.path(), &script()));
    for round in 1..=3 {
        assert_eq!(train(&mut learner, round).unwrap(), expected(round));
    }
    learner.load(&[0.5; 43]).unwrap();
    let evaluation = learner.evaluate_with(&EvaluatePlan::default()).unwrap().unwrap();
    assert_eq!((evaluation.loss, evaluation.correct), (21.5, Some(7.0)));
    let mut back = vec![0.0; 43];
    learner.weights(&mut back).unwrap();
    assert_eq!(back, vec![0.5; 43]);
    let group = group_of(&mut learner);
    assert_eq!(members(group).len(), 2, "{:?}", members(group));
    drop(learner);
    assert_eq!(members(group), Vec::<String>::new());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn squared_gradients_are_asked_for_read_and_checked_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script {
        squares: true,
        in_round: [
            (3, Fault::NegativeSquare),
            (4, Fault::OtherSquares),
            (5, Fault::NoSquares),
            (7, Fault::NoFile),
        ]
        .into(),
        ..script()
    };
    let mut learner = joined(config(dir.path(), &script));
    let mut fit = |round, asked| {
        learner.load(&[0.0; 43]).unwrap();
        let squared_gradients = asked;
        let plan = FitPlan {
            squared_gradients,
            ..plan(round)
        };
        learner
            .fit(&plan)
            .map(|fit| fit.squared_gradients)
            .map_err(|e| format!("{e:#}"))
    };
    let expected = |round| -> Vec<f32> { (0..43).map(|i| square(round, i)).collect() };
    assert_eq!(fit(1, false), Ok(None));
    assert_eq!(fit(2, true), Ok(Some(expected(2))));
    for (round, reason) in [
        (
            3,
            "`a.weight`, value 1: a mean squared gradient must be finite and not negative, not -0.5",
        ),
        (4, "tensor `a.weight` is F32 [8, 5, 1]; F32 [8, 5] is expected"),
        (5, "tensor `a.weight` was not written in this round"),
    ] {
        let why = fit(round, true).unwrap_err();
        let file = "the trainer's squared gradients squared_gradients.safetensors: ";
        assert!(why.starts_with(file) && why.contains(reason), "{why}");
    }
    assert_eq!(fit(6, true), Ok(Some(expected(6))));
    assert!(fit(7, true).unwrap_err().contains("update.safetensors"));
    assert_eq!(fit(8, true), Ok(Some(expected(8))));
}

#[test]
fn a_trainer_without_squared_gradients_trains_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut learner = joined(config(dir.path(), &script()));
    learner.load(&[0.0; 43]).unwrap();
    let plan = FitPlan {
        squared_gradients: true,
        ..plan(1)
    };
    assert_eq!(learner.fit(&plan).unwrap().squared_gradients, None);
}

#[test]
fn every_fault_leaves_the_round_with_its_reason_and_the_next_round_is_trained() {
    for (fault, reason) in [
        (
            Fault::Exits,
            "exit status: 3): ValueError: the camera is unplugged (train.py:16)",
        ),
        (Fault::Killed, "signal: 9"),
        (Fault::Raises, "ValueError: the sensor is unplugged (train.py:16)"),
        (Fault::NotANumber, "not finite: tensor `a.weight`, value 0"),
        (
            Fault::WrongShapes,
            "tensor `a.weight` is F32 [8, 5, 1]; F32 [8, 5] is expected",
        ),
        (Fault::WrongNames, "tensor `a.weightx` is not expected"),
        (
            Fault::WrongTypes,
            "tensor `a.weight` is I32 [8, 5]; F32 [8, 5] is expected",
        ),
        (Fault::HalfAFile, "not a complete safetensors file"),
        (Fault::NoFile, "tensor `a.weight` was not written in this round"),
        (Fault::UnknownMessage, "greetings"),
        (Fault::Garbage, "`epoch 1` is not a message"),
        (Fault::Misplaced, "sent `evaluated` where it does not belong"),
        (Fault::LongLine, "longer than 16777216"),
        (Fault::ClosesPipe, "closed its pipe"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut learner = joined(config(dir.path(), &with_fault(2, fault)));
        assert_eq!(train(&mut learner, 1).unwrap(), expected(1));
        let why = format!("{:#}", train(&mut learner, 2).unwrap_err());
        assert!(why.contains(reason), "{fault:?}: {why}");
        assert!(why.len() < 2000 && !why.contains('\n'), "{fault:?}: {why}");
        assert_eq!(train(&mut learner, 3).unwrap(), expected(3), "{fault:?}");
        drop(learner);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{fault:?}");
    }
}

#[test]
fn a_result_that_was_never_read_is_not_taken_for_that_of_a_later_round() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script {
        // In round 1 the client ends the trainer before it reads a result.
        in_round: [(1, Fault::Garbage), (2, Fault::NoFile)].into(),
        ..script()
    };
    let mut learner = joined(config(dir.path(), &script));
    train(&mut learner, 1).unwrap_err();
    // The trainer may have been ended before it wrote.
    let layout = run().layout;
    let result = fl_compress::weights::to_safetensors(&layout, &vec![0.0; layout.len()]).unwrap();
    fs::write(learner.file("update.safetensors").unwrap(), result).unwrap();
    let why = format!("{:#}", train(&mut learner, 2).unwrap_err());
    assert!(why.contains("`a.weight` was not written in this round"), "{why}");
}

#[test]
fn faults_at_the_start_leave_the_round_with_their_reason_and_the_next_start_counts() {
    for (fault, reason) in [
        (Fault::Exits, "the camera is unplugged"),
        (Fault::OtherVersion, "speaks version 2"),
        (Fault::OtherNames, "no tensor `a.weight`"),
        (
            Fault::OtherShapes,
            "tensor `a.weight` of the trainer's model is F32 [1, 1, 1], but F32 [8, 5] in the run",
        ),
        (Fault::Garbage, "`Loading the data...` is not a message"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let counter = dir.path().join("starts");
        let script = Script {
            // The first process may fail before it is asked for anything; then it is replaced without a word.
            at_start: [(0, fault), (1, fault)].into(),
            counter: Some(counter.clone()),
            ..script()
        };
        let mut learner = joined(config(dir.path(), &script));
        let why = format!("{:#}", train(&mut learner, 1).unwrap_err());
        assert!(why.contains(reason), "{fault:?}: {why}");
        let second = train(&mut learner, 2).or_else(|_| train(&mut learner, 2));
        assert_eq!(second.unwrap(), expected(2), "{fault:?}");
        assert_eq!(fs::read_to_string(counter).unwrap(), "3");
    }
}

#[test]
fn a_program_that_cannot_be_started_is_an_error_of_the_round() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(vec!["./missing".to_owned()], dir.path()).unwrap();
    let mut learner = joined(TrainerConfig::new("t", Source::Command(program), dir.path()));
    let why = format!("{:#}", train(&mut learner, 1).unwrap_err());
    assert!(
        why.contains("cannot start `./missing`") && why.contains("there is no file"),
        "{why}"
    );
}

#[test]
fn much_output_blocks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mut learner = joined(config(dir.path(), &with_fault(1, Fault::Prints)));
    assert_eq!(train(&mut learner, 1).unwrap(), expected(1));
}

#[test]
fn silence_ends_the_process_group_when_the_clock_says_so() {
    for fault in [Fault::Hangs, Fault::HangsOn] {
        let dir = tempfile::tempdir().unwrap();
        let (hand, time) = watch::channel(Duration::ZERO);
        let mut config = config(dir.path(), &with_fault(1, fault));
        config.clock = Clock::by_hand(time);
        let mut learner = joined(config);
        let group = group_of(&mut learner);
        learner.load(&[0.0; 43]).unwrap();
        let plan = plan(1);
        let progress = Arc::clone(&plan.progress);
        let training = std::thread::spawn(move || (learner.fit(&plan).unwrap_err(), learner));
        while progress.read() != (1, 2) {
            std::thread::yield_now();
        }
        hand.send_replace(Duration::from_secs(599));
        assert!(!training.is_finished());
        hand.send_replace(Duration::from_secs(1300));
        let (why, mut learner) = training.join().unwrap();
        assert!(why.to_string().contains("no message for 600 s"), "{why}");
        assert_eq!(train(&mut learner, 2).unwrap(), expected(2));
        // Orphans are reaped by the system.
        while !members(group).is_empty() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_stop_reaches_the_trainer_at_once_and_it_stays_usable() {
    let dir = tempfile::tempdir().unwrap();
    let counter = dir.path().join("starts");
    let script = Script {
        counter: Some(counter.clone()),
        ..with_fault(1, Fault::WaitsForStop)
    };
    let mut learner = joined(config(dir.path(), &script));
    learner.load(&[0.0; 43]).unwrap();
    let plan = plan(1);
    let progress = Arc::clone(&plan.progress);
    let training = std::thread::spawn(move || (learner.fit(&plan).unwrap_err(), learner));
    while progress.read() != (1, 2) {
        std::thread::yield_now();
    }
    progress.stop();
    let (why, mut learner) = training.join().unwrap();
    assert_eq!(why.to_string(), "stopped");
    assert_eq!(train(&mut learner, 2).unwrap(), expected(2));
    assert_eq!(fs::read_to_string(counter).unwrap(), "1");
}

#[test]
fn a_trainer_that_says_bye_takes_part_in_no_further_round_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut learner = joined(config(dir.path(), &with_fault(1, Fault::SaysBye)));
    assert!(train(&mut learner, 1).unwrap_err().to_string().contains("said `bye`"));
    assert!(
        train(&mut learner, 2)
            .unwrap_err()
            .to_string()
            .contains("restart the client")
    );
    learner.join(&run()).unwrap();
    assert!(train(&mut learner, 2).is_err());
    let next = RunTensors {
        instance: Digest::of(b"another"),
        ..run()
    };
    learner.join(&next).unwrap();
    assert_eq!(train(&mut learner, 3).unwrap(), expected(3));
}

#[test]
fn own_first_weights_are_read_and_a_dead_process_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let mut learner = joined(config(dir.path(), &script()));
    let (hello, group) = learner.hello().unwrap();
    assert_eq!(
        learner.own_weights(&hello, &run().layout, u64::MAX).unwrap().unwrap(),
        vec![0.25; 43]
    );
    let pids = Command::new("pkill")
        .args(["-9", "-g", &group.unwrap().to_string()])
        .status()
        .unwrap();
    assert!(pids.success());
    let why = train(&mut learner, 1).and_then(|_| train(&mut learner, 2));
    assert_eq!(why.or_else(|_| train(&mut learner, 2)).unwrap(), expected(2));
    assert_ne!(group_of(&mut learner), group.unwrap());
}

#[test]
fn a_trainers_own_first_weights_are_those_of_the_learner() {
    let dir = tempfile::tempdir().unwrap();
    let mut learner = joined(config(dir.path(), &script()));
    let first = learner.initial(1, &Arc::default());
    assert_eq!(first, Some(vec![0.25; 43]));
    // They are the same after a round, as after a restart: version 0 is known by its digest.
    train(&mut learner, 1).unwrap();
    assert_eq!(learner.initial(1, &Arc::default()), first);

    let mut with_base = run();
    with_base.base = Some(Digest::of(b"base"));
    with_base.instance = Digest::of(b"another");
    learner.join(&with_base).unwrap();
    assert_eq!(learner.initial(1, &Arc::default()), None);
}

#[test]
fn without_a_trainer_there_are_no_first_weights() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(["false".to_owned()].into(), dir.path()).unwrap();
    let config = TrainerConfig::new("t", Source::Command(program), dir.path());
    assert_eq!(joined(config).initial(1, &Arc::default()), None);

    let socket = Source::Attach(dir.path().join("trainer.sock"));
    let mut attached = joined(TrainerConfig::new("t", socket, dir.path()));
    assert_eq!(attached.initial(1, &Arc::default()), None);
}

#[test]
fn local_tensors_outlive_the_client_and_a_broken_file_is_named() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let head = TensorSpec {
        name: "head".to_owned(),
        shape: vec![2],
        dtype: Dtype::F32,
        role: Role::Local,
    };
    let mut script = script();
    script.tensors.push(("head".to_owned(), "F32", vec![2]));
    let run = RunTensors {
        aside: vec![head.clone()],
        ..run()
    };
    let begin = || {
        let mut config = config(dir.path(), &script);
        config.state = Some(state.path().to_owned());
        let mut learner = TrainerLearner::new(config).unwrap();
        learner.join(&run).unwrap();
        learner
    };
    let path = state
        .path()
        .join("local")
        .join(format!("r-{}.safetensors", run.instance));
    let stored = || {
        let bytes = fs::read(&path).unwrap();
        let file = TensorFile::parse(&bytes).unwrap();
        let values = file
            .raw(&head)
            .unwrap()
            .as_chunks()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b));
        values.collect::<Vec<f32>>()
    };
    for (round, expected) in [(1, 1.25), (2, 2.25)] {
        train(&mut begin(), round).unwrap();
        assert_eq!(stored(), [expected; 2]);
    }
    let kept = path.with_extension("kept").join("joins");
    assert_eq!(
        fs::read(kept).unwrap(),
        b"11",
        "what a trainer keeps outlives the client, too"
    );
    fs::write(&path, "broken").unwrap();
    let why = format!("{:#}", train(&mut begin(), 3).unwrap_err());
    assert!(
        why.contains(path.to_str().unwrap()) && why.contains("delete it"),
        "{why}"
    );
}

/// Ends only by a kill: a client whose trainer runs. Prints the process group.
#[test]
fn client_to_be_killed() {
    let Ok(folder) = std::env::var("FL_KILLED_CLIENT") else {
        return;
    };
    let mut learner = joined(config(Path::new(&folder), &script()));
    train(&mut learner, 1).unwrap();
    println!("\ngroup {}", group_of(&mut learner));
    loop {
        std::thread::park();
    }
}

#[test]
fn a_client_that_is_killed_leaves_no_process_and_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "trainer::tests::client_to_be_killed", "--nocapture"])
        .env("FL_KILLED_CLIENT", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let group = lines.find_map(|line| {
        line.unwrap()
            .strip_prefix("group ")
            .map(|group| group.parse::<i32>().unwrap())
    });
    let group = group.unwrap();
    assert!(!members(group).is_empty());
    client.kill().unwrap();
    client.wait().unwrap();
    while !members(group).is_empty() || fs::read_dir(dir.path()).unwrap().count() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_round_is_for_the_trainer_that_attaches_next_if_one_leaves_it() {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("trainer.sock");
    let mut learner = joined(TrainerConfig::new("t", Source::Attach(socket.clone()), dir.path()));
    assert!(learner.evaluate().unwrap().is_none(), "nobody is attached");
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    learner.load(&[0.0; 43]).unwrap();
    let hello = r#"{"type":"hello","version":1,"tensors":[{"name":"a.weight","dtype":"F32","shape":[8,5]},{"name":"b.bias","dtype":"F32","shape":[3]}]}"#;
    let attach = || {
        let mut trainer = UnixStream::connect(&socket).unwrap();
        let mut lines = BufReader::new(trainer.try_clone().unwrap()).lines().map(Result::unwrap);
        assert!(lines.next().unwrap().contains("\"type\":\"start\""));
        writeln!(trainer, "{hello}").unwrap();
        (trainer, lines)
    };
    let turned_away = || {
        let second = UnixStream::connect(&socket).unwrap();
        let line = BufReader::new(second).lines().next().unwrap().unwrap();
        assert!(
            line.contains("bye") && line.contains("another trainer is attached"),
            "{line}"
        );
    };
    let (mut trainer, mut lines) = attach();
    turned_away();
    let plan = plan(1);
    let training = std::thread::spawn(move || (learner.fit(&plan).unwrap_err(), learner));
    for says_bye in [false, true, false] {
        assert!(lines.next().unwrap().contains("\"type\":\"join\""));
        assert!(lines.next().unwrap().contains("\"type\":\"fit\""));
        turned_away();
        if says_bye {
            writeln!(trainer, r#"{{"type":"bye"}}"#).unwrap();
        }
        trainer.shutdown(std::net::Shutdown::Write).unwrap();
        // Until it closes the connection, the client takes another trainer for a second one.
        assert!(lines.all(|line| line.contains("bye")));
        (trainer, lines) = attach();
    }
    assert!(lines.next().unwrap().contains("\"type\":\"join\""));
    assert!(lines.next().unwrap().contains("\"type\":\"fit\""));
    writeln!(trainer, r#"{{"type":"failed","message":"a bad cell"}}"#).unwrap();
    let (why, learner) = training.join().unwrap();
    assert_eq!(why.to_string(), "a bad cell");
    drop(learner);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_attached_trainer_of_another_model_is_told_why() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("trainer.sock");
    let mut learner = joined(TrainerConfig::new("t", Source::Attach(socket.clone()), dir.path()));
    assert!(learner.evaluate().unwrap().is_none());
    learner.load(&[0.0; 43]).unwrap();
    let mut trainer = UnixStream::connect(&socket).unwrap();
    let mut lines = BufReader::new(trainer.try_clone().unwrap()).lines().map(Result::unwrap);
    writeln!(trainer, r#"{{"type":"hello","version":1,"tensors":[]}}"#).unwrap();
    let why = learner.fit(&plan(1)).unwrap_err().to_string();
    assert!(why.contains("a.weight"), "{why}");
    let bye = lines.nth(1).unwrap();
    assert!(bye.contains("\"bye\"") && bye.contains("a.weight"), "{bye}");
}
