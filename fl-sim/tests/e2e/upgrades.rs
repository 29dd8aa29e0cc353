//! Today's programs open what released versions left on disk, and finish the run.

use std::process::Command;
use std::sync::mpsc::channel;

use crate::fixtures::fed::Fed;
use crate::fixtures::process::{Process, done, wait_for};

/// Released versions, each with the digest of the model after round 3 in its folder.
const RELEASED: [(&str, &str); 1] = [(
    "0.1",
    "dc538ebc76c16f333d113e16950a18d852906a0ce4d2276579e00ab7e634e13e",
)];
const CLIENTS: [&str; 2] = ["camera-00", "camera-01"];

/// A federation with the store and the client states of a released version.
fn left_by(version: &str) -> Fed {
    let fed = Fed::found();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let archive = format!("{golden}/{version}.tar.gz");
    for (i, name) in CLIENTS.iter().enumerate() {
        fed.issue(
            name,
            &format!(
                "[tasks.digits]\nlearner = {{ name = \"mlp\", hidden = [1] }}\n\
                 data = {{ builtin = {{ client = {i}, train = 300, test = 50 }} }}"
            ),
        );
    }
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(&archive).arg("-C").arg(fed.path("."));
    done(unpack);
    std::fs::rename(fed.path("data"), fed.path("fed/data")).unwrap();
    fed
}

#[test]
fn a_run_of_every_released_version_continues_with_its_pending_updates() {
    for (version, model) in RELEASED {
        let fed = left_by(version);
        let before = fed.report();
        assert_eq!((before.run.version, before.run.model.as_str()), (3, model), "{version}");
        assert!(before.balanced, "{version}");

        let (sender, lines) = channel();
        let mut server = Process::start(fed.serve(&["--exit-when-done"]), 0, 1, &sender);
        wait_for(&lines, 0, "serving `kept` on");
        let mut clients: Vec<_> = CLIENTS
            .iter()
            .enumerate()
            .map(|(i, name)| Process::start(fed.client(name), i + 1, 1, &sender))
            .collect();
        assert!(clients.iter_mut().all(|client| client.end().success()), "{version}");
        assert!(server.end().success(), "{version}");
        drop(sender);
        let said: Vec<_> = lines.iter().filter_map(|line| Some((line.who, line.text?))).collect();
        for who in 1..=CLIENTS.len() {
            let mut own = said.iter().filter(|line| line.0 == who).map(|line| &line.1);
            let first = own.find(|text| text.contains("accepted") || text.contains("trains"));
            let first = first.map_or("nothing", |text| text);
            assert!(
                first.contains("update accepted round=4"),
                "{version}: a kept update comes first: {first}"
            );
        }

        let report = fed.report();
        assert_eq!(
            (report.run.state.as_str(), report.run.version),
            ("done", 5),
            "{version}"
        );
        assert!(
            report.balanced && report.rounds.iter().all(|round| round.updates == 2),
            "{version}"
        );
    }
}
