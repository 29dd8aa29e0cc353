//! The command line: a federation is founded, served, observed during and after the run, and stopped.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::*;
use fl_compress::Layout;
use fl_proto::Issued;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

const RUN: &str = "name = \"test\"\ntask = \"toy\"\nrounds = 2\nseed = 7\nmodel = \"init.safetensors\"\n\
                   [cohort]\nmin = 3\ntarget = 3\n";

pub(crate) fn fl_server(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fl-server"))
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(crate) fn good(args: &[&str]) -> String {
    let output = fl_server(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn bad(code: i32, args: &[&str]) -> String {
    let output = fl_server(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
    // A `check` prints what is wrong as a line of its result.
    text(&output.stdout) + &text(&output.stderr)
}

struct Founded {
    dir: tempfile::TempDir,
    fed: String,
    run: String,
}

/// A federation that stores every update.
fn founded() -> Founded {
    founded_with(&["--audit"])
}

fn founded_with(more: &[&str]) -> Founded {
    let dir = tempfile::tempdir().unwrap();
    let fed = dir.path().join("fed").display().to_string();
    good(&[&["init", &fed, "--listen", "127.0.0.1:0", "--admin", "off"], more].concat());
    // Another server of this machine may have the usual port.
    let config = dir.path().join("fed/server.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("127.0.0.1:7072", "127.0.0.1:0")).unwrap();
    let layout = Layout::new([("a.weight", vec![40, 25]), ("b.bias", vec![10])]).unwrap();
    write_model(&dir.path().join("init.safetensors"), &layout);
    let run = dir.path().join("run.toml");
    std::fs::write(&run, RUN).unwrap();
    let run = run.display().to_string();
    Founded { dir, fed, run }
}

impl Founded {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What `check` says of the run with this text.
    fn checked(&self, run: impl AsRef<[u8]>) -> String {
        std::fs::write(&self.run, run).unwrap();
        good(&["check", &self.run])
    }

    fn issue(&self, name: &str) -> (String, Issued) {
        let out = self.path(name);
        good(&["issue", name, "--fed", &self.fed, "--out", out.to_str().unwrap()]);
        issued_in(&out)
    }

    async fn serve(&self) -> (Child, Lines<BufReader<ChildStdout>>, String) {
        let server = format!("{}/server.toml", self.fed);
        let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_fl-server"))
            .args(["serve", &server, "--run", &self.run, "--exit-when-done"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines
            .next_line()
            .await
            .unwrap()
            .expect("the server says where it listens");
        let address = first.rsplit(' ').next().unwrap().to_owned();
        (child, lines, address)
    }

    async fn clients(&self, address: &str) -> Vec<TestClient> {
        let mut hands = Vec::new();
        for name in NAMES {
            let (authority, own) = self.issue(name);
            hands.push(TestClient::connect(address, &authority, &own, name).await);
        }
        hands
    }
}

#[tokio::test]
async fn by_default_updates_are_not_kept_and_verify_names_the_rounds_that_it_could_not_make_again() {
    let founded = founded_with(&[]);
    let server = Path::new(&founded.fed).join("server.toml");
    let often = format!("checkpoint_every = 1\n{}", std::fs::read_to_string(&server).unwrap());
    std::fs::write(&server, often).unwrap();
    let (mut child, mut lines, address) = founded.serve().await;
    let mut hands = founded.clients(&address).await;
    all_take_part(&mut hands).await;
    drop(hands);
    while lines.next_line().await.unwrap().is_some() {}
    assert!(child.wait().await.unwrap().success());
    let verified = fl_server(&["verify", &founded.fed]);
    let (said, why) = (text(&verified.stdout), text(&verified.stderr));
    assert_eq!(verified.status.code(), Some(5), "{said}{why}");
    assert_eq!(said.matches("link ok; model ok").count(), 2, "{said}");
    assert_contains(
        &said,
        "did not keep the updates of anna, berta, carl (keep_updates = false)",
    );
    assert_contains(&why, "not checked: aggregation of round 1");
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn init_and_issue_write_secret_keys_and_never_overwrite() {
    let founded = founded();
    let fed = PathBuf::from(&founded.fed);
    for key in ["authority.key", "server.key"] {
        assert_eq!(mode(&fed.join(key)), 0o600, "{key}");
    }
    let before = std::fs::read(fed.join("authority.key")).unwrap();
    assert!(bad(1, &["init", &founded.fed]).contains("never overwritten"));
    assert_eq!(std::fs::read(fed.join("authority.key")).unwrap(), before);

    founded.issue("anna");
    let out = founded.path("anna");
    assert_eq!(mode(&out.join("client.key")), 0o600);
    let toml: toml::Table = std::fs::read_to_string(out.join("client.toml"))
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(toml["key"].as_str(), Some("client.key"));
    let out = out.to_str().unwrap();
    let again = ["issue", "anna", "--fed", &founded.fed, "--out", out, "--again"];
    assert!(bad(1, &again).contains("never overwritten"));
    let other = founded.path("anna-2");
    let (fed_dir, other_dir) = (founded.fed.as_str(), other.to_str().unwrap());
    let mut again = ["issue", "anna", "--fed", fed_dir, "--out", other_dir, "--again"];
    let refused = bad(2, &again[..6]);
    assert_contains(&refused, "`anna` has a certificate already, sha256:");
    let fingerprint = |folder: &Path| {
        let pem = std::fs::read_to_string(folder.join("client.pem")).unwrap();
        fl_proto::Fingerprint::of_pem(&pem).unwrap().to_string()
    };
    let printed = good(&again);
    assert_contains(&printed, &format!("certificate {}", fingerprint(&other)));
    let before = fingerprint(Path::new(out));
    assert_contains(&printed, &format!("still valid {before}"));
    again[1] = "annabel";
    let third = founded.path("annabel");
    again[5] = third.to_str().unwrap();
    good(&again[..6]);
    assert!(bad(2, &["issue", "../anna", "--fed", &founded.fed, "--out", out]).contains("must be 1 to 64"));
    assert!(bad(2, &["issue", "anna", "--fed", "/nowhere", "--out", out]).contains("fl-server init"));
}

#[test]
fn check_says_which_budgets_are_too_small_or_too_large() {
    let founded = founded();
    let check = |table: &str| founded.checked(format!("{RUN}{table}"));
    let of = |budget: &str| check(&format!("[compression.downlink]\nbudget = {budget}\n"));
    for starved in ["\"0.1 bits\"", "\"0.0001 bits\"", "\"70 B\""] {
        let said = of(starved);
        let (_, named) = said.split_once("a budget of \"").unwrap_or_else(|| panic!("{said}"));
        let named = named.split_once('"').unwrap().0;
        let said = of(&format!("\"{named}\""));
        assert!(!said.contains("WARNING"), "{starved}: {said}");
    }
    let said = of("\"40 bits\"");
    assert_contains(&said, "40.0 bits for each value, and a float32 has 32");
    assert!(of("\"30KiB\"").contains("a float32 has 32"));
    assert!(!of("\"32 bits\"").contains("WARNING"));
    for budget in ["0.01 bits", "0.5 bits", "8 bits", "40 bits", "60B"] {
        let run = RUN.replace("[cohort]\n", "[cohort]\nalign = true\n");
        let table = format!("[compression.uplink]\nbudget = \"{budget}\"\n");
        let said = founded.checked(format!("{run}{table}"));
        let (_, line) = said
            .split_once("cohort.align: a client has ")
            .unwrap_or_else(|| panic!("{said}"));
        let line = line.lines().next().unwrap();
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [least, most, average] = numbers[..] else {
            panic!("{line}")
        };
        // 1,010 values.
        assert!(least <= average && average <= most && most < 4_200, "{budget}: {line}");
    }
}

#[test]
fn check_says_what_is_wrong_and_where() {
    let founded = founded();
    assert!(good(&["check", &format!("{}/server.toml", founded.fed)]).contains("valid: listens on"));
    let said = good(&["check", &founded.run]);
    assert_contains(&said, "valid: run");
    assert_contains(
        &said,
        "compression.uplink: 2.03 bits for each of 1010 values are 256 bytes",
    );
    assert_contains(
        &said,
        "would exceed 0.25 to 0.8 by round 6 (first rounds may cost the most",
    );
    assert!(!said.contains("WARNING"), "{said}");
    assert_contains(&said, "memory of updates: cafe;");
    let decided = founded.checked(RUN.replace("[cohort]", "[cohort]\nclients = 3"));
    assert_contains(&decided, "memory of updates: error-feedback;");
    let frozen = "[model]\nweights = \"init.safetensors\"\nfrozen = [\"a.weight\"]\nserve_base = true\n[cohort]";
    let lora = RUN
        .replace("model = \"init.safetensors\"\n", "")
        .replace("[cohort]", frozen);
    let frozen = founded.checked(lora);
    assert_contains(&frozen, "clients without them download 3.9");
    assert_contains(&frozen, "for 3 clients, once and beside the first weights");
    assert_contains(&frozen, "first weights: every client downloads");
    assert!(!frozen.contains("download nothing"), "{frozen}");
    let said = founded.checked(format!("{RUN}[compression.downlink]\nbudget = \"0.1 bits\"\n"));
    let warning = said.lines().find(|line| line.contains("WARNING")).unwrap();
    assert!(
        warning.contains("compression.downlink: the budget cannot be met"),
        "{said}"
    );
    assert!(warning.contains("a.weight and b.bias"), "{said}");
    let json = |file: &str| -> serde_json::Value {
        serde_json::from_str(&good(&["check", file, "--format", "json"])).unwrap()
    };
    let checked = json(&founded.run);
    assert_eq!(
        (&checked["kind"], &checked["model"]["parameters"]),
        (&"run".into(), &1010.into())
    );
    assert_eq!(
        checked["model"]["tensors"][0],
        serde_json::json!({"name": "a.weight", "type": "F32", "shape": [40, 25], "role": "trained", "values": 1000, "bytes": 4000})
    );
    assert_eq!(
        checked["model"]["roles"],
        serde_json::json!([{"role": "trained", "tensors": 2, "values": 1010, "bytes": 4040, "sent": "compressed"}])
    );
    assert_eq!(checked["budgets"][0]["bytes"], 256);
    assert_eq!(
        (&checked["budgets"][0]["is_enough"], &checked["budgets"][1]["is_enough"]),
        (&true.into(), &false.into())
    );
    assert!(warning.ends_with(checked["warnings"][0].as_str().unwrap()), "{checked}");
    let weights = checked["model"]["file"].as_str().unwrap();
    let aside = format!("{weights}.aside");
    std::fs::rename(weights, &aside).unwrap();
    assert!(bad(2, &["check", &founded.run]).contains(weights));
    let without = good(&["check", &founded.run, "--without-weights", "--format", "json"]);
    let without: serde_json::Value = serde_json::from_str(&without).unwrap();
    let expected = serde_json::json!({"kind": "plan", "task": checked["task"], "min": 3, "weights": weights});
    assert_eq!(without, expected);
    assert!(good(&["check", &founded.run, "--without-weights"]).contains("valid: task"));
    std::fs::rename(&aside, weights).unwrap();
    let checked = json(&format!("{}/server.toml", founded.fed));
    assert_eq!(
        (&checked["kind"], &checked["missing"]),
        (&"server".into(), &serde_json::json!([]))
    );
    std::fs::write(&founded.run, format!("{RUN}[compression.downlink]\nbudget = \"9 B\"\n")).unwrap();
    assert!(bad(2, &["check", &founded.run]).contains("compression.downlink"));
    let with_run = |total: &str| format!("{RUN}[compression.uplink]\nbudget = {{ run = \"{total}\" }}\n");
    std::fs::write(&founded.run, with_run("100 B")).unwrap();
    let error = bad(2, &["check", &founded.run]);
    assert_contains(&error, "leave 50 for each of 2 rounds");
    assert_contains(&error, "give at least ");
    let (_, named) = error.split_once("run = \"").unwrap();
    std::fs::write(&founded.run, with_run(named.split_once('"').unwrap().0)).unwrap();
    good(&["check", &founded.run]);
    let said = founded.checked(with_run("2 kB"));
    assert_contains(
        &said,
        "compression.uplink: 2000 bytes for the updates of each client in the run",
    );
    std::fs::write(&founded.run, RUN).unwrap();
    let broken = founded.path("broken.toml");
    let broken = broken.to_str().unwrap();
    for (content, words) in [
        ("verify_at_once = 0", "`verify_at_once` is 0"),
        ("spede = 1", "spede"),
        (&RUN.replace("min = 3", "min = 9"), "cohort.target"),
        (&RUN.replace("rounds = 2", "rounds = 0"), "rounds"),
        ("= nonsense", "broken.toml"),
    ] {
        std::fs::write(broken, content).unwrap();
        let error = bad(2, &["check", broken]);
        assert!(error.contains(words), "{content}: {error}");
    }
    assert!(bad(2, &["check", "/nowhere.toml"]).contains("/nowhere.toml"));
    bad(2, &["melt"]);
    for (content, words) in [
        ("", "broken.toml is empty"),
        (" \n", "broken.toml is empty"),
        ("# nothing", "neither a run.toml nor a server.toml: it has no key"),
        ("rounds = 3", "a run.toml needs `name`, `task`"),
        ("[tasks.toy]", "fl-client check"),
    ] {
        std::fs::write(broken, content).unwrap();
        let error = bad(2, &["check", broken]);
        assert!(error.contains(words), "{content}: {error}");
    }
    // Every key of server.toml is optional, but not of run.toml, and neither file may be empty.
    let (server, run) = (founded.path("server.toml"), founded.path("run.toml"));
    std::fs::write(&server, include_str!("../../../configs/server.toml")).unwrap();
    // Another process may hold the usual ports.
    let checked = fl_server(&["check", server.to_str().unwrap()]);
    assert!(text(&checked.stdout).contains("valid: listens on"));
    std::fs::write(&run, "# nothing").unwrap();
    assert!(bad(2, &["check", &founded.run]).contains("a run.toml needs `name`"));
    let fed = Path::new(&founded.fed).join("server.toml");
    let config = std::fs::read(&fed).unwrap();
    std::fs::write(&fed, "").unwrap();
    assert!(bad(2, &["status", &founded.fed]).contains("server.toml is empty"));
    std::fs::write(&fed, config).unwrap();
    std::fs::write(&founded.run, RUN.replace("init.safetensors", "missing.safetensors")).unwrap();
    let server = format!("{}/server.toml", founded.fed);
    for args in [&["check", &founded.run][..], &["serve", &server, "--run", &founded.run]] {
        let error = bad(2, args);
        assert!(error.contains("missing.safetensors is not there"), "{args:?}: {error}");
        assert!(
            error.contains("make it with `fl-client init --learner NAME -o "),
            "{args:?}: {error}"
        );
    }
    assert!(bad(2, &["serve", &server, "--run", &founded.run, "--fault", "melt@3"]).contains("abort@N"));
}

#[tokio::test]
async fn first_weights_that_are_not_finite_are_bad_input_and_can_be_mended() {
    let founded = founded();
    let model = founded.path("init.safetensors");
    let sound = std::fs::read(&model).unwrap();
    let server = format!("{}/server.toml", founded.fed);
    for value in [f32::NAN, f32::INFINITY] {
        let mut bytes = sound.clone();
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&value.to_le_bytes());
        std::fs::write(&model, bytes).unwrap();
        for args in [&["check", &founded.run][..], &["serve", &server, "--run", &founded.run]] {
            let error = bad(2, args);
            assert_contains(&error, "init.safetensors: tensor `b.bias`, value 9 is not finite");
        }
    }
    assert!(good(&["status", &founded.fed]).contains("no run yet"));
    std::fs::write(&model, sound).unwrap();
    assert!(good(&["check", &founded.run]).contains("has 1010 parameters"));
    let (_child, _lines, _) = founded.serve().await;
}

#[test]
fn new_writes_a_run_that_check_takes_and_never_overwrites() {
    let founded = founded();
    let path = founded.path("new.toml");
    let file = path.to_str().unwrap();
    let new = [
        "new", "digits", "--task", "toy", "--rounds", "3", "--min", "2", "--target", "3",
    ];
    let said = good(&[&new[..], &["-o", file]].concat());
    assert_contains(&said, "next: fl-client init");
    assert_contains(&said, &format!("fl-server check {file}"));
    let checked = good(&["check", file]);
    assert_contains(&checked, "valid: run `digits`, task `toy`, 3 rounds");
    let before = std::fs::read(&path).unwrap();
    assert!(bad(1, &[&new[..], &["-o", file]].concat()).contains("never overwritten"));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(good(&new).as_bytes(), before, "without -o it goes to standard output");
    assert!(bad(2, &["new", "a/b", "--task", "toy"]).contains("must be 1 to 64"));
    assert!(bad(2, &["new", "digits", "--task", "toy", "--rounds", "0"]).contains("rounds"));
}

#[test]
fn several_clients_are_issued_at_once_with_their_task() {
    let founded = founded();
    let out = founded.path("clients");
    let folder = out.to_str().unwrap();
    let fed = founded.fed.as_str();
    let issue = ["issue", "camera", "--fed", fed, "--out", folder, "--count", "3"];
    let data = "{ builtin = { client = {i} } }";
    let task = ["--task", "toy", "--learner", "mlp", "--data", data];
    let said = good(&[&issue[..], &task].concat());
    assert_contains(&said, "issued `camera-02`");
    assert!(!said.contains("bind a task"), "{said}");
    for at in 0..3 {
        let dir = out.join(format!("camera-0{at}"));
        assert_eq!(mode(&dir.join("client.key")), 0o600);
        let toml: toml::Table = std::fs::read_to_string(dir.join("client.toml"))
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(toml["tasks"]["toy"]["learner"].as_str(), Some("mlp"));
        assert_eq!(toml["tasks"]["toy"]["data"]["builtin"]["client"].as_integer(), Some(at));
    }
    // All or nothing: one existing folder prevents the creation of the others.
    std::fs::remove_dir_all(out.join("camera-00")).unwrap();
    assert!(bad(2, &issue).contains("`camera-00` has a certificate already"));
    assert!(bad(1, &[&issue[..], &["--again"]].concat()).contains("camera-01/authority.pem exists already"));
    assert!(!out.join("camera-00").exists());
    assert!(bad(2, &[&issue[..], &["--task", "toy"]].concat()).contains("--learner"));
    let wrong = ["--task", "toy", "--learner", "mlp", "--data", "{ builtin"];
    assert!(bad(2, &[&issue[..], &wrong].concat()).contains("`--data { builtin`"));
}

#[test]
fn a_port_in_use_names_the_key_to_change() {
    let founded = founded();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let server = format!("{}/server.toml", founded.fed);
    for key in ["listen", "admin"] {
        let other = if key == "listen" {
            "admin = \"off\""
        } else {
            "listen = \"127.0.0.1:0\""
        };
        std::fs::write(&server, format!("{key} = \"{address}\"\n{other}\n")).unwrap();
        let error = bad(1, &["serve", &server, "--run", &founded.run]);
        assert_contains(&error, &format!("cannot listen on {address}"));
        assert_contains(&error, &format!("choose another with `{key}` in server.toml"));
    }
}

#[test]
fn check_says_who_downloads_the_first_weights() {
    let founded = founded();
    let layout = Layout::new([("a.weight", vec![40, 25]), ("b.bias", vec![10])]).unwrap();
    let note = |seed: &str| {
        let notes = [("fl.seed", seed), ("fl.learner", "toy")];
        let notes = notes.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
        let bytes = fl_compress::weights::to_safetensors_with(&layout, &[0.5; 1010], &[], &notes).unwrap();
        std::fs::write(founded.path("init.safetensors"), bytes).unwrap();
    };
    // A snapshot has 4 bytes per value, one per tensor, and 38; three clients are in the cohort.
    let cost = "download 3.98 KiB each, 12.0 KiB for 3 clients";
    let checked = good(&["check", &founded.run]);
    assert_contains(&checked, "starts from exactly these weights download nothing");
    assert_contains(&checked, cost);
    note("42");
    let checked = good(&["check", &founded.run]);
    assert_contains(
        &checked,
        "WARNING: the first weights were made from seed 42, and the run has seed 7",
    );
    assert_contains(&checked, &cost.replacen("download", "downloads", 1));
    // The default seed is that of the file.
    let checked = founded.checked(RUN.replace("seed = 7\n", ""));
    assert_contains(
        &checked,
        "clients with learner `toy` make them from seed 42 and download nothing; others download",
    );
}

/// The program with its standard output on `stdout`, or on a pipe without a reader.
fn written_to(args: &[&str], stdout: Option<&str>) -> Output {
    let stdout: Stdio = match stdout {
        Some(path) => std::fs::OpenOptions::new().write(true).open(path).unwrap().into(),
        None => std::io::pipe().unwrap().1.into(),
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_fl-server"));
    command.args(args).stdout(stdout).output().unwrap()
}

#[test]
fn an_output_that_nobody_reads_is_no_failure_and_a_full_one_is() {
    let founded = founded();
    let new = founded.path("new").display().to_string();
    let out = founded.path("anna").display().to_string();
    let commands: [&[&str]; 6] = [
        &["--help"],
        &["init", &new],
        &["issue", "anna", "--fed", &founded.fed, "--out", &out, "--again"],
        &["check", &founded.run],
        &["status", &founded.fed],
        &["status", &founded.fed, "--format", "json"],
    ];
    for args in commands {
        let unread = written_to(args, None);
        assert_eq!(unread.status.code(), Some(0), "{args:?}: {}", text(&unread.stderr));
        assert_eq!(text(&unread.stderr), "", "{args:?}");
        for dir in [&new, &out] {
            let _ = std::fs::remove_dir_all(dir);
        }
        let full = written_to(args, Some("/dev/full"));
        let said = text(&full.stderr);
        assert_eq!(full.status.code(), Some(1), "{args:?}: {said}");
        assert!(
            said.starts_with("fl-server: cannot write to standard output: "),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_run_goes_on_when_nobody_reads_what_it_says() {
    let founded = founded();
    let (mut child, lines, address) = founded.serve().await;
    drop((lines, child.stderr.take()));
    let mut hands = founded.clients(&address).await;
    all_take_part(&mut hands).await;
    drop(hands);
    assert!(child.wait().await.unwrap().success());
    assert!(good(&["status", &founded.fed]).contains("test: done; 2 of 2 rounds closed"));
}

#[tokio::test]
async fn a_run_that_waits_says_for_how_many_clients() {
    let founded = founded();
    let (_child, mut lines, address) = founded.serve().await;
    let line = lines.next_line().await.unwrap().unwrap();
    assert_eq!(line, "waiting for 3 more clients: 0 of min 3 present");
    let (authority, own) = founded.issue("anna");
    let mut hand = TestClient::connect(&address, &authority, &own, "anna").await;
    let _watch = hand.watch().await;
    let line = lines.next_line().await.unwrap().unwrap();
    assert_eq!(line, "waiting for 2 more clients: 1 of min 3 present");
    let status: serde_json::Value = serde_json::from_str(&good(&["status", &founded.fed, "--format", "json"])).unwrap();
    assert_eq!(
        status["serving"]["waiting"],
        serde_json::json!({ "present": 1, "min": 3, "enough": false })
    );
    assert_eq!(status["serving"]["present"], serde_json::json!(["anna"]));
    assert_eq!(status["runs"][0]["run"], "test");
}

#[tokio::test]
async fn status_report_and_export_work_while_the_server_runs_and_after() {
    let founded = founded();
    let fed = founded.fed.as_str();
    assert!(good(&["status", fed]).contains("not serving"));
    assert!(bad(1, &["report", fed]).contains("no run yet"));

    let (mut child, mut lines, address) = founded.serve().await;
    assert_eq!(mode(&Path::new(fed).join("data/admin.sock")), 0o600);
    let mut hands = founded.clients(&address).await;
    let watch = hands[0].watch().await;
    let status = good(&["status", fed]);
    assert_contains(&status, "serving `test`");
    assert_contains(&status, "test: ");
    let model = founded.path("model.safetensors");
    let model = model.to_str().unwrap();
    assert!(good(&["export", fed, "test", "-o", model]).contains("version 0"));
    let notes = fl_compress::weights::read_notes(std::fs::File::open(model).unwrap()).unwrap();
    assert_eq!(notes.get("format").map(String::as_str), Some("pt"));
    assert!(bad(1, &["export", fed, "other", "-o", model]).contains("there is no run `other`; there is: test"));
    assert!(bad(1, &["serve", &format!("{fed}/server.toml"), "--run", &founded.run]).contains("in another process"));
    drop(watch);

    let digests = all_take_part(&mut hands).await;
    let live = good(&["report", fed]);
    assert_contains(&live, "equal to the byte");
    assert_contains(&live, "fp32 federated averaging");
    let spec = founded.path("spec.toml");
    std::fs::write(&spec, "memory = 'none'\ndefault = { quantize = { uniform = 8 } }").unwrap();
    let what_if = ["report", fed, "--format", "json", "--what-if", spec.to_str().unwrap()];
    let live = good(&what_if);
    drop(hands);
    let mut output = Vec::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        output.push(line);
    }
    assert!(child.wait().await.unwrap().success());
    assert!(
        output.iter().any(|line| line.starts_with("round    2  3 updates")),
        "{output:?}"
    );
    let cost = "the limit of the error, 0.25 to 0.8 by round 6; `budget` in [compression.uplink] changes it.";
    assert!(output.iter().any(|line| line.ends_with(cost)), "{output:?}");
    assert!(output.last().unwrap().contains(&digests[0].to_string()));

    let [answer, live]: [serde_json::Value; 2] =
        [good(&what_if), live].map(|answer| serde_json::from_str(&answer).unwrap());
    for (table, column) in [("updates", "sum_error"), ("rounds", "framed"), ("clients", "error")] {
        assert_eq!(answer[table][column], live[table][column], "with and without a server");
    }
    assert_eq!(answer["updates"]["frames"], 6);
    let bytes = |column: &str| answer["updates"][column].as_u64().unwrap();
    assert!(
        bytes("framed") > bytes("recorded_framed"),
        "8 bits a value are more than the default's"
    );
    assert!(good(&["status", fed]).contains("test: done; 2 of 2 rounds closed"));
    let report: serde_json::Value = serde_json::from_str(&good(&["report", fed, "--format", "json"])).unwrap();
    assert_eq!(report["balanced"], true);
    assert_eq!(report["rounds"]["round"], serde_json::json!([1, 2]));
    assert_eq!(report["run"]["model"], digests[0].to_string());
    assert_eq!(
        good(&["report", fed, "--plan"]),
        RUN,
        "the run.toml that the run began with"
    );
    let settings = &report["settings"];
    assert_eq!(settings["run_toml"], RUN);
    let plan = &settings["plan"];
    assert_eq!((&plan["seed"], &plan["train"]["epochs"]), (&7.into(), &1.into()));
    let train = serde_json::json!(["train", "batch_size 32, epochs 1, learning_rate 0.05"]);
    assert_eq!(settings["words"][0], train);
    assert_eq!(settings["budget_up"]["error"], "0.25 to 0.8 by round 6");
    let whole = good(&["report", fed]);
    assert!(whole.lines().take(16).any(|line| line == "seed           7"), "{whole}");
    assert!(bad(2, &["report", fed, "--plan", "--by", "round"]).contains("cannot be used with"));
    let file = founded.path("report.txt");
    good(&["report", fed, "-o", file.to_str().unwrap()]);
    assert!(std::fs::read_to_string(file).unwrap().contains("anna"));
    reports_answer(&founded, fed);
    good(&["export", fed, "-o", model]);
    let bytes = std::fs::read(model).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let raw = ["a.weight", "b.bias"].map(|name| tensors.tensor(name).unwrap().data());
    let raw = raw.concat();
    let values = raw.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
    let values: Vec<f32> = values.collect();
    assert_eq!(fl_compress::Digest::of_f32(&values), digests[0]);
    assert!(good(&["export", fed, "-o", model, "--version", "1"]).contains("version 1"));
    assert!(bad(1, &["export", fed, "-o", model, "--version", "3"]).contains("the newest is 2"));

    signed_reports_are_verified(&founded);
    let audit = good(&["verify", fed, "--plan", &founded.run]);
    assert_eq!(audit.matches("link ok; model ok; aggregation ok").count(), 2, "{audit}");
    assert_eq!(good(&["verify", fed]), audit, "the store has the plan");
    let other = founded.path("other.toml");
    std::fs::write(&other, RUN.replace("seed = 7", "seed = 8")).unwrap();
    assert!(bad(1, &["verify", fed, "--plan", other.to_str().unwrap()]).contains("another plan"));

    // The digest reveals a damaged blob.
    let blobs = Path::new(fed).join("data/blobs/test");
    for blob in std::fs::read_dir(blobs).unwrap() {
        let path = blob.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[10] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(bad(4, &["export", fed, "-o", model]).contains("damaged"));
    assert!(bad(4, &["verify", fed, "--plan", &founded.run]).contains("not what was recorded"));
    // Unreferenced blobs are removed only after all referenced blobs were verified.
    let orphan = Path::new(fed).join("data/blobs/test").join("0".repeat(64));
    std::fs::write(&orphan, "all that is left").unwrap();
    let serve = ["serve", &format!("{fed}/server.toml"), "--run", &founded.run];
    assert!(bad(4, &serve).contains("damaged"));
    assert!(orphan.exists());

    // A missing store is not treated as a new one.
    std::fs::remove_dir_all(Path::new(fed).join("data/store")).unwrap();
    let export = ["export", fed, "-o", model];
    for args in [&["status", fed][..], &["report", fed], &export, &serve] {
        assert!(bad(4, args).contains("has only 0 of its"), "{args:?}");
    }
}

/// Every question in every form, for a run of two rounds and three clients.
fn reports_answer(founded: &Founded, fed: &str) {
    let lines = |args: &[&str]| good(&[&["report", fed], args].concat()).lines().count();
    for (by, count) in [
        ("round", 2),
        ("client", 3),
        ("participation", 6),
        ("tensor", 2),
        ("stage", 14),
        ("direction", 12),
    ] {
        let count = count + 1;
        // Connections that closed before identification may add a client and a round.
        assert!(lines(&["--by", by]) >= count, "{by}");
        let table: serde_json::Value =
            serde_json::from_str(&good(&["report", fed, "--by", by, "--format", "json"])).unwrap();
        assert_eq!(table["by"], by);
        assert!(!table["table"].as_object().unwrap().is_empty());
    }
    assert_eq!(lines(&["--round", "2", "--client", "anna"]), 2);
    assert_eq!(
        lines(&["--client", "anna", "--by", "stage", "--format", "csv"]),
        1 + 7 + 1
    );
    assert!(good(&["report", fed, "--against", "fp16"]).contains("payload only: 2 bytes per value"));
    let against = good(&["report", fed, "--against", "test"]);
    assert!(against.contains("Bytes moved when an accuracy") || against.lines().count() > 5);

    let costs = founded.path("costs.toml");
    let costs = costs.to_str().unwrap();
    std::fs::write(costs, "[link]\nprice_per_gb_up = 1000000\n").unwrap();
    assert!(good(&["report", fed, "--costs", costs]).contains("\nCosts: "));
    assert!(good(&["report", fed, "--costs", costs, "--by", "client"]).contains("money"));
    assert!(bad(2, &["report", fed, "--costs", costs, "--by", "stage"]).contains("by client and by round"));
    std::fs::write(costs, "[link]\nprice_per_gb_up = -1\n").unwrap();
    assert!(bad(2, &["report", fed, "--costs", costs]).contains("`link.price_per_gb_up` is -1"));
    let none = founded.path("none").display().to_string();
    assert!(bad(2, &["report", fed, "--costs", &none]).contains("cannot read"));

    assert!(bad(1, &["report", fed, "--round", "9"]).contains("it has rounds 1 to 2"));
    assert!(bad(1, &["report", fed, "--client", "bob"]).contains("\"berta\""));
    assert!(bad(1, &["report", fed, "--against", "other"]).contains("there is no run `other`"));
    assert!(bad(2, &["report", fed, "--by", "tensor", "--client", "anna"]).contains("not kept per client"));
    assert!(bad(2, &["report", fed, "--format", "parquet"]).contains("-o FILE"));
    assert!(bad(2, &["report", fed, "--format", "tensorboard"]).contains("-o DIR"));
    assert!(bad(2, &["report", fed, "--format", "tensorboard", "-o", "-"]).contains("-o DIR"));
    bad(2, &["report", fed, "--against", "fp16", "--by", "round"]);

    let file = founded.path("run.parquet");
    let parquet = ["report", fed, "--format", "parquet", "--by", "client", "-o"];
    good(&[&parquet[..], &[file.to_str().unwrap()]].concat());
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let piped = fl_server(&[&parquet[..], &["-"]].concat());
    assert_eq!(piped.stdout, bytes);
    let events = founded.path("events");
    for _ in 0..2 {
        good(&["report", fed, "--format", "tensorboard", "-o", events.to_str().unwrap()]);
    }
    assert_eq!(std::fs::read_dir(&events).unwrap().count(), 1);
    assert!(bad(1, &["report", fed, "-o", founded.dir.path().to_str().unwrap()]).contains("not a regular file"));
    let page = founded.path("report.html");
    good(&["report", fed, "--format", "html", "-o", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("\"anna\""));
    assert!(bad(2, &["report", fed, "--format", "html", "--by", "round"]).contains("the whole run"));
}

/// Commands that need only files.
fn signed_reports_are_verified(founded: &Founded) {
    let fed = founded.fed.as_str();
    let (file, authority) = (founded.path("signed.jsonl"), format!("{fed}/authority.pem"));
    let path = file.to_str().unwrap();
    assert_eq!(good(&["report", fed, "--sign", "-o", path]), "");
    let verified = good(&["verify", "--report", path, "--authority", &authority]);
    assert_contains(&verified, "intact");
    assert_contains(&verified, "signed by `fl-server`");
    assert_contains(&verified, "figures      agree with each other");
    assert!(good(&["verify", "--report", path]).contains("and not who signed it"));

    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("\"client\":\"anna\"", "\"client\":\"anne\"", 1)).unwrap();
    let found = bad(4, &["verify", "--report", path, "--authority", &authority]);
    assert_contains(&found, "line 4 (bytes ");
    assert_contains(&found, "client anne");
    std::fs::write(&file, &text[..text.len() - 9]).unwrap();
    assert!(bad(4, &["verify", "--report", path]).contains("cut short"));
    std::fs::write(&file, text).unwrap();
    assert!(bad(2, &["verify", "--report", &authority]).contains("not a signed report"));
    assert!(bad(2, &["verify", "--report", path, "--authority", path]).contains("the given authority"));
    assert!(bad(2, &["verify", "--report", "/nowhere"]).contains("cannot read /nowhere"));
    assert!(bad(2, &["verify"]).contains("required"));

    let key = Path::new(fed).join("server.key");
    let hidden = founded.path("hidden.key");
    std::fs::rename(&key, &hidden).unwrap();
    assert!(bad(2, &["report", fed, "--sign"]).contains("server.key"));
    std::fs::rename(&hidden, &key).unwrap();
}

#[test]
fn certificates_that_do_not_go_together_are_found_before_anything_is_begun() {
    let founded = founded();
    let server = format!("{}/server.toml", founded.fed);
    let key = Path::new(&founded.fed).join("server.key");
    let other = Path::new(&founded.fed).join("authority.key");
    let right = std::fs::read(&key).unwrap();
    for wrong in [std::fs::read(other).unwrap(), b"no key".to_vec(), Vec::new()] {
        std::fs::write(&key, wrong).unwrap();
        let serve = ["serve", &server, "--run", &founded.run];
        for args in [&["check", server.as_str()][..], &serve] {
            assert!(bad(2, args).contains("server.key"), "{args:?}");
        }
    }
    assert!(!Path::new(&founded.fed).join("data/store").exists());
    std::fs::write(&key, right).unwrap();
    assert!(good(&["check", &server]).contains("valid: listens on"));
}

#[tokio::test]
async fn sigterm_stops_gracefully_and_the_run_continues() {
    let founded = founded();
    let (mut child, mut lines, address) = founded.serve().await;
    let hands = founded.clients(&address).await;
    let checked = good(&["check", &format!("{}/server.toml", founded.fed)]);
    assert_contains(&checked, &format!("runs on {address} and has its ports"));
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut last = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        last = line;
    }
    assert!(child.wait().await.unwrap().success());
    assert_contains(&last, "serve again to continue");
    assert!(!Path::new(&founded.fed).join("data/admin.sock").exists());
    drop(hands);
    assert!(good(&["status", &founded.fed]).contains("test: waiting"));
    let (child, _lines, _) = founded.serve().await;
    drop(child);
}

/// `docs/reference/cli.md` lists the options and commands that the program prints.
#[test]
fn the_command_line_reference_is_what_the_program_prints() {
    crate::help_page::check(env!("CARGO_BIN_EXE_fl-server"), "fl-server", &[]);
}

#[test]
fn serve_prints_no_enrollment_line_for_a_port_of_another_process() {
    let Founded { dir: _dir, fed, run } = founded();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = format!("{fed}/server.toml");
    for key in ["listen", "enroll"] {
        let text = std::fs::read_to_string(&config).unwrap();
        let others = text.lines().filter(|line| !line.starts_with(&format!("{key} = ")));
        let others: String = others.map(|line| format!("{line}\n")).collect();
        std::fs::write(&config, format!("{others}{key} = \"{address}\"\n")).unwrap();
        let said = bad(1, &["serve", &fed, "--run", &run, "--enroll", "cam-*"]);
        let expected =
            format!("cannot listen on {address}: another process listens there; choose another with `{key}`");
        assert_contains(&said, &expected);
        std::fs::write(&config, text).unwrap();
    }
    assert!(
        good(&["tokens", "list", "--fed", &fed])
            .lines()
            .all(|line| !line.contains("cam-*"))
    );
}

#[test]
fn a_federations_folder_is_checked_as_its_server_toml() {
    let Founded { dir, fed, .. } = founded();
    let by_folder = good(&["check", &fed, "--format", "json"]);
    let by_file = good(&["check", &format!("{fed}/server.toml"), "--format", "json"]);
    let file = |text: &str| text.parse::<serde_json::Value>().unwrap()["file"].clone();
    assert_eq!(file(&by_folder), file(&by_file));
    let other = dir.path().display().to_string();
    assert!(
        bad(2, &["check", &other])
            .contains("server.toml does not exist; create a federation with `fl-server init DIR`")
    );
}
