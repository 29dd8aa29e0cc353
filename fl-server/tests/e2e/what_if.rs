//! `fl-server report --what-if` on the command line: its answers, and its errors for questions it cannot answer.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use crate::contains::assert_contains;
use crate::stored_run::StoredRun;
use fl_compress::{Layout, Spec};

const TOP_K: &str =
    "memory = 'none'\ndefault = { reduce = { top_k = 0.05 }, quantize = { uniform = 4 }, code = 'rans' }";

struct Founded {
    dir: tempfile::TempDir,
    fed: PathBuf,
}

/// A federation with a finished run of three clients and two rounds, with exact updates.
fn founded() -> Founded {
    let dir = tempfile::tempdir().unwrap();
    let fed = dir.path().join("fed");
    let init = Command::new(env!("CARGO_BIN_EXE_fl-server"))
        .arg("init")
        .arg(&fed)
        .output();
    assert!(init.unwrap().status.success());
    let layout = Arc::new(Layout::new([("a.weight", vec![40, 25]), ("b.bias", vec![10])]).unwrap());
    let delta = |client: usize, round: u64| -> Vec<f32> {
        let salt = client as f32 + round as f32 * 3.0;
        (0..1010).map(|i| ((i as f32 + salt) * 0.73).sin().powi(9)).collect()
    };
    let run = StoredRun {
        name: "test",
        layout,
        clients: 3,
        rounds: 2,
        uplink: &Spec::exact(),
        delta: &delta,
    };
    run.write(&fed.join("data"));
    Founded { dir, fed }
}

impl Founded {
    fn spec(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("spec.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn ask(&self, spec: &Path, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fl-server"));
        command.arg("report").arg(&self.fed).arg("--what-if").arg(spec);
        command.args(more).output().unwrap()
    }

    fn good(&self, text: &str, more: &[&str]) -> String {
        let output = self.ask(&self.spec(text), more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stderr, b"");
        String::from_utf8(output.stdout).unwrap()
    }

    fn bad(&self, code: i32, text: &str, words: &str) {
        let output = self.ask(&self.spec(text), &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_contains(&said, words);
        assert_eq!(output.stdout, b"", "{said}");
    }

    /// The blobs, sorted by name.
    fn blobs(&self) -> Vec<PathBuf> {
        let blobs = std::fs::read_dir(self.fed.join("data/blobs/test")).unwrap();
        let mut blobs: Vec<PathBuf> = blobs.map(|blob| blob.unwrap().path()).collect();
        blobs.sort();
        blobs
    }
}

#[test]
fn answers_come_as_tables_and_as_json() {
    let founded = founded();
    let text = founded.good(TOP_K, &[]);
    for words in [
        "client-2",
        "Verdict: ",
        "the steps are encoded by the asked spec too",
        "million a second",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let output = founded.dir.path().join("answer.json");
    let written = founded.good(
        TOP_K,
        &["--format", "json", "--threads", "2", "-o", output.to_str().unwrap()],
    );
    assert_eq!(written, "");
    let answer: serde_json::Value = serde_json::from_slice(&std::fs::read(output).unwrap()).unwrap();
    assert_eq!((&answer["run"], &answer["parameters"]), (&"test".into(), &1010.into()));
    assert_eq!(answer["clients"]["frames"], serde_json::json!([2, 2, 2]));
    assert_eq!(answer["rounds"]["round"], serde_json::json!([1, 2]));
    assert!(answer["updates"]["ratio"].as_f64().unwrap() > 10.0, "{answer}");
    assert_eq!(answer["missing"], serde_json::json!({}));
}

#[test]
fn specs_that_cannot_be_met_are_usage() {
    let founded = founded();
    founded.bad(2, "memory = 'none", "spec.toml");
    founded.bad(2, "rounds = 3", "unknown field `rounds`");
    founded.bad(2, "memory = 'ef21'", "the server would have to keep a vector");
    founded.bad(2, "budget = '20B'\ndefault = {}", "spec.toml");
    let nowhere = founded.ask(Path::new("/nowhere.toml"), &[]);
    assert_eq!(nowhere.status.code(), Some(2));
    let spec = founded.spec(TOP_K);
    assert_eq!(founded.ask(&spec, &["--threads", "0"]).status.code(), Some(2));
    assert_eq!(founded.ask(&spec, &["other"]).status.code(), Some(1));
}

#[test]
fn what_is_not_kept_is_said_and_what_is_damaged_is_named() {
    let founded = founded();
    let answer: serde_json::Value = serde_json::from_str(&founded.good(TOP_K, &["--format", "json"])).unwrap();
    // The model updates are the updates of the first client with another kind; a snapshot is not a model update.
    assert_eq!(answer["steps"]["frames"], 2);
    let text = |blob: &Path| std::fs::read(blob).unwrap();
    let is_update = |blob: &Path| text(blob)[6] == 0;
    let updates: Vec<PathBuf> = founded.blobs().into_iter().filter(|blob| is_update(blob)).collect();
    assert_eq!(updates.len(), 6);

    let sound = text(&updates[0]);
    std::fs::write(&updates[0], &sound[1..]).unwrap();
    let name = updates[0].file_name().unwrap().to_str().unwrap();
    founded.bad(4, TOP_K, name);
    std::fs::remove_file(&updates[0]).unwrap();
    let said = founded.good(TOP_K, &[]);
    assert_contains(&said, "left out: 1 of the run's updates");
    assert_contains(&said, "`keep_updates = true`");
    for update in &updates[1..] {
        std::fs::remove_file(update).unwrap();
    }
    founded.bad(1, TOP_K, "none of the 6 updates of run test is stored any more");
}
