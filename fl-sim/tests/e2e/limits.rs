//! `[limits]` of client.toml: clients that are limited take part, and the ledger still equals the sockets.

use std::sync::mpsc::channel;

use crate::fixtures::fed::Fed;
use crate::fixtures::process::{Process, wait_for};

#[test]
fn limited_clients_finish_their_run_and_the_ledger_equals_the_sockets() {
    let fed = Fed::found();
    for (i, name) in ["anna", "berta"].into_iter().enumerate() {
        let task = format!(
            "[limits]\nupload = \"1Mbit/s\"\ndownload = \"1Mbit/s\"\ncpus = 1\nnice = 5\n\
             [tasks.digits]\nlearner = {{ name = \"mlp\", hidden = [16] }}\n\
             data = {{ builtin = {{ client = {i}, train = 40, test = 20 }} }}"
        );
        fed.issue(name, &task);
    }
    let run = "name = \"slow\"\ntask = \"digits\"\nrounds = 2\nseed = 3\n[cohort]\nmin = 2\ntarget = 2\n";
    fed.plan(run, "{ name = 'mlp', hidden = [16] }", 3);
    let (sender, lines) = channel();
    let mut server = Process::start(fed.serve(&["--exit-when-done"]), 0, 1, &sender);
    wait_for(&lines, 0, "serving `slow` on");
    let clients = ["anna", "berta"].map(|name| Process::start(fed.client(name), 1, 1, &sender));
    for mut client in clients {
        assert!(client.end().success());
    }
    assert!(server.end().success());
    drop(sender);
    let said: Vec<_> = lines.iter().filter_map(|line| line.text).collect();
    assert!(
        !said
            .iter()
            .any(|line| line.contains("ALERT") || line.contains("differs")),
        "{said:?}"
    );
    assert_eq!(fed.report().rounds.len(), 2);
}
