//! The binary: exit codes, messages, signals.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use fl_proto::Phase;

use crate::support::{Call, Certificates, TASK, TestServer, World};

fn folder(server: &str, certificates: &Certificates) -> tempfile::TempDir {
    let task = "learner = 'mlp'\ndata = { builtin = { train = 20, test = 10 } }";
    folder_with(server, certificates, task)
}

/// The folder of a client with this task.
pub(crate) fn folder_with(server: &str, certificates: &Certificates, task: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("authority.pem", &certificates.authority.certificate);
    write("client.pem", &certificates.client.certificate);
    write("client.key", &certificates.client.key);
    write(
        "client.toml",
        &format!("server = '{server}'\nsync = false\n[tasks.{TASK}]\n{task}\n"),
    );
    dir
}

pub(crate) fn program(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fl-client"));
    command
        .current_dir(dir)
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(crate) fn fails(mut command: Command, code: i32, named: &str) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert_eq!(status.code(), Some(code), "{text}");
    assert!(text.contains(named), "{text}");
}

/// A server that keeps clients waiting.
fn waiting() -> TestServer {
    let mut world = World::new(1);
    world.phase = Phase::Waiting;
    world.publish();
    TestServer::start(world)
}

fn wait_until_joined(server: &TestServer, child: &mut Child) {
    while !server
        .world()
        .calls
        .iter()
        .any(|call| matches!(call, Call::Join { .. }))
    {
        assert!(child.try_wait().unwrap().is_none(), "the client ended");
        std::thread::yield_now();
    }
}

