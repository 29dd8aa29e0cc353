//! The frozen tensors of a model: fetched from the server once over TLS, whatever breaks meanwhile, or found on the device.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;

use fl_compress::weights::{BasePlan, FilePlan, Notes};
use fl_compress::{Digest, Dtype, Layout, Role, TensorSpec};
use fl_server::report::Report;

use crate::fake::{Script, act};
use crate::fixtures::process::{done, fails};
use crate::fixtures::proxy::Act;
use crate::fixtures::stage::{Stage as Behind, number};

const TASK: &str = "lora";
/// Frozen values: a base of 1.2 MB, about 18 chunks.
const FROZEN: usize = 300_000;
/// Bytes on a connection beside those of the base: handshake, layout, models and messages.
const BESIDE: u64 = 60_000;

/// Keys of `[model]`: only the adapter is trained.
fn with_roles(keys: &str) -> String {
    format!("trained = [\"lora.*\"]\n{keys}")
}

/// A trainer, if the environment says so.
#[test]
fn fake_trainer() {
    act();
}

fn layout() -> Layout {
    Layout::new([("lora.weight", vec![8, 5])]).unwrap()
}

fn aside() -> Vec<TensorSpec> {
    vec![TensorSpec::new("base.weight", &[FROZEN], Dtype::F32, Role::Frozen)]
}

/// Values whose sums are exact.
fn frozen() -> Vec<f32> {
    (0..FROZEN).map(|i| (i % 64) as f32 / 8.0).collect()
}

