//! Properties of the server core: state machine, model, store, blobs and plan.

// clippy.toml allows unwrap only in functions marked as tests, and helpers are not.
#![allow(clippy::unwrap_used)]

mod bandwidths;
mod budgets;
#[path = "../fixtures/contains.rs"]
mod contains;
mod methods;
mod model;
mod plan;
mod predicted;
mod roles;
mod rounded;
mod state_machine_laws;
mod state_machine_rules;
mod storage;
mod world;

use std::path::Path;

use fl_proto::ClientId;
use fl_server::plan::RunPlan;

fn client(i: usize) -> ClientId {
    format!("client-{i:02}").parse().unwrap()
}

/// min 2, target 3, size 4, grace 10 s, deadline 60 s, 2 retries, 3 rounds.
fn plan(changes: &[(&str, &str)]) -> RunPlan {
    RunPlan::from_toml(&text(changes), Path::new("/base")).unwrap()
}

fn text(changes: &[(&str, &str)]) -> String {
    let text = r#"
        name = "test"
        task = "nothing"
        rounds = 3
        seed = 7
        model = "init.safetensors"
        evaluate = true
        [cohort]
        min = 2
        target = 3
        size = 4
        grace = "10s"
        deadline = "60s"
        retries = 2
        [compression.uplink]
        memory = "none"
        default = {}
        [compression.downlink]
        memory = "none"
        default = {}
    "#;
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}
