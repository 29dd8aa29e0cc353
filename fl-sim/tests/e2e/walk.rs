//! The steps of the README in separate processes: found a federation, issue two clients, serve, take part, observe the
//! run during and after, export the model. Then common mistakes: a certificate of another federation, an unknown key, a
//! truncated data file.

use std::process::Command;
use std::sync::mpsc::channel;

use crate::fixtures::COMPRESSED;
use crate::fixtures::fed::Fed;
use crate::fixtures::process::{Process, done, fails, wait_for};

const ROUNDS: u64 = 3;
const SERVER: usize = 0;

fn run_toml() -> String {
    format!(
        "name = \"walk\"\ntask = \"digits\"\nrounds = {ROUNDS}\nseed = 1\n\
         [cohort]\nmin = 2\ntarget = 2\n\
         [train]\nepochs = 2\nbatch_size = 20\nlearning_rate = 0.1\n{COMPRESSED}"
    )
}

fn digits(client: u32) -> String {
    format!(
        "[tasks.digits]\nlearner = \"mlp\"\ndata = {{ builtin = {{ client = {client}, train = 300, test = 100 }} }}"
    )
}

#[test]
fn a_federation_of_processes_is_set_up_watched_and_its_model_taken_home() {
    let fed = Fed::found();
    fed.issue("anna", &digits(0));
    fed.issue("berta", &digits(1));
    fed.plan(&run_toml(), "mlp", 1);
    let checked = done(fed.sim(&["server", "check", "run.toml"]));
    assert!(
        checked.contains("valid: run `walk`") && !checked.contains("not there yet"),
        "{checked}"
    );
    assert!(done(fed.sim(&["server", "check", "fed/server.toml"])).contains(&fed.address));
    let checked = done(fed.sim(&["client", "check", "anna/client.toml"]));
    assert!(
        checked.contains("task digits: mlp, 159010 parameters; 300 examples"),
        "{checked}"
    );
    assert!(done(fed.sim(&["server", "status", "fed"])).contains("no run yet"));

    let (sender, lines) = channel();
    let mut server = Process::start(fed.serve(&["--exit-when-done"]), SERVER, 1, &sender);
    let said = wait_for(&lines, SERVER, "serving `walk` on");
    assert!(said.ends_with(&fed.address), "{said}");
    let mut anna = Process::start(fed.client("anna"), 1, 1, &sender);
    wait_for(&lines, 1, "connected");
    // The run waits for two clients, so the output of `status` is deterministic here.
    let status = done(fed.sim(&["server", "status", "fed"]));
    assert!(
        status.contains("serving `walk` on") && status.contains("walk: waiting; 0 of 3 rounds closed"),
        "{status}"
    );
    assert!(done(fed.sim(&["server", "health", "fed"])).contains("healthy: serving `walk` on"));
    let health = done(fed.sim(&["client", "health", "anna/client.toml", "--joined"]));
    assert_eq!(health, "healthy: the client joined run `walk`\n");
    fails(
        fed.sim(&["client", "health", "berta/client.toml"]),
        1,
        &["no client runs with the state folder"],
    );
    let mut berta = Process::start(fed.client("berta"), 2, 1, &sender);
    let said = wait_for(&lines, SERVER, "done: version 3, digest ");
    assert!(anna.end().success() && berta.end().success() && server.end().success());

    let report = fed.report();
    assert_eq!(
        (report.run.state.as_str(), report.run.version, report.balanced),
        ("done", ROUNDS, true)
    );
    assert!(said.contains(&report.run.model), "{said}");
    assert!(report.rounds.iter().all(|round| round.updates == 2 && round.closed));
    for tensor in &report.tensors {
        assert_eq!(tensor.fidelity.figures, tensor.section.frames, "{tensor:?}");
        assert!(
            tensor.fidelity.cosine.unwrap() > 0.1 && tensor.fidelity.kept.unwrap() > 0.0,
            "{tensor:?}"
        );
    }
    let text = done(fed.sim(&["server", "report", "fed"]));
    assert!(
        text.contains("equal to the byte") && text.contains(&report.run.model) && text.contains("anna"),
        "{text}"
    );
    assert!(done(fed.sim(&["server", "status", "fed"])).contains("not serving\nwalk: done; 3 of 3 rounds closed"));

    let exported = done(fed.sim(&["server", "export", "fed", "-o", "model.safetensors"]));
    assert!(exported.contains(&report.run.model), "{exported}");
    let evaluated = |config: &str| -> serde_json::Value {
        let evaluate = [
            "client",
            "evaluate",
            "model.safetensors",
            "--config",
            config,
            "--format",
            "json",
        ];
        serde_json::from_str(&done(fed.sim(&evaluate))).unwrap()
    };
    let all = [evaluated("anna/client.toml"), evaluated("berta/client.toml")];
    let correct: f64 = all.iter().map(|one| one["correct"].as_f64().unwrap()).sum();
    let last = report.rounds.last().unwrap();
    let accuracy = last.accuracy.expect("the last model was evaluated");
    assert_eq!(last.evaluated, 200);
    assert!(
        (accuracy - correct / 200.0).abs() < 1e-12,
        "{last:?} in the report, {correct} correct at home"
    );
    assert!(accuracy > 0.3, "{last:?}");
}

