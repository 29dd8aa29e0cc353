//! `fl-server check server.toml`: what it finds of files, ports and the machine.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::contains::assert_contains;

/// A federation at a port.
struct Fed(tempfile::TempDir);

impl Fed {
    fn new(listen: &str) -> Self {
        let fed = Self(tempfile::tempdir().unwrap());
        let folder = fed.path("fed");
        let init = ["init", folder.to_str().unwrap(), "--listen", listen, "--admin", "off"];
        let made = Command::new(env!("CARGO_BIN_EXE_fl-server"))
            .args(init)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        // A port that other tests do not use.
        fed.edit(|text| text.replace("enroll = ", "#enroll = ") + "\nenroll = \"off\"\n");
        fed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn edit(&self, edit: impl FnOnce(String) -> String) {
        let path = self.path("fed/server.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("enroll = "));
        let text = lines.map(|line| format!("{line}\n")).collect();
        std::fs::write(path, edit(text)).unwrap();
    }

    /// Exit code, result and standard error of a check, at most `files` files open.
    fn check(&self, files: &str) -> (Option<i32>, Value, String) {
        let script = format!("ulimit -n {files}; exec \"$0\" check \"$1\" --format json");
        let output = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_fl-server")])
            .arg(self.path("fed/server.toml"))
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let result = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
        (output.status.code(), result, stderr)
    }
}

/// Level and text of the line about something.
fn line<'a>(result: &'a Value, check: &str) -> (&'a str, &'a str) {
    let found = result["lines"]
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no line `{check}` in {result:#}"));
    (found["level"].as_str().unwrap(), found["text"].as_str().unwrap())
}

#[test]
fn a_new_federation_is_good_and_has_every_line() {
    let fed = Fed::new("127.0.0.1:0");
    let (code, result, stderr) = fed.check("20000");
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{result:#}");
    let checks: Vec<_> = result["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| &line["check"])
        .collect();
    let expected = [
        "configuration",
        "certificates",
        "key",
        "authority_key",
        "listen",
        "open files",
        "data",
        "flush",
        "disk",
    ];
    assert_eq!(checks, expected);
    // The machine of a test may be slow or full.
    let of_machine = ["open files", "flush", "disk"];
    for check in expected.iter().filter(|check| !of_machine.contains(check)) {
        assert_eq!(line(&result, check).0, "good", "{result:#}");
    }
    assert_eq!(
        (&result["kind"], &result["missing"]),
        (&"server".into(), &Value::Array(Vec::new()))
    );
    assert!(
        line(&result, "certificates")
            .1
            .contains("and the server renews its own by itself"),
        "{result:#}"
    );
}

#[test]
fn a_port_that_is_taken_a_readable_key_and_too_few_files_are_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let fed = Fed::new(&listener.local_addr().unwrap().to_string());
    let key = fed.path("fed/server.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(fed.path("fed/revoked"), "two words\n").unwrap();
    let (code, result, stderr) = fed.check("256");
    assert_eq!((code, &result["verdict"]), (Some(2), &"wrong".into()), "{result:#}");
    assert_contains(&stderr, "is taken");
    assert_contains(&stderr, "choose another port with `listen`");
    if cfg!(target_os = "linux") {
        let holder = format!("(process {}) listens there", std::process::id());
        assert!(line(&result, "listen").1.ends_with(&holder), "{result:#}");
    }
    let key = ("warning", "mode 0644: other users may read or replace it");
    let files = ("warning", "a limit of 256 leaves");
    let revoked = ("warning", "`two words` is neither a name nor a fingerprint");
    for (check, (level, part)) in [("key", key), ("open files", files), ("revoked", revoked)] {
        let found = line(&result, check);
        assert!(found.0 == level && found.1.contains(part), "{check}: {result:#}");
    }
    // A process that another test starts holds a copy of the listener until it executes its program: closing is not enough.
    TcpStream::from(OwnedFd::from(listener)).shutdown(Shutdown::Both).ok();
    let (code, result, _) = fed.check("256");
    assert_eq!((code, &result["verdict"]), (Some(0), &"warning".into()), "{result:#}");
}

#[test]
fn a_data_folder_that_cannot_be_written_is_wrong() {
    let fed = Fed::new("127.0.0.1:0");
    // No file can be made there, not even by root.
    fed.edit(|text| format!("data = \"/proc/self/data\"\n{text}enroll = \"off\"\n"));
    let (code, result, stderr) = fed.check("20000");
    assert_eq!(code, Some(2), "{result:#}");
    assert!(
        line(&result, "data")
            .1
            .starts_with("nothing can be written in /proc/self: "),
        "{result:#}"
    );
    assert_contains(&stderr, "name another one with `data`");
}
