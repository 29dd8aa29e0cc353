//! Enrollment in separate processes: a line becomes a running client; every interruption, and every wrong line.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use crate::fixtures::fed::{Fed, free_port};
use crate::fixtures::process::{Line, Process, done, fails, output, wait_for};
use crate::fixtures::proxy::{Act, Proxy};

const SERVER: usize = 0;
const TASK: [&str; 6] = [
    "--task",
    "digits",
    "--learner",
    "mlp",
    "--data",
    "{ builtin = { client = 0, train = 60, test = 20 } }",
];

/// A federation whose enrollment port is free, and a run of two clients.
fn found() -> Fed {
    let fed = Fed::found();
    let toml = fed.path("fed/server.toml");
    let text = std::fs::read_to_string(&toml).unwrap();
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with("enroll = "))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&toml, format!("{text}\nenroll = \"127.0.0.1:{}\"\n", free_port())).unwrap();
    fed.plan_walk(2);
    fed
}

fn serve(fed: &Fed, options: &[&str]) -> (Process, Receiver<Line>) {
    let (sender, lines) = channel();
    let server = Process::start(fed.serve(options), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving `walk` on");
    (server, lines)
}

/// The line that `enroll` prints.
fn line(fed: &Fed, args: &[&str]) -> String {
    let args = [&["server", "enroll", "--fed", "fed"], args].concat();
    let said = done(fed.sim(&args));
    said.trim().strip_prefix("fl-client enroll ").unwrap().to_owned()
}

fn enroll(fed: &Fed, line: &str, to: &str, more: &[&str]) -> Command {
    fed.sim(&[&["client", "enroll", line, "--to", to], more].concat())
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn two_lines_make_two_clients_that_finish_a_run() {
    let fed = found();
    let (mut server, lines) = serve(&fed, &["--exit-when-done"]);
    let mut clients = Vec::new();
    for (who, name) in [(1, "anna"), (2, "berta")] {
        let line = line(&fed, &[name]);
        let args = [&["client", "enroll", &line, "--to", name, "--run"][..], &TASK].concat();
        let (sender, said) = channel();
        clients.push((Process::start(fed.sim(&args), who, 1, &sender), said));
        wait_for(&clients.last().unwrap().1, who, &format!("enrolled as `{name}`"));
        wait_for(&lines, SERVER, &format!("{name} enrolled from 127.0.0.1"));
    }
    wait_for(&lines, SERVER, "done: version 2");
    assert!(server.end().success());
    clients.iter().for_each(|(client, _)| client.terminate());
    assert_eq!(mode(&fed.path("anna/client.key")), 0o600);
    let listed = done(fed.sim(&["server", "clients", "list", "--fed", "fed", "--format", "json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    for client in listed.as_array().unwrap() {
        assert_eq!(
            (client["state"].as_str(), client["updates"].as_u64()),
            (Some("active"), Some(2)),
            "{client}"
        );
        assert!(
            client["software"].as_str().unwrap().starts_with(char::is_numeric),
            "{client}"
        );
        assert_eq!(client["certificates"].as_array().unwrap().len(), 1);
    }
    let tokens = done(fed.sim(&["server", "tokens", "list", "--fed", "fed"]));
    assert_eq!(tokens.matches("1 of 1").count(), 2, "{tokens}");
    assert!(fed.report().balanced);
}

#[test]
fn one_line_of_the_serving_server_enrolls_two_devices() {
    let fed = found();
    let (sender, lines) = channel();
    let mut server = Process::start(
        fed.serve(&["--enroll", "cam-*", "--uses", "2", "--exit-when-done"]),
        SERVER,
        1,
        &sender,
    );
    let line = wait_for(&lines, SERVER, "fl-client enroll ");
    let line = line.strip_prefix("fl-client enroll ").unwrap().to_owned();
    wait_for(&lines, SERVER, "serving `walk` on");
    let mut devices = Vec::new();
    for (who, name) in [(1, "cam-00"), (2, "cam-01")] {
        let args = [&["client", "enroll", &line, "--to", name, "--run"][..], &TASK].concat();
        let (sender, said) = channel();
        let device = Process::start(fed.sim(&args), who, 1, &sender);
        wait_for(&said, who, &format!("enrolled as `{name}`"));
        devices.push((device, said));
    }
    wait_for(&lines, SERVER, "done: version 2");
    assert!(server.end().success());
}

#[test]
fn an_evaluator_is_never_asked_to_train_and_an_operator_takes_no_part() {
    let fed = found();
    let (mut server, lines) = serve(&fed, &["--exit-when-done"]);
    let role = |name: &str, role: &str| {
        let line = line(&fed, &[name, "--role", role]);
        let (status, _, said) = output(enroll(&fed, &line, name, &TASK));
        assert!(status.success(), "{said}");
        // An operator is shown what it can do, which is not to run.
        assert_eq!(
            (said.contains("fl-client run"), said.contains("next: curl --cacert ")),
            (role != "operator", role == "operator"),
            "{said}"
        );
        fed.sim(&["client", "run", &format!("{name}/client.toml"), "--exit-when-done"])
    };
    fails(role("olga", "operator"), 3, &["this certificate is an operator's"]);
    let (sender, said) = channel();
    // There first, so that each round could ask it.
    let mut judge = Process::start(role("judge", "evaluator"), 3, 1, &sender);
    wait_for(&said, 3, "connected");
    let [mut anna, mut berta] = ["anna", "berta"].map(|name| Process::start(role(name, "client"), 1, 1, &sender));
    wait_for(&said, 3, "evaluated version=");
    wait_for(&lines, SERVER, "done: version 2");
    assert!(server.end().success() && anna.end().success() && berta.end().success() && judge.end().success());
    drop(sender);
    let texts = said.iter().filter_map(|line| line.text);
    assert_eq!(texts.filter(|text| text.contains("the run is over")).count(), 3);
    let shown = done(fed.sim(&["server", "clients", "show", "judge", "--fed", "fed"]));
    assert!(
        shown.contains("role evaluator") && shown.contains(" 0 accepted"),
        "{shown}"
    );
    assert!(fed.report().balanced);
}

#[test]
fn a_device_killed_at_any_write_enrolls_when_the_line_is_typed_again() {
    let fed = found();
    let (_server, _lines) = serve(&fed, &[]);
    for kind in ["abort", "full"] {
        let mut reached = 0;
        for at in 1.. {
            let (name, fault) = (format!("{kind}-{at}"), format!("{kind}@{at}"));
            let line = line(&fed, &[&name]);
            let (status, _, stderr) = output(enroll(&fed, &line, &name, &["--fault", &fault]));
            let again = done(enroll(&fed, &line, &name, &[]));
            assert!(again.contains("ready: "), "{fault}: {again}");
            assert_eq!(mode(&fed.path(&format!("{name}/client.key"))), 0o600);
            assert!(done(fed.sim(&["client", "enroll", &line, "--to", &name])).contains("ready: "));
            if status.success() {
                break;
            }
            assert!(
                kind == "abort" || stderr.contains("type the same command again"),
                "{fault}: {stderr}"
            );
            reached = at;
        }
        assert!(reached >= 16, "{kind}: {reached} faults");
    }
}

#[test]
fn every_wrong_line_says_what_to_do_and_the_secret_goes_to_no_other_server() {
    let (fed, other) = (found(), found());
    let (_server, _lines) = serve(&fed, &[]);
    let (_other, _other_lines) = serve(&other, &[]);
    let good = line(&fed, &["anna"]);

    // One character wrong, another version, another text.
    let mut wrong = good.clone().into_bytes();
    let at = wrong.len() - 9;
    wrong[at] = if wrong[at] == b'A' { b'B' } else { b'A' };
    fails(
        enroll(&fed, &String::from_utf8(wrong).unwrap(), "a", &[]),
        2,
        &["copy the whole line again"],
    );
    fails(
        enroll(&fed, &good.replacen("fl1", "fl2", 1), "a", &[]),
        2,
        &["version 2", "update fl-client"],
    );
    fails(enroll(&fed, "hello", "a", &[]), 2, &["must begin with `fl1:`"]);

    // The server of another federation at the address of the line.
    let mut moved: fl_proto::EnrollmentLine = good.parse().unwrap();
    moved.address = line(&other, &["x"])
        .parse::<fl_proto::EnrollmentLine>()
        .unwrap()
        .address;
    fails(
        enroll(&fed, &moved.to_string(), "a", &[]),
        3,
        &["does not belong to the federation", "the secret was not sent"],
    );
    // The right server, and a secret that it does not know.
    let mut guess: fl_proto::EnrollmentLine = good.parse().unwrap();
    guess.secret = fl_proto::Secret::generate().unwrap();
    fails(
        enroll(&fed, &guess.to_string(), "a", &[]),
        3,
        &["no enrollment token with this secret"],
    );

    // The name is not the line's, then the line is used by a second device, then expired and revoked ones.
    fails(
        enroll(&fed, &good, "a", &["--name", "berta"]),
        3,
        &["is for `anna`, not for `berta`"],
    );
    done(enroll(&fed, &good, "anna", &[]));
    // A folder that is enrolled needs no line, unless it is to be enrolled again: then nothing is deleted for a wrong one.
    assert!(done(enroll(&fed, "$(LINE)", "anna", &[])).contains("ready: "));
    let (status, _, told) = output(enroll(&fed, "$(LINE)", "anna", &TASK));
    assert!(
        status.success() && told.contains("client.toml existed before and was not changed: add a table [tasks.digits]"),
        "{told}"
    );
    fails(
        enroll(&fed, "$(LINE)", "anna", &["--again"]),
        2,
        &["must begin with `fl1:`"],
    );
    assert!(done(enroll(&fed, "", "anna", &[])).contains("ready: "));
    fails(
        enroll(&fed, &good, "b", &[]),
        3,
        &["`anna` used this line on", "needs its own"],
    );
    let short = line(&fed, &["carl", "--ttl", "1s"]);
    let revoked = line(&fed, &["dora"]);
    let tokens = done(fed.sim(&["server", "tokens", "list", "--fed", "fed", "--format", "json"]));
    let tokens: serde_json::Value = serde_json::from_str(&tokens).unwrap();
    let dora = tokens
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["names"] == "dora")
        .unwrap();
    done(fed.sim(&[
        "server",
        "tokens",
        "revoke",
        dora["id"].as_str().unwrap(),
        "--fed",
        "fed",
    ]));
    let _open = line(&fed, &["other"]);
    fails(enroll(&fed, &revoked, "d", &[]), 3, &["was revoked on"]);
    // A folder that is enrolled keeps what it has until a line has brought something better.
    let own = || ["client.pem", "client.key"].map(|name| std::fs::read_to_string(fed.path("anna").join(name)).unwrap());
    let before = own();
    fails(enroll(&fed, &revoked, "anna", &["--again"]), 3, &["was revoked on"]);
    assert_eq!(own(), before);
    let again = line(&fed, &["anna", "--again"]);
    done(enroll(&fed, &again, "anna", &["--again"]));
    let after = own();
    assert!(after[0] != before[0] && after[1] != before[1]);
    assert!(!fed.path("anna/client.key.again").exists());
    fails(
        enroll(&fed, &again, "anna", &["--again"]),
        3,
        &["`anna` used this line on"],
    );
    assert_eq!(own(), after);
    while !done(fed.sim(&["server", "tokens", "list", "--fed", "fed"])).contains("expired") {}
    fails(enroll(&fed, &short, "c", &[]), 3, &["expired on"]);

    // A name that is taken, by a live client and by a revoked one.
    let taken = fed.sim(&["server", "enroll", "anna", "--fed", "fed"]);
    fails(taken, 1, &["`anna` is enrolled already", "--again"]);
    let any = line(&fed, &["*", "--uses", "9"]);
    fails(
        enroll(&fed, &any, "e", &["--name", "anna"]),
        3,
        &["`anna` is enrolled already"],
    );
    done(fed.sim(&["server", "clients", "revoke", "anna", "--why", "stolen", "--fed", "fed"]));
    fails(
        enroll(&fed, &any, "e", &["--name", "anna"]),
        3,
        &["`anna` is revoked", "clients restore anna"],
    );
    let revoked = fed.sim(&["client", "run", "anna/client.toml", "--exit-when-done"]);
    let no_task = fed.path("anna/client.toml");
    let text = std::fs::read_to_string(&no_task).unwrap();
    std::fs::write(
        &no_task,
        text + "\n[tasks.digits]\nlearner = \"mlp\"\ndata = { builtin = {} }\n",
    )
    .unwrap();
    fails(revoked, 3, &["client `anna` is revoked: stolen"]);
    // The device keeps its key, so the same command succeeds once there is a name.
    done(enroll(&fed, &any, "e", &["--name", "emil"]));

    // No folder to write to, and a line without a server.
    std::fs::write(fed.path("file"), "").unwrap();
    fails(enroll(&fed, &any, "file", &[]), 2, &["file is a file; name a folder"]);
    drop(_server);
    fails(
        enroll(&fed, &any, "f", &[]),
        1,
        &["nothing listens at", "ask the operator"],
    );
}

#[test]
fn of_two_devices_that_type_one_line_at_the_same_moment_one_is_enrolled() {
    let fed = found();
    let (_server, _lines) = serve(&fed, &[]);
    let line = line(&fed, &["anna"]);
    let commands = ["one", "two"].map(|to| enroll(&fed, &line, to, &[]));
    let both = commands.map(|command| std::thread::spawn(move || output(command)));
    let mut both = both.map(|device| device.join().unwrap());
    both.sort_by_key(|(status, ..)| status.code());
    let [(won, enrolled, _), (lost, _, told)] = both;
    assert!(won.success() && enrolled.contains("enrolled as `anna`"), "{enrolled}");
    assert_eq!(lost.code(), Some(3), "{told}");
    assert!(
        told.contains("`anna` used this line on") && told.contains("needs its own"),
        "{told}"
    );
    let folders = ["one", "two"].map(|to| fed.path(to).join("client.pem").exists());
    assert_eq!(folders.iter().filter(|enrolled| **enrolled).count(), 1);
}

#[test]
fn a_device_whose_connection_breaks_tries_again_and_uses_the_line_once() {
    let fed = found();
    let (_server, _lines) = serve(&fed, &[]);
    // In the handshake, in the answer, and after it.
    for (name, cut, times) in [("anna", 1, 2), ("berta", 1_500, 2), ("carl", 3_000, 0)] {
        let text = std::fs::read_to_string(fed.path("fed/server.toml")).unwrap();
        let port = text.lines().find_map(|line| line.strip_prefix("enroll = ")).unwrap();
        let proxy = Proxy::start(port.trim_matches('"'), [Act::CutAfter(cut), Act::CutAfter(cut)]);
        let line = line(&fed, &[name, "--server", &proxy.address]);
        let (status, said, told) = output(enroll(&fed, &line, name, &[]));
        assert!(
            status.success() && said.contains(&format!("enrolled as `{name}`")),
            "{told}"
        );
        assert_eq!(told.matches("trying again in").count(), times, "{name}: {told}");
    }
    let tokens = done(fed.sim(&["server", "tokens", "list", "--fed", "fed", "--format", "json"]));
    let tokens: serde_json::Value = serde_json::from_str(&tokens).unwrap();
    assert!(
        tokens.as_array().unwrap().iter().all(|token| token["used"] == 1),
        "{tokens}"
    );
}

#[test]
fn a_device_that_waits_for_approval_shows_the_words_that_the_operator_sees() {
    let fed = found();
    let (_server, _lines) = serve(&fed, &[]);
    let line = line(&fed, &["ward-*", "--approve", "--uses", "2"]);
    let (sender, said) = channel();
    let mut device = Process::start(enroll(&fed, &line, "w", &[]), 1, 1, &sender);
    let words = wait_for(&said, 1, "the same words: ");
    let words = words.split("the same words: ").nth(1).unwrap().to_owned();
    assert_eq!(words.split(' ').count(), 6, "{words}");
    let list = || done(fed.sim(&["server", "clients", "list", "--fed", "fed"]));
    assert!(list().contains(&words), "{}", list());
    // Killed and typed again, it waits again, with the same key.
    device.signal("-KILL");
    device.end();
    fails(
        fed.sim(&["server", "clients", "approve", "ward-00", "--fed", "fed"]),
        2,
        &[&words, "--yes"],
    );
    done(fed.sim(&["server", "clients", "approve", "ward-00", "--yes", "--fed", "fed"]));
    assert!(done(enroll(&fed, &line, "w", &[])).contains("enrolled as `ward-00`"));
    // Another one is denied.
    let mut device = Process::start(enroll(&fed, &line, "x", &[]), 1, 1, &sender);
    wait_for(&said, 1, "the same words: ");
    done(fed.sim(&["server", "clients", "deny", "ward-01", "--fed", "fed"]));
    wait_for(&said, 1, "denied this device the name `ward-01`");
    assert_eq!(device.end().code(), Some(3));
}

#[test]
fn a_device_without_a_network_is_enrolled_by_two_files() {
    let fed = found();
    let request = ["client", "request", "--to", "dark", "--name", "dark"];
    let path = done(fed.sim(&request));
    assert_eq!(path.trim(), "dark/client.csr");
    // The same key again.
    let key = std::fs::read_to_string(fed.path("dark/client.key")).unwrap();
    done(fed.sim(&request));
    assert_eq!(std::fs::read_to_string(fed.path("dark/client.key")).unwrap(), key);
    let sign = |file: &str, name: &str| fed.sim(&["server", "sign", file, "--name", name, "--fed", "fed"]);
    done(sign("dark/client.csr", "dark"));
    fails(
        sign("dark/client.csr", "dark"),
        2,
        &["`dark` has a certificate already", "--again"],
    );
    std::fs::write(
        fed.path("rsa.csr"),
        include_str!("../../../proto/tests/fixtures/rsa.csr"),
    )
    .unwrap();
    fails(sign("rsa.csr", "weak"), 2, &["rsa.csr", "a key of kind RSA"]);
    std::fs::write(fed.path("long.csr"), vec![b'x'; 1 << 20]).unwrap();
    fails(sign("long.csr", "long"), 2, &["long.csr", "more than"]);
    let install = |to: &str| {
        let install = ["client", "install", "dark.pem", "--server", &fed.address, "--to", to];
        fed.sim(&[&install[..], &TASK].concat())
    };
    done(fed.sim(&["client", "request", "--to", "other"]));
    fails(
        install("other"),
        2,
        &["dark.pem is not what `fl-server sign` wrote", "another key"],
    );
    fails(install("nowhere"), 2, &["client.key is missing"]);
    assert!(done(install("dark")).contains("installed `dark` until"));
    // It is a client like any other, and the registry learns of it.
    let (_server, _lines) = serve(&fed, &[]);
    let (sender, said) = channel();
    let _client = Process::start(fed.client("dark"), 1, 1, &sender);
    wait_for(&said, 1, "connected");
    let listed = || done(fed.sim(&["server", "clients", "list", "--fed", "fed"]));
    while !listed().contains("dark ") {}
    assert!(listed().contains(" active "), "{}", listed());
}