fn raw(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The file of the base alone.
fn base_file() -> Vec<u8> {
    let plan = BasePlan::of(&aside()).unwrap().unwrap();
    plan.file(&[raw(&frozen())]).unwrap()
}

/// The file of the whole model, with another tensor and a note.
fn model_file(frozen: &[f32]) -> Vec<u8> {
    let plan = FilePlan::new(&layout(), &aside(), &Notes::from([("format".into(), "pt".into())])).unwrap();
    let mut bytes = vec![0; plan.len()];
    plan.write(&vec![0.5; layout().len()], &[raw(frozen)], &mut bytes)
        .unwrap();
    bytes
}

/// A federation of one client, whose trainer has another base than the run, behind a proxy.
struct Stage(Behind);

impl Deref for Stage {
    type Target = Behind;

    fn deref(&self) -> &Behind {
        &self.0
    }
}

impl DerefMut for Stage {
    fn deref_mut(&mut self) -> &mut Behind {
        &mut self.0
    }
}

impl Stage {
    /// `keys`: more keys of `[model]`.
    fn set(keys: &str, acts: impl IntoIterator<Item = Act>) -> Self {
        let tensors = [
            ("lora.weight".to_owned(), "F32", vec![8, 5]),
            ("base.weight".to_owned(), "F32", vec![FROZEN]),
        ];
        let script = Script {
            tensors: tensors.to_vec(),
            ..Script::default()
        };
        let command = script.command("base::fake_trainer");
        let keys = with_roles(keys);
        Self(Behind::set(TASK, &model_file(&frozen()), &command, &keys, acts))
    }

    /// The client's file of the base, or of its part.
    fn kept(&self, extension: &str) -> PathBuf {
        let name = format!("anna/state/base/{}.{extension}", Digest::of(&base_file()));
        self.fed.path(&name)
    }

    /// The server's blob of the base.
    fn blob(&self) -> PathBuf {
        let name = format!("fed/data/blobs/first/{}", Digest::of(&base_file()));
        self.fed.path(&name)
    }
}

/// The trainer got the run's frozen values: their sum is a metric of every training.
fn was_trained_with_the_base(report: &Report) {
    let sum: f64 = frozen().iter().map(|value| f64::from(*value)).sum();
    assert_eq!(report.rounds.len(), 2);
    for round in &report.rounds {
        assert_eq!(round.updates, 1, "round {}", round.round);
        assert_eq!(round.trained.0.get("base"), Some(&sum), "round {}", round.round);
    }
}

#[test]
fn a_base_is_fetched_once_and_the_ledger_equals_the_socket() {
    let mut stage = Stage::set("serve_base = true", []);
    stage.serve();
    let report = stage.finish();
    was_trained_with_the_base(&report);
    let len = base_file().len() as u64;
    assert_eq!(report.totals.base, len);
    assert!(report.balanced, "{:?}", report.totals);
    assert_eq!(
        (report.totals.socket_up, report.totals.socket_down),
        stage.proxy.counted()
    );
    assert_eq!(std::fs::read(stage.kept("safetensors")).unwrap(), base_file());
    assert!(!stage.kept("part").exists());
    let table = done(stage.fed.sim(&["server", "report", "fed", "--by", "client"]));
    assert!(table.lines().next().unwrap().contains(" base "), "{table}");

    // Another run with the same base.
    stage.plan("second", &with_roles("serve_base = true"));
    stage.serve();
    assert!(stage.client().end().success());
    stage.stop();
    let report = stage.report("second");
    was_trained_with_the_base(&report);
    assert_eq!(report.totals.base, 0);
    assert!(report.balanced);
    assert!(
        stage.proxy.counted().1 < len + 2 * BESIDE,
        "{:?}",
        stage.proxy.counted()
    );
}

#[test]
fn a_base_that_is_cut_at_any_byte_is_continued_where_it_stopped() {
    let len = base_file().len() as u64;
    // In the handshake, in the reply to `Join`, within and at the ends of chunks, and shortly before the end.
    let cuts = [1, 900, 3_000, 20_000, 65_536, 70_001, 131_072, 500_000, 400_000];
    let mut stage = Stage::set("serve_base = true", cuts.map(Act::CutAfter));
    stage.serve();
    let mut client = stage.client();
    let mut held = Vec::new();
    loop {
        let line = stage.client_says("the frozen tensors of the model");
        if line.contains("fetched") {
            break;
        }
        held.push(number(&line, "held"));
    }
    assert!(client.end().success());
    stage.stop();
    assert_eq!(stage.proxy.acts_left(), 0, "{held:?}");
    assert!(held.is_sorted() && held.last() > Some(&600_000), "{held:?}");
    let report = stage.report("first");
    was_trained_with_the_base(&report);
    assert!(report.balanced, "{:?}", report.totals);
    // What was on its way at a cut, at most a window of 1 MiB, is sent again, and never more than was missing.
    let missing: u64 = held.iter().map(|held| len - held).sum();
    assert!(
        (len..=missing).contains(&report.totals.base),
        "{}; {held:?}",
        report.totals.base
    );
    assert_eq!(std::fs::read(stage.kept("safetensors")).unwrap(), base_file());
    assert!(!stage.kept("part").exists());
}

#[test]
fn a_server_and_a_client_that_are_killed_in_the_middle_continue_there() {
    let mut stage = Stage::set("serve_base = true", [Act::HoldAfter(400_000), Act::HoldAfter(400_000)]);
    stage.serve();
    let client = stage.client();
    stage.proxy.wait_until_held();
    stage.server.take().unwrap().kill();
    stage.proxy.release();
    stage.client_says("not connected");
    let first = stage.kept("part").metadata().unwrap().len();
    assert!((300_000..400_000).contains(&first), "{first}");
    stage.serve();
    stage.proxy.wait_until_held();
    client.kill();
    stage.proxy.release();
    let before = stage.kept("part").metadata().unwrap().len();
    assert!(before >= first, "{before} after {first}");
    let mut client = stage.client();
    let held = loop {
        // Lines of the client that was killed come first.
        let held = number(&stage.client_says("fetching the frozen tensors"), "held");
        if held == before {
            break held;
        }
    };
    assert!(client.end().success());
    stage.stop();
    let report = stage.report("first");
    was_trained_with_the_base(&report);
    assert!(report.balanced, "{:?}", report.totals);
    assert!(held < base_file().len() as u64);
    assert_eq!(std::fs::read(stage.kept("safetensors")).unwrap(), base_file());
}

#[test]
fn a_part_that_is_not_the_beginning_of_the_base_is_deleted_and_fetched_again() {
    let mut stage = Stage::set("serve_base = true", []);
    std::fs::create_dir_all(stage.kept("part").parent().unwrap()).unwrap();
    for part in [vec![7; 100_000], vec![7; base_file().len() + 1]] {
        let _ = std::fs::remove_file(stage.kept("safetensors"));
        std::fs::write(stage.kept("part"), part).unwrap();
        if stage.server.is_none() {
            stage.serve();
        }
        let mut client = stage.client();
        stage.client_says("it is deleted and fetched again");
        stage.client_says("fetched the frozen tensors");
        assert!(client.end().success());
        assert_eq!(std::fs::read(stage.kept("safetensors")).unwrap(), base_file());
        assert!(!stage.kept("part").exists());
    }
    // A whole file that was damaged later.
    let mut damaged = base_file();
    damaged[500_000] ^= 1;
    std::fs::write(stage.kept("safetensors"), damaged).unwrap();
    let mut client = stage.client();
    stage.client_says("is damaged");
    stage.client_says("fetched the frozen tensors");
    assert!(client.end().success());
    assert_eq!(std::fs::read(stage.kept("safetensors")).unwrap(), base_file());
    stage.stop();
    was_trained_with_the_base(&stage.report("first"));
}

#[test]
fn a_damaged_file_of_the_server_is_named_by_client_server_and_verify() {
    let mut stage = Stage::set("serve_base = true", []);
    stage.serve();
    let verify = |stage: &Stage| stage.fed.sim(&["server", "verify", "fed"]);
    let mut damaged = base_file();
    damaged[700_000] ^= 1;
    std::fs::write(stage.blob(), &damaged).unwrap();
    let client = || stage.fed.client("anna");
    fails(
        client(),
        1,
        &["sent a base with the digest", "`fl-server verify` on the server"],
    );
    assert!(!stage.kept("part").exists() && !stage.kept("safetensors").exists());
    // Too short: nothing is sent.
    std::fs::write(stage.blob(), &damaged[..1_000]).unwrap();
    let waiting = stage.client();
    let line = stage.client_says("not connected");
    assert!(line.contains("has 1000 bytes"), "{line}");
    std::fs::write(stage.blob(), base_file()).unwrap();
    stage.client_says("fetched the frozen tensors");
    let mut waiting = waiting;
    assert!(waiting.end().success());
    stage.stop();
    assert!(done(verify(&stage)).contains("; base ok\n"));
    std::fs::write(stage.blob(), &damaged).unwrap();
    fails(verify(&stage), 4, &["is not what was recorded"]);
    std::fs::remove_file(stage.blob()).unwrap();
    fails(verify(&stage), 4, &["is not what was recorded"]);
}

#[test]
fn a_folder_that_takes_no_base_stops_the_client_with_what_to_do() {
    let mut stage = Stage::set("serve_base = true", []);
    stage.serve();
    let folder = stage.kept("part").parent().unwrap().to_owned();
    std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
    std::fs::write(&folder, "not a folder").unwrap();
    fails(stage.fed.client("anna"), 1, &["state/base", "cannot make the folder"]);
    std::fs::remove_file(&folder).unwrap();
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink("/dev/full", stage.kept("part")).unwrap();
    fails(stage.fed.client("anna"), 1, &[".part: cannot write", "free some space"]);
    std::fs::remove_file(stage.kept("part")).unwrap();
    was_trained_with_the_base(&stage.finish());
}

#[test]
fn a_base_on_the_device_is_used_and_nothing_is_fetched() {
    for keys in ["", "serve_base = true"] {
        let mut stage = Stage::set(keys, []);
        let models = stage.fed.path("anna/hub/of models");
        std::fs::create_dir_all(models.join("below")).unwrap();
        let mut other = frozen();
        other[17] += 1.0;
        std::fs::write(models.join("a.safetensors"), model_file(&other)).unwrap();
        std::fs::write(models.join("b.safetensors"), "not a model").unwrap();
        std::fs::write(models.join("below/model.safetensors"), model_file(&frozen())).unwrap();
        stage.edit_client(|text| format!("models = \"hub/of models\"\n{text}"));
        stage.serve();
        let report = stage.finish();
        was_trained_with_the_base(&report);
        assert_eq!(report.totals.base, 0);
        assert!(!stage.kept("safetensors").exists());
        let index = std::fs::read_to_string(stage.fed.path("anna/state/base/index.json")).unwrap();
        assert!(
            index.contains("below/model.safetensors") && index.contains("a.safetensors"),
            "{index}"
        );
    }
    let stage = Stage::set("", []);
    stage.edit_client(|text| format!("models = \"nowhere\"\n{text}"));
    let check = stage.fed.sim(&["client", "check", "anna/client.toml"]);
    fails(check, 2, &["`models`: there is no folder", "nowhere"]);
}

#[test]
fn a_trainer_with_the_same_base_needs_none_and_another_one_is_told_what_to_do() {
    let mut stage = Stage::set("", []);
    stage.serve();
    let client = stage.client();
    let line = stage.client_says("left round");
    for part in [
        "are not on this device: those of the trainer's own weights have the digest",
        "`models` in client.toml",
        "`serve_base = true`",
    ] {
        assert!(line.contains(part), "{line}");
    }
    drop(client);
    stage.server.take().unwrap().kill();

    // The fake trainer's own values are all 0.25.
    let mut stage = Stage::set("", []);
    std::fs::write(stage.fed.path("init.safetensors"), model_file(&vec![0.25; FROZEN])).unwrap();
    stage.serve();
    let report = stage.finish();
    assert_eq!(report.rounds.len(), 2);
    assert!(
        report
            .rounds
            .iter()
            .all(|round| round.updates == 1 && !round.trained.0.contains_key("base"))
    );
}
