//! SIGHUP to running processes: client.toml and server.toml are read again, what takes a restart is named, and a broken file changes
//! nothing.

use std::sync::mpsc::channel;

use crate::fixtures::fed::{Fed, free_port};
use crate::fixtures::process::{Process, done, wait_for};

const SERVER: usize = 0;
const CLIENT: usize = 1;
const TASK: &str = "[tasks.digits]\nlearner = \"mlp\"\ndata = { builtin = { client = 0, train = 60, test = 20 } }\n";

fn found() -> Fed {
    let fed = Fed::found();
    ["anna", "berta"].iter().for_each(|name| fed.issue(name, TASK));
    fed.plan_walk(2);
    fed
}

#[test]
fn a_client_takes_over_another_server_and_conditions_and_survives_a_broken_file() {
    let fed = found();
    let (sender, lines) = channel();
    let mut server = Process::start(fed.serve(&["--exit-when-done"]), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving `walk` on");
    let path = fed.path("anna/client.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    let nowhere = format!("127.0.0.1:{}", free_port());
    write(&text.replace(&fed.address, &nowhere));
    let (sender, said) = channel();
    let mut anna = Process::start(fed.client("anna"), CLIENT, 1, &sender);
    wait_for(&said, CLIENT, "nothing listens at");

    write("server = 7\n");
    anna.signal("-HUP");
    let error = wait_for(&said, CLIENT, "not reloaded: the settings of before stay in use: ");
    assert!(error.contains("anna/client.toml"), "{error}");
    let changed = text.replace("sync = false", "sync = false\nkeep_model_every = 3");
    write(&format!("{changed}\n{}", TASK.replace("digits", "letters")));
    anna.signal("-HUP");
    wait_for(
        &said,
        CLIENT,
        "restart the client to change `keep_model_every`, `tasks`",
    );
    wait_for(&said, CLIENT, "connected");

    let status_until = |part: &str, shown: bool| {
        while done(fed.sim(&["server", "status", "fed"])).contains(part) != shown {}
    };
    write(&format!("{text}\n[when]\ncommand = [\"false\"]\n"));
    anna.signal("-HUP");
    status_until("anna is paused: ", true);
    write(&text);
    anna.signal("-HUP");
    status_until("anna is paused: ", false);
    let mut berta = Process::start(fed.client("berta"), 2, 1, &sender);
    wait_for(&lines, SERVER, "done: version 2");
    assert!(server.end().success() && anna.end().success() && berta.end().success());
    let report = fed.report();
    assert!(report.balanced);
    let anna = report.clients.iter().find(|client| client.client == "anna").unwrap();
    assert_eq!(anna.updates, 2);
}