/// The commands of the README, with fewer rounds and the ports and devices of a test.
#[test]
fn the_readme_takes_a_newcomer_to_a_model_without_a_file_to_edit() {
    let fed = Fed::found();
    let data = "{ builtin = { client = {i}, train = 200, test = 50 } }";
    let task = ["--task", "digits", "--learner", "mlp", "--data", data];
    let issued = done(
        fed.sim(
            &[
                &["server", "issue", "camera", "--count", "3", "--fed", "fed"],
                &task[..],
            ]
            .concat(),
        ),
    );
    assert!(issued.contains("issued `camera-02`"), "{issued}");
    let new = [
        "server", "new", "digits", "--task", "digits", "--rounds", "2", "--target", "3", "-o", "run.toml",
    ];
    let said = done(fed.sim(&new));
    assert!(
        said.contains("fl-client init --learner NAME -o init.safetensors"),
        "{said}"
    );
    fails(
        fed.sim(&["server", "check", "run.toml"]),
        2,
        &["init.safetensors is not there", "fl-client init"],
    );
    let init = ["client", "init", "--learner", "mlp", "-o", "init.safetensors"];
    assert!(done(fed.sim(&init)).contains("159010 parameters, seed 42"));
    let checked = done(fed.sim(&["server", "check", "run.toml"]));
    assert!(
        checked.contains("clients with learner `mlp` make them from seed 42 and download nothing"),
        "{checked}"
    );

    let (sender, lines) = channel();
    let mut server = Process::start(fed.serve(&["--exit-when-done"]), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving `digits` on");
    let mut clients = [0, 1, 2].map(|at| {
        let name = format!("camera-0{at}");
        Process::start(fed.client(&name), 1 + at, 1, &sender)
    });
    wait_for(&lines, SERVER, "done: version 2, digest ");
    assert!(clients.iter_mut().all(|client| client.end().success()) && server.end().success());
    let report = fed.report();
    assert_eq!((report.run.state.as_str(), report.balanced), ("done", true));
    // As `check` estimated: no client downloads the initial weights.
    assert_eq!(report.totals.snapshot, 0);
}

#[test]
fn a_run_begun_anew_gets_nothing_of_what_clients_kept_of_the_one_before() {
    let fed = Fed::found();
    fed.issue("anna", &digits(0));
    fed.issue("berta", &digits(1));
    fed.plan(&run_toml(), "mlp", 1);
    let run = || {
        let (sender, lines) = channel();
        let mut server = Process::start(fed.serve(&["--exit-when-done"]), SERVER, 1, &sender);
        wait_for(&lines, SERVER, "serving `walk` on");
        let mut clients = ["anna", "berta"].map(|name| Process::start(fed.client(name), 1, 1, &sender));
        let said = wait_for(&lines, SERVER, "done: version 3, digest ");
        assert!(clients.iter_mut().all(|client| client.end().success()) && server.end().success());
        said
    };
    let first = run();
    std::fs::remove_dir_all(fed.path("fed/data")).unwrap();
    assert_eq!(run(), first);
    for name in ["anna", "berta"] {
        assert_eq!(fed.path(name).join("state/aside").read_dir().unwrap().count(), 1);
    }
}

#[test]
fn an_issued_configuration_is_right_when_its_examples_are_uncommented() {
    let fed = Fed::found();
    fed.issue("anna", "");
    let path = fed.path("anna/client.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let is_example = |line: &&str| line.contains(" = ") || line.starts_with('[') || line.contains(" = {");
    let example = text
        .lines()
        .map(|line| line.strip_prefix('#').filter(is_example).unwrap_or(line));
    let example = example
        .filter(|line| !line.starts_with(' '))
        .collect::<Vec<_>>()
        .join("\n");
    std::fs::write(&path, example).unwrap();
    // All keys are valid, but the data is missing.
    let missing = "data/fashion-mnist/train-images-idx3-ubyte";
    fails(
        fed.sim(&["client", "check", "anna/client.toml"]),
        2,
        &["task mlp", missing],
    );
}

#[test]
fn a_client_of_another_federation_is_turned_away_with_3_and_told_why() {
    let (ours, theirs) = (Fed::found(), Fed::found());
    ours.plan(&run_toml(), "mlp", 1);
    theirs.issue("eve", &digits(0));
    let (sender, lines) = channel();
    let mut server = Process::start(ours.serve(&[]), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving");
    let knock = || -> Command {
        let mut client = theirs.client("eve");
        client.args(["--server", &ours.address]);
        client
    };
    fails(knock(), 3, &["another federation"]);
    // Now Eve trusts this server, but her own certificate is still of the other authority.
    std::fs::copy(ours.path("fed/authority.pem"), theirs.path("eve/authority.pem")).unwrap();
    fails(knock(), 3, &["another authority", "`certificate`"]);
    fails(
        theirs.sim(&["client", "check", "eve/client.toml"]),
        2,
        &["another authority"],
    );
    server.terminate();
    assert!(server.end().success(), "only a signal stops the server");
}

/// Neither error is transient, so no client hangs with `--exit-when-done`.
#[test]
fn a_client_that_can_never_take_part_ends_with_a_code_of_its_own() {
    let fed = Fed::found();
    fed.issue("anna", &digits(0).replace("[tasks.digits]", "[tasks.letters]"));
    fed.issue("berta", &digits(1));
    fed.plan(&run_toml(), "mlp", 1);
    std::fs::write(fed.path("fed/revoked"), "berta\n").unwrap();
    let (sender, lines) = channel();
    let mut server = Process::start(fed.serve(&[]), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving");
    fails(fed.client("anna"), 5, &["digits", "letters"]);
    fails(fed.client("berta"), 3, &["revoked"]);
    let status = done(fed.sim(&["server", "status", "fed"]));
    for turned in ["turned away anna (task; ", "turned away berta (revoked; "] {
        assert!(status.contains(turned), "{status}");
    }
    server.terminate();
    assert!(server.end().success());
}

#[test]
fn a_mistyped_key_is_named_with_2() {
    let fed = Fed::found();
    fed.issue("anna", &digits(0).replace("learner", "lerner"));
    fed.plan(&run_toml(), "mlp", 1);
    let write = |name: &str, text: &str| std::fs::write(fed.path(name), text).unwrap();
    let run = std::fs::read_to_string(fed.path("run.toml")).unwrap();
    for (from, to, named) in [
        ("epochs = 2", "epoch = 2", "epoch"),
        ("rounds = 3", "rounds = 0", "rounds"),
        ("top_k = 0.1", "top_k = 1.5", "top_k"),
        ("min = 2", "min = 3", "min"),
        ("seed = 1", "seed = ", "seed"),
    ] {
        assert!(run.contains(from));
        write("broken.toml", &run.replace(from, to));
        fails(fed.sim(&["server", "check", "broken.toml"]), 2, &["broken.toml", named]);
        let serve = ["server", "serve", "fed", "--run", "broken.toml"];
        fails(fed.sim(&serve), 2, &["broken.toml", named]);
    }
    write("server.toml", "listn = \"127.0.0.1:1\"");
    fails(
        fed.sim(&["server", "check", "server.toml"]),
        2,
        &["server.toml", "listn"],
    );
    for command in ["check", "run"] {
        fails(
            fed.sim(&["client", command, "anna/client.toml"]),
            2,
            &["anna/client.toml", "lerner"],
        );
    }
}

#[test]
fn a_data_file_cut_short_is_named() {
    let fed = Fed::found();
    let data = "data = { idx = { dir = \"images\" } }";
    fed.issue("anna", &format!("[tasks.digits]\nlearner = \"mlp\"\n{data}"));
    fed.plan(&run_toml().replace("= 2\n", "= 1\n"), "mlp", 1);
    std::fs::create_dir(fed.path("anna/images")).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(fed.path("anna/images").join(name), bytes).unwrap();
    // Twenty images of 28x28 pixels with labels, for training and for testing.
    let header = |kind: u8, sizes: &[u32]| {
        let sizes = sizes.iter().flat_map(|size| size.to_be_bytes());
        [0, 0, 8, kind].into_iter().chain(sizes).collect::<Vec<u8>>()
    };
    let images = [header(3, &[20, 28, 28]), vec![7; 20 * 28 * 28]].concat();
    let labels = [header(1, &[20]), (0..20).map(|i| i % 10).collect()].concat();
    for set in ["train", "t10k"] {
        write(&format!("{set}-images-idx3-ubyte"), &images);
        write(&format!("{set}-labels-idx1-ubyte"), &labels);
    }
    let check = || fed.sim(&["client", "check", "anna/client.toml"]);
    assert!(done(check()).contains("20 examples to train on, 20 held out"));

    for (name, whole) in [
        ("train-images-idx3-ubyte", &images),
        ("t10k-labels-idx1-ubyte", &labels),
    ] {
        for len in [0, 3, 8, whole.len() - 1] {
            write(name, &whole[..len]);
            fails(check(), 2, &[name]);
        }
        let evaluate = ["client", "evaluate", "init.safetensors", "--config", "anna/client.toml"];
        fails(fed.sim(&evaluate), 2, &[name]);
        write(name, whole);
    }

    let (sender, lines) = channel();
    let server = Process::start(fed.serve(&[]), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving");
    write("train-images-idx3-ubyte", &images[..9000]);
    fails(fed.client("anna"), 1, &["train-images-idx3-ubyte"]);
    drop(server);
}