#[test]
fn a_check_shows_each_condition_and_hours_that_never_come_and_limits_below_a_model() {
    let certificates = Certificates::new("fed");
    let dir = folder("127.0.0.1:7070", &certificates);
    let path = dir.path().join("client.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let write = |more: &str| std::fs::write(&path, format!("{text}{more}")).unwrap();
    write("[when]\nhours = '00:00-24:00'\ncommand = ['false']\n[limits]\nper_day = '100kB'");
    let Output { status, stdout, .. } = program(dir.path(), &["check", "client.toml"]).output().unwrap();
    let shown = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{shown}");
    for part in [
        "when.hours: fulfilled, it is ",
        "when.command: not fulfilled, false exits with code 1",
        "the client may not train now",
        "limits.per_day: 100000 bytes are less than the whole model, 636040 bytes",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    write("[when]\nhours = '22:00-22:00'");
    fails(
        program(dir.path(), &["check", "client.toml"]),
        2,
        "`when.hours`: \"22:00-22:00\" never comes",
    );
    write("[limits]\nupload = '9600bit/s'");
    fails(
        program(dir.path(), &["check", "client.toml"]),
        2,
        "`limits.upload` is \"9600bit/s\"",
    );
}

#[test]
fn a_good_configuration_is_checked_with_0_and_a_bad_one_with_2_and_its_name() {
    let certificates = Certificates::new("fed");
    let dir = folder("127.0.0.1:7070", &certificates);
    let Output { status, stdout, .. } = program(dir.path(), &["check", "client.toml"]).output().unwrap();
    let text = String::from_utf8(stdout).unwrap();
    assert!(
        status.success() && text.contains("good until") && text.contains("20 examples"),
        "{text}"
    );

    let with = |device: &str| {
        let text = std::fs::read_to_string(dir.path().join("client.toml")).unwrap();
        std::fs::write(dir.path().join("device.toml"), format!("device = '{device}'\n{text}")).unwrap();
        program(dir.path(), &["check", "device.toml"])
    };
    assert!(with("auto").output().unwrap().status.success());
    assert!(with("cpu").output().unwrap().status.success());
    let missing = match cfg!(feature = "cuda") {
        true => "device `cuda:4096` cannot be used",
        false => "device `cuda:4096` needs a program built with `--features cuda`; this one has only `cpu`",
    };
    fails(with("cuda:4096"), 2, missing);
    fails(with("gpu"), 2, "device is `auto`, `cpu` or `cuda:0`");

    fails(program(dir.path(), &["run", "client.toml", "other.toml"]), 2, "Usage");
    let empty = tempfile::tempdir().unwrap();
    fails(program(empty.path(), &["run"]), 2, "client.toml");
    fails(program(dir.path(), &["run", "none.toml"]), 2, "none.toml");
    fails(
        program(dir.path(), &["run", "client.toml", "--server", "nowhere"]),
        2,
        "host:port",
    );
    let idle = dir.path().join("idle.toml");
    std::fs::write(&idle, "server = '127.0.0.1:7070'\n").unwrap();
    fails(program(dir.path(), &["run", "idle.toml"]), 2, "[tasks.NAME]");
    std::fs::write(
        dir.path().join("client.pem"),
        &certificates.expired_client().certificate,
    )
    .unwrap();
    fails(program(dir.path(), &["check", "client.toml"]), 2, "expired on");
}

#[test]
fn an_output_that_nobody_reads_is_no_failure_and_a_full_one_is() {
    let certificates = Certificates::new("fed");
    let dir = folder("127.0.0.1:7070", &certificates);
    let init = ["init", "--learner", "mlp", "-o", "model.safetensors"];
    let evaluate = ["evaluate", "--config", "client.toml", "model.safetensors"];
    let commands: [&[&str]; 5] = [
        &["--help"],
        &init,
        &["check", "client.toml"],
        &evaluate,
        &[&evaluate[..], &["--format", "json"]].concat(),
    ];
    for args in commands {
        let unread = program(dir.path(), args)
            .stdout(std::io::pipe().unwrap().1)
            .output()
            .unwrap();
        let said = String::from_utf8(unread.stderr).unwrap();
        assert_eq!(unread.status.code(), Some(0), "{args:?}: {said}");
        assert_eq!(said, "", "{args:?}");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let full = program(dir.path(), args).stdout(full).output().unwrap();
        let said = String::from_utf8(full.stderr).unwrap();
        assert_eq!(full.status.code(), Some(1), "{args:?}: {said}");
        assert!(
            said.starts_with("fl-client: cannot write to standard output: "),
            "{args:?}: {said}"
        );
    }
}

#[test]
fn a_model_that_cannot_be_evaluated_is_exit_code_2_and_named() {
    let certificates = Certificates::new("fed");
    let dir = folder("127.0.0.1:7070", &certificates);
    std::fs::write(dir.path().join("odd.safetensors"), "odd").unwrap();
    let evaluate = |model| program(dir.path(), &["evaluate", "--config", "client.toml", model]);
    fails(evaluate("none.safetensors"), 2, "none.safetensors");
    fails(evaluate("odd.safetensors"), 2, "odd.safetensors");
}

#[test]
fn what_is_no_client_toml_is_refused_with_what_is_wrong() {
    let certificates = Certificates::new("fed");
    let dir = folder("127.0.0.1:7070", &certificates);
    for (content, named) in [
        ("", "odd.toml is empty"),
        ("# nothing", "[tasks.NAME]"),
        ("rounds = 3", "unknown field `rounds`"),
        ("= nonsense", "odd.toml"),
    ] {
        std::fs::write(dir.path().join("odd.toml"), content).unwrap();
        fails(program(dir.path(), &["check", "odd.toml"]), 2, named);
        fails(program(dir.path(), &["run", "odd.toml"]), 2, named);
    }
}

#[test]
fn a_client_goes_on_when_nobody_reads_its_log() {
    let server = waiting();
    let dir = folder(server.address(), &server.certificates);
    let unread = std::io::pipe().unwrap().1;
    let mut child = program(dir.path(), &["run", "client.toml"])
        .stderr(unread)
        .spawn()
        .unwrap();
    wait_until_joined(&server, &mut child);
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
}

#[test]
fn first_weights_are_bounded_and_never_replace_what_is_not_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let init = |rest: &[&str]| program(dir.path(), &[&["init", "--learner", "mlp"], rest].concat());
    fails(init(&["--classes", "4000000000", "-o", "x"]), 2, "--classes");
    std::fs::create_dir(dir.path().join("special")).unwrap();
    fails(init(&["-o", "special"]), 1, "not a regular file");
    assert!(dir.path().join("special").is_dir());
}

#[test]
fn a_server_that_refuses_is_exit_code_3() {
    let server = waiting();
    let dir = folder(server.address(), &Certificates::new("ours"));
    fails(
        program(dir.path(), &["run", "client.toml", "--exit-when-done"]),
        3,
        "another federation",
    );
}

#[test]
fn a_learner_of_another_model_is_exit_code_1_and_names_the_tensor() {
    let server = TestServer::start(World::new(1));
    let dir = folder(server.address(), &server.certificates);
    fails(
        program(dir.path(), &["run", "client.toml", "--device", "cpu"]),
        1,
        "tensor `a.weight` is missing",
    );
}

#[test]
fn a_running_client_logs_what_its_learner_says_of_a_table() {
    let server = TestServer::start(World::new(1));
    let task = "learner = 'mlp'\ndata = { csv = { file = 'a.csv', label = 'y', missing = 'drop' } }";
    let dir = folder_with(server.address(), &server.certificates, task);
    std::fs::write(dir.path().join("a.csv"), "a,b,y\n1,2,0\n,3,1\n4,5,1\n2,1,0\n").unwrap();
    let run = program(dir.path(), &["run", "client.toml", "--device", "cpu"]);
    fails(run, 1, "a.csv: 4 rows, 1 dropped");
}

#[test]
fn sigterm_stops_a_waiting_client_with_0_and_little_of_its_memory_is_its_own() {
    let server = waiting();
    let dir = folder(server.address(), &server.certificates);
    let mut child = program(dir.path(), &["run", "client.toml"]).spawn().unwrap();
    wait_until_joined(&server, &mut child);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let kib = |name: &str| -> u64 {
        let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        value.trim().trim_end_matches(" kB").parse().unwrap()
    };
    // Most of what is resident are pages of the program's file, which the system shares and takes back when it needs them.
    let (resident, own) = (kib("VmRSS:"), kib("RssAnon:"));
    println!("resident while waiting: {resident} KiB, {own} of them not from files");
    assert!(resident < 30 * 1024 && own < 4 * 1024, "{status}");
    assert!(
        Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && text.contains("stopped"), "{text}");
}

#[test]
fn a_client_says_when_it_is_connected_and_ready() {
    let server = waiting();
    let dir = folder(server.address(), &server.certificates);
    let mut took = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        let mut child = program(dir.path(), &["run", "client.toml"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("INFO connected")));
        took.push(started.elapsed());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    took.sort();
    println!(
        "process start to connected and ready: median {:.0?}, worst {:.0?} of 5",
        took[2], took[4]
    );
}

/// `docs/reference/cli.md` lists the options and commands that the program prints.
#[test]
fn the_command_line_reference_is_what_the_program_prints() {
    crate::help_page::check(env!("CARGO_BIN_EXE_fl-client"), "fl-client", &[]);
}

/// In a container, a process whose parent has ended becomes the client's: a trainer's, for example.
#[test]
fn as_the_first_process_it_collects_what_others_leave_and_passes_signals_on() {
    let unshare = ["--pid", "--fork", "--mount-proc"];
    let may = Command::new("unshare").args(unshare).arg("true").output();
    if !may.is_ok_and(|done| done.status.success()) {
        eprintln!("not tested: a namespace of processes takes root and `unshare`");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // As the first process: it leaves orphans, and says how many of those that ended nobody has collected.
    let script =
        "(exit 0 &) ; sleep 0.1; (exit 0 &) ; sleep 0.1; grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l";
    let conditions = format!("#!/bin/sh\n{script} >> \"$(dirname \"$0\")/uncollected\"\n");
    let program = dir.path().join("conditions");
    std::fs::write(&program, conditions).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let certificates = Certificates::new("fed");
    let own = folder("127.0.0.1:1", &certificates);
    let config = own.path().join("client.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let when = format!("{text}[when]\ncommand = [{program:?}]\nevery = \"1s\"\nsettle = \"1s\"\n");
    std::fs::write(&config, when).unwrap();
    let mut client = Command::new("unshare")
        .args(unshare)
        .args(["--kill-child", "--", env!("CARGO_BIN_EXE_fl-client"), "run"])
        .arg(&config)
        .spawn()
        .unwrap();
    let uncollected = loop {
        let said = std::fs::read_to_string(dir.path().join("uncollected")).unwrap_or_default();
        let counts: Vec<u32> = said.lines().map(|line| line.trim().parse().unwrap()).collect();
        if counts.len() >= 5 {
            break counts;
        }
        assert!(client.try_wait().unwrap().is_none(), "the client ended");
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(uncollected.iter().all(|count| *count <= 1), "{uncollected:?}");
}
