//! `fl-client check --online` over real TLS: what it finds of a server, a device and the way between them, and that it takes no part.

use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use fl_proto::{Authority, Issued};
use serde_json::Value;
use time::{Duration, OffsetDateTime};

use crate::fixtures::fed::{Fed, free_port};
use crate::fixtures::process::{Line, Process, done, output, wait_for};

const SERVER: usize = 0;
/// The user `nobody`.
const NOBODY: u32 = 65_534;

fn task(learner: &str) -> String {
    format!("[tasks.digits]\nlearner = \"{learner}\"\ndata = {{ builtin = {{ client = 0, train = 60, test = 20 }} }}\n")
}

/// A federation whose run waits for two clients, `anna` and `berta`.
fn found() -> Fed {
    let fed = Fed::found();
    ["anna", "berta", "carl"]
        .iter()
        .for_each(|name| fed.issue(name, &task("mlp")));
    fed.plan_walk(2);
    fed
}

fn serve(fed: &Fed, options: &[&str]) -> (Process, Receiver<Line>) {
    let (sender, lines) = channel();
    let server = Process::start(fed.serve(options), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving `walk` on");
    (server, lines)
}

fn check(fed: &Fed, name: &str, more: &[&str]) -> Command {
    let config = format!("{name}/client.toml");
    fed.sim(&[&["client", "check", &config, "--format", "json"], more].concat())
}

/// Exit code and result of a check.
fn checked(command: Command) -> (Option<i32>, Value) {
    let (status, stdout, stderr) = output(command);
    assert!(!stderr.contains("panicked"), "{stderr}");
    let result = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}\n{stderr}"));
    (status.code(), result)
}

/// Level and text of the last line about something.
fn line<'a>(result: &'a Value, check: &str) -> (&'a str, &'a str) {
    let lines = result["lines"].as_array().unwrap();
    let found = lines.iter().rfind(|line| line["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no line `{check}` in {result:#}"));
    (found["level"].as_str().unwrap(), found["text"].as_str().unwrap())
}

/// Asserts the level of the last line of a result and a part of its text.
fn ends_with(result: &Value, check: &str, part: &str) {
    let last = &result["lines"].as_array().unwrap().last().unwrap()["check"];
    assert_eq!(last, check, "{result:#}");
    let (level, text) = line(result, check);
    assert!(level == "wrong" && text.contains(part), "{part}: {result:#}");
    assert_eq!(result["verdict"], "wrong");
}

#[test]
fn a_good_client_is_checked_without_taking_part_and_every_byte_is_booked() {
    let fed = found();
    let (mut server, lines) = serve(&fed, &["--exit-when-done"]);
    let online = ["--online", "--dry-run", "2"];
    let (code, result) = checked(check(&fed, "carl", &online));
    assert_eq!(
        (code, &result["verdict"]),
        (Some(0), &Value::from("good")),
        "{result:#}"
    );
    assert_eq!(
        (&result["kind"], &result["file"]),
        (&"client".into(), &"carl/client.toml".into())
    );
    let names: Vec<_> = result["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["check"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "configuration",
            "certificate",
            "key",
            "renewal",
            "state",
            "device",
            "task digits",
            "disk",
            "name",
            "port",
            "tls",
            "server",
            "clock",
            "run",
            "speed",
            "disk for the run",
            "layout",
            "training",
            "round",
        ]
    );
    for (name, part) in [
        ("tls", "belongs to the authority `"),
        ("server", "admits this client as `carl`; it speaks version 1."),
        ("clock", " the server's"),
        ("run", "`walk` of task `digits`, 2 rounds"),
        ("speed", "Mbit/s to the server"),
        ("layout", "tensors are the run's"),
        ("training", "2 steps in "),
        ("round", "the deadline is 5 min"),
    ] {
        assert!(line(&result, name).1.contains(part), "{name}: {result:#}");
    }
    let round = &result["round"];
    assert_eq!(round["deadline_s"], 300.0);
    for figure in ["training_s", "transfer_s", "up", "down"] {
        assert!(round[figure].as_f64().unwrap() > 0.0, "{figure}: {round:#}");
    }
    assert_eq!(
        round["first"], 0,
        "the learner makes the run's first weights: {round:#}"
    );
    // Of the two that the run waits for, one is there: a check does not count, and pushes out no client of its certificate.
    let (sender, said) = channel();
    let mut anna = Process::start(fed.client("anna"), 1, 1, &sender);
    wait_for(&said, 1, "connected");
    let status = done(fed.sim(&["server", "status", "fed"]));
    assert!(status.contains("walk: waiting; 0 of 2 rounds closed"), "{status}");
    assert_eq!(checked(check(&fed, "anna", &["--online"])).0, Some(0));
    let mut berta = Process::start(fed.client("berta"), 2, 1, &sender);
    wait_for(&lines, SERVER, "done: version 2");
    assert!(server.end().success() && anna.end().success() && berta.end().success());
    let report = fed.report();
    assert!(report.balanced);
    let listed = done(fed.sim(&["server", "clients", "list", "--fed", "fed", "--format", "json"]));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let seen = |name: &str| {
        let client = listed.as_array().unwrap().iter().find(|client| client["name"] == name);
        client.map_or(0, |client| client["updates"].as_u64().unwrap_or(0))
    };
    assert_eq!((seen("anna"), seen("berta"), seen("carl")), (2, 2, 0), "{listed:#}");
    // The 512 KiB of each check are in the ledger, on the client that made it.
    for name in ["carl", "anna"] {
        let client = report.clients.iter().find(|line| line.client == name).unwrap();
        for bytes in [client.flow.transport_up, client.flow.transport_down] {
            assert!((256 * 1024..300 * 1024).contains(&bytes), "{client:?}");
        }
    }
    assert!(
        report
            .participations
            .iter()
            .all(|line| line.client != "carl" || !line.asked)
    );
}

