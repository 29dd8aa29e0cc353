//! The authority is rotated while a server runs, and SIGHUP reloads certificates.

use std::sync::mpsc::channel;
use std::time::Instant;

use crate::fixtures::fed::Fed;
use crate::fixtures::process::{Process, TIMEOUT, done, fails, wait_for};

const SERVER: usize = 0;

fn digits(client: u32) -> String {
    format!("[tasks.digits]\nlearner = \"mlp\"\ndata = {{ builtin = {{ client = {client}, train = 60, test = 20 }} }}")
}

/// A federation that waits for a client which never comes.
fn found() -> Fed {
    let fed = Fed::found();
    fed.issue("anna", &digits(0));
    fed.plan_walk(9);
    fed
}

#[test]
fn both_authorities_are_trusted_until_the_rotation_ends() {
    let fed = found();
    let (sender, lines) = channel();
    let _server = Process::start(fed.serve(&[]), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving `walk` on");
    let authority = |command: &[&str]| fed.sim(&[&["server", "authority", "--fed", "fed"], command].concat());
    let connects = |name: &str, who: usize| {
        let (sender, said) = channel();
        let client = Process::start(fed.client(name), who, 1, &sender);
        wait_for(&said, who, "connected");
        client
    };
    let anna = connects("anna", 1);
    fails(authority(&["finish"]), 2, &["no rotation is in progress"]);
    let shown = done(authority(&["rotate"]));
    assert_eq!(
        (shown.lines().count(), shown.matches(" 1 clients").count()),
        (2, 1),
        "{shown}"
    );
    fails(authority(&["rotate"]), 2, &["a rotation is in progress"]);
    // A certificate of each authority, and a new connection with the old one.
    fed.issue("berta", &digits(1));
    let berta = connects("berta", 2);
    drop(anna);
    let anna = connects("anna", 3);
    let status = || done(fed.sim(&["server", "status", "fed"]));
    let expected = "1 clients have a certificate of the new one, 1 of the old one";
    let begun = Instant::now();
    while !status().contains(expected) {
        assert!(begun.elapsed() < TIMEOUT, "{}", status());
    }
    fails(
        authority(&["finish"]),
        1,
        &["1 clients have a certificate of the old authority: anna", "--force"],
    );
    let shown = done(authority(&["finish", "--force"]));
    assert_eq!(shown.lines().count(), 1, "{shown}");
    // From now on the old authority is worth nothing, on either side, and without a new start of a client.
    let trusted = || std::fs::read_to_string(fed.path("berta/authority.pem")).unwrap();
    let begun = Instant::now();
    while trusted().matches("BEGIN").count() > 1 {
        assert!(begun.elapsed() < TIMEOUT, "{}", trusted());
        std::thread::yield_now();
    }
    drop((anna, berta));
    let _berta = connects("berta", 4);
    fails(fed.client("anna"), 3, &["another federation"]);
    assert!(!status().contains("is rotated"), "{}", status());
}

#[test]
fn a_rotation_that_was_interrupted_is_typed_again() {
    let fed = found();
    let authority = |command: &[&str]| fed.sim(&[&["server", "authority", "--fed", "fed"], command].concat());
    let file = |name: &str| fed.path("fed").join(name);
    done(authority(&["rotate"]));
    // As a crash before the new key took its place leaves it.
    std::fs::rename(file("authority.key"), file("authority.key.next")).unwrap();
    std::fs::copy(file("authority.key.old"), file("authority.key")).unwrap();
    done(authority(&["rotate"]));
    assert!(!file("authority.key.next").exists() && file("authority.key.old").exists());
    // As a crash between the server's key and its certificate leaves them.
    let other = Fed::found();
    std::fs::copy(other.path("fed/server.key"), file("server.key")).unwrap();
    fails(authority(&["show"]), 2, &["cannot be used"]);
    assert_eq!(done(authority(&["finish"])).lines().count(), 1);
    assert!(!file("authority.key.old").exists());
    fails(authority(&["finish"]), 2, &["no rotation is in progress"]);
}

#[test]
fn a_reload_takes_new_certificates_and_refuses_broken_ones() {
    let fed = found();
    let (sender, lines) = channel();
    let server = Process::start(fed.serve(&[]), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving `walk` on");
    let toml = fed.path("fed/server.toml");
    let before = std::fs::read_to_string(&toml).unwrap();
    std::fs::write(&toml, "listen = 7\n").unwrap();
    server.signal("-HUP");
    let said = wait_for(&lines, SERVER, "not reloaded: ");
    assert!(said.contains("server.toml") && said.contains("stay in use"), "{said}");
    std::fs::write(&toml, format!("{before}\nverify_at_once = 9\nleast_rate = 2048\n")).unwrap();
    server.signal("-HUP");
    let said = wait_for(&lines, SERVER, "new connections and transfers use them");
    assert!(
        said.ends_with("changed: `least_rate`; restart the server to change `verify_at_once`"),
        "{said}"
    );
    // The server goes on with what it had.
    let (sender, said) = channel();
    let _anna = Process::start(fed.client("anna"), 1, 1, &sender);
    wait_for(&said, 1, "connected");
}
