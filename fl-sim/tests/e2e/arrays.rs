//! Data without code: three clients, each a process, train on arrays that they share by a file of assignments.

use std::fmt::Write as _;
use std::fs;
use std::sync::mpsc::channel;

use fl_learn::data::{Features, Hand, draw};

use crate::fixtures::COMPRESSED;
use crate::fixtures::fed::Fed;
use crate::fixtures::process::{Process, done, fails, wait_for};

const CLIENTS: [&str; 3] = ["anna", "berta", "carla"];
const EACH: usize = 300;
const ROUNDS: u64 = 5;
const SERVER: usize = 0;

/// A npy file of bytes.
fn npy(shape: &[usize], values: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape:?}, }}\n").replace('[', "(");
    let text = text.replace(']', ",)");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.bytes());
    bytes.extend(values);
    bytes
}

/// Writes `digits/x.npy` and `digits/y.npy`, in which three hands take turns, and who has which digit.
fn write_digits(fed: &Fed) {
    fs::create_dir(fed.path("digits")).unwrap();
    let hands: Vec<_> = (0..3).map(|hand| draw(&Hand::new(42, hand), EACH).unwrap()).collect();
    let (mut x, mut y, mut rows) = (Vec::new(), Vec::new(), "index,client\n".to_owned());
    for at in 0..EACH {
        for (client, hand) in hands.iter().enumerate() {
            let Features::Bytes { values, .. } = hand.features() else {
                panic!("drawn sets are bytes")
            };
            let _ = writeln!(rows, "{},{client}", y.len());
            x.extend_from_slice(&values[at * 784..(at + 1) * 784]);
            y.push(hand.labels()[at]);
        }
    }
    let all = y.len();
    fs::write(fed.path("digits/x.npy"), npy(&[all, 28, 28], &x)).unwrap();
    fs::write(fed.path("digits/y.npy"), npy(&[all], &y)).unwrap();
    fs::write(fed.path("digits/clients.csv"), rows).unwrap();
}

fn task(client: usize) -> String {
    format!(
        "[tasks.digits]\nlearner = \"mlp\"\n[tasks.digits.data.arrays]\ndir = \"../digits\"\nx = \"x.npy\"\ny = \"y.npy\"\n\
         test = 0.2\nmean = 0.13\nstd = 0.26\nclient = {client}\nclients = 3\nsplit = {{ file = \"../digits/clients.csv\" }}"
    )
}

#[test]
fn clients_that_share_arrays_learn_them() {
    let fed = Fed::found();
    write_digits(&fed);
    for (at, name) in CLIENTS.iter().enumerate() {
        fed.issue(name, &task(at));
    }
    let checked = done(fed.sim(&["client", "check", "berta/client.toml"]));
    for part in [
        "task digits: mlp, 159010 parameters; 240 examples to train on, 60 held out",
        "examples of 1x28x28 (channels, height, width), 10 classes",
        "class  train  held out",
    ] {
        assert!(checked.contains(part), "{checked}");
    }
    fed.plan(
        &format!(
            "name = \"arrays\"\ntask = \"digits\"\nrounds = {ROUNDS}\nseed = 1\n[cohort]\nmin = 3\ntarget = 3\n\
             [train]\nepochs = 2\nbatch_size = 20\nlearning_rate = 0.1\n{COMPRESSED}"
        ),
        "mlp",
        1,
    );
    let (sender, lines) = channel();
    let mut server = Process::start(fed.serve(&["--exit-when-done"]), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving `arrays` on");
    let mut clients: Vec<Process> = (1..)
        .zip(CLIENTS)
        .map(|(who, name)| Process::start(fed.client(name), who, 1, &sender))
        .collect();
    wait_for(&lines, SERVER, &format!("done: version {ROUNDS}, digest "));
    assert!(clients.iter_mut().all(|client| client.end().success()) && server.end().success());

    let report = fed.report();
    assert!(report.balanced && report.rounds.iter().all(|round| round.updates == 3 && round.closed));
    let last = report.rounds.last().unwrap();
    assert_eq!(last.evaluated, 180);
    assert!(last.accuracy.unwrap() > 0.8, "ten classes, so chance is 0.1: {last:?}");

    // What `check` finds, before the server is asked.
    let y = fs::read(fed.path("digits/y.npy")).unwrap();
    fs::write(fed.path("digits/y.npy"), &y[..y.len() - 1]).unwrap();
    fails(
        fed.sim(&["client", "check", "anna/client.toml"]),
        2,
        &["digits/y.npy", "expected 900 bytes"],
    );
    fs::write(fed.path("digits/y.npy"), npy(&[900], &[200; 900])).unwrap();
    let text = fs::read_to_string(fed.path("anna/client.toml")).unwrap();
    fs::write(fed.path("anna/client.toml"), format!("{text}\nclasses = 10\n")).unwrap();
    fails(
        fed.sim(&["client", "check", "anna/client.toml"]),
        2,
        &["digits/y.npy: row 0: label 200", "`classes` is 10"],
    );
}