#[test]
fn a_server_that_is_down_foreign_or_has_no_name_is_told_apart() {
    let (fed, other) = (found(), found());
    let online = |fed: &Fed, server: &str| {
        let path = fed.path("anna/client.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let is_other = |line: &&str| !line.starts_with("server = ");
        let rest: Vec<_> = text.lines().filter(is_other).collect();
        std::fs::write(&path, format!("server = \"{server}\"\n{}\n", rest.join("\n"))).unwrap();
        checked(check(fed, "anna", &["--online"]))
    };
    let (code, result) = online(&fed, &fed.address);
    assert_eq!(code, Some(3), "{result:#}");
    ends_with(&result, "port", "nothing listens at 127.0.0.1:");
    let (_server, _lines) = serve(&other, &[]);
    let (code, result) = online(&fed, &other.address);
    assert_eq!(code, Some(3), "{result:#}");
    ends_with(&result, "tls", "belongs to another federation");
    let (code, result) = online(&fed, "no-such-host.invalid:7070");
    assert_eq!(code, Some(3), "{result:#}");
    ends_with(&result, "name", "no-such-host.invalid:7070 cannot be resolved");
}

#[test]
fn a_revoked_client_another_task_and_another_model_are_wrong() {
    let fed = found();
    let (_server, _lines) = serve(&fed, &[]);
    // The server's part is 3; what client.toml cures is 2.
    let online = |name: &str, expected: i32| {
        let (code, result) = checked(check(&fed, name, &["--online"]));
        assert_eq!(code, Some(expected), "{result:#}");
        result
    };
    std::fs::write(fed.path("fed/revoked"), "anna\n").unwrap();
    ends_with(&online("anna", 3), "server", "client `anna` is revoked");
    let bind = |name: &str, from: &str, to: &str| {
        let path = fed.path(name).join("client.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(from, to)).unwrap();
    };
    bind("berta", "[tasks.digits]", "[tasks.letters]");
    ends_with(
        &online("berta", 2),
        "run",
        "this run needs task `digits`; bind it in client.toml",
    );
    bind("carl", "learner = \"mlp\"", "learner = \"cnn\"");
    let result = online("carl", 2);
    let (level, text) = line(&result, "layout");
    assert!(
        level == "wrong" && text.contains("differs from the run's model"),
        "{result:#}"
    );
    assert!(result["round"]["first"].as_u64().unwrap() > 0, "{result:#}");
}

#[test]
fn a_clock_that_is_ten_years_off_is_reported_with_its_offset() {
    let fed = found();
    let (_server, _lines) = serve(&fed, &[]);
    let years = 3_653 * 86_400;
    for (ahead, offset, certificate) in [
        (
            years,
            "this device's clock is 3653 days ahead of the server's",
            "expired on",
        ),
        (
            -years,
            "this device's clock is 3653 days behind the server's",
            "and the certificate was issued on",
        ),
    ] {
        let (code, result) = checked(check(&fed, "anna", &["--online", "--ahead", &ahead.to_string()]));
        // By its clock, the device's own certificate is wrong as well.
        assert_eq!(code, Some(2), "{result:#}");
        assert!(line(&result, "certificate").1.contains(certificate), "{result:#}");
        let (level, text) = line(&result, "clock");
        assert!(level == "wrong" && text.contains(offset), "{result:#}");
    }
    let (code, result) = checked(check(&fed, "anna", &["--online", "--ahead", "7200"]));
    assert_eq!((code, line(&result, "clock").0), (Some(0), "warning"), "{result:#}");
}

#[test]
fn a_clock_behind_with_a_certificate_that_has_expired_is_named() {
    let fed = found();
    let read = |name: &str| std::fs::read_to_string(fed.path(name)).unwrap();
    let authority = Authority::from_pem(&Issued {
        certificate: read("fed/authority.pem"),
        key: read("fed/authority.key"),
    });
    let begins = OffsetDateTime::now_utc() - Duration::days(30);
    let own = authority
        .unwrap()
        .issue_client(&"anna".parse().unwrap(), begins, Duration::days(25))
        .unwrap();
    std::fs::write(fed.path("anna/client.pem"), &own.certificate).unwrap();
    std::fs::write(fed.path("anna/client.key"), &own.key).unwrap();
    let (_server, _lines) = serve(&fed, &[]);
    let (code, result) = checked(check(&fed, "anna", &["--online", "--ahead", "-1728000"]));
    assert_eq!(code, Some(2), "{result:#}");
    assert_eq!(line(&result, "certificate").0, "good", "{result:#}");
    let (level, text) = line(&result, "clock");
    assert!(
        level == "wrong" && text.contains("19 days slow; set the clock"),
        "{result:#}"
    );
    // By the right clock, the certificate's line names the date first: it may be the clock that is wrong.
    let (code, result) = checked(check(&fed, "anna", &[]));
    let (level, text) = line(&result, "certificate");
    assert!(
        code == Some(2) && level == "wrong" && text.starts_with("this device's clock says"),
        "{result:#}"
    );
}

#[test]
fn the_enrollment_port_is_not_taken_for_an_old_server() {
    let fed = found();
    let rewrite = |name: &str, key: &str, value: &str| {
        let path = fed.path(name);
        let text = std::fs::read_to_string(&path).unwrap();
        let rest: Vec<_> = text
            .lines()
            .filter(|line| !line.starts_with(&format!("{key} = ")))
            .collect();
        std::fs::write(&path, format!("{key} = \"{value}\"\n{}\n", rest.join("\n"))).unwrap();
    };
    let port = format!("127.0.0.1:{}", free_port());
    rewrite("fed/server.toml", "enroll", &port);
    rewrite("anna/client.toml", "server", &port);
    // The port is open while a token is.
    let (sender, lines) = channel();
    let _server = Process::start(fed.serve(&["--enroll", "dora"]), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving `walk` on");
    wait_until_open(&port);
    let (code, result) = checked(check(&fed, "anna", &["--online"]));
    assert_eq!(code, Some(3), "{result:#}");
    ends_with(
        &result,
        "server",
        "is not the main port of a server; is it the enrollment port",
    );
    let (status, _, stderr) = output(fed.client("anna"));
    assert!(
        !status.success() && stderr.contains("is not the main port of a server; is it the enrollment port"),
        "{stderr}"
    );
}

/// Returns when something listens: a server opens its enrollment port after the main one.
fn wait_until_open(address: &str) {
    let until = Instant::now() + std::time::Duration::from_secs(30);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < until, "nothing listens at {address}");
        std::thread::yield_now();
    }
}

#[test]
fn a_server_that_measures_no_more_still_checks_clock_run_and_layout() {
    let fed = found();
    let (_server, _lines) = serve(&fed, &[]);
    let speed = || {
        let (code, result) = checked(check(&fed, "anna", &["--online"]));
        assert_eq!((code, line(&result, "layout").0), (Some(0), "good"), "{result:#}");
        let (level, text) = line(&result, "speed");
        (level.to_owned(), text.to_owned())
    };
    for _ in 0..12 {
        assert_eq!(speed().0, "good");
    }
    let (level, text) = speed();
    assert!(
        level == "warning" && text.starts_with("not measured: client `anna` has measured its connection 12 times"),
        "{text}"
    );
}

#[test]
fn a_folder_without_write_permission_cannot_be_renewed_in() {
    let fed = found();
    let folder = fed.path("anna");
    std::fs::create_dir(folder.join("state")).unwrap();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let mut command = check(&fed, "anna", &[]);
    if folder.metadata().unwrap().uid() == 0 {
        // No permission keeps root out: the check runs as another user, who can read the files.
        mode(fed.path("").as_path(), 0o755);
        mode(&folder, 0o755);
        for file in ["client.key", "client.pem", "authority.pem", "client.toml", "state"] {
            chown(folder.join(file), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let program = fed.path("fl-sim");
        std::fs::copy(command.get_program(), &program).unwrap();
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        command = Command::new(program);
        command.args(args).current_dir(fed.path("")).uid(NOBODY).gid(NOBODY);
    } else {
        mode(&folder, 0o555);
    }
    let (code, result) = checked(command);
    mode(&folder, 0o755);
    assert_eq!((code, &result["verdict"]), (Some(0), &"warning".into()), "{result:#}");
    let (level, text) = line(&result, "renewal");
    assert!(
        level == "warning" && text.contains("the certificate cannot be renewed there"),
        "{result:#}"
    );
}
