//! The data folder: two runs side by side, damaged files, and recovery from what remains.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::support::*;
use fl_compress::{Digest, Encoder, Frame, Spec};
use fl_proto::{Phase, UpdateReply};
use fl_server::blobs::Blobs;
use fl_server::disk::Disk;
use fl_server::record::Record;
use fl_server::store::{RunStore, Store};
use fl_server::{Ending, Event, Outcome, RunPlan, Serve};

const ROUNDS: u64 = 12;

/// A run with this name in the data folder of the federation; a checkpoint every second round.
fn options(fed: &Fed, name: &str, run: &Run) -> Serve {
    let text = fed.toml(run).replace("\"test\"", &format!("\"{name}\""));
    let mut options = fed.options(run);
    options.plan = RunPlan::from_toml(&text, fed.dir.path()).unwrap();
    options.tuning.checkpoint_every = 2;
    options.tuning.keep_updates = false;
    options
}

fn run() -> Run {
    Run::rounds(ROUNDS)
}

/// Serves rounds `from` to `to` with all clients, then stops.
async fn serve_rounds(fed: &Fed, options: Serve, from: u64, to: u64) {
    let server = Server::start(options).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = watch_all(&mut hands).await;
    for round in from..=to {
        for watch in &mut watches {
            TestClient::until_round(watch, round).await;
        }
        for hand in &mut hands {
            assert_eq!(hand.send(round).await, UpdateReply::Accepted);
        }
    }
    TestClient::until(&mut watches[0], |state| state.version == to).await;
    server.stop().await;
}

/// Serves a run to its end.
async fn serve_to_the_end(fed: &Fed, options: Serve) -> Outcome {
    serve_with_damage(fed, options).await.0
}

/// Serves a run to its end; also returns the damage that the server found.
async fn serve_with_damage(fed: &Fed, options: Serve) -> (Outcome, Vec<String>) {
    let name = options.plan.name.clone();
    let mut server = Server::start(options).await;
    let mut hands = fed.clients(&server).await;
    all_take_part(&mut hands).await;
    drop(hands);
    let mut damage = Vec::new();
    while let Some(event) = server.events.recv().await {
        if let Event::Damaged(text) = event {
            damage.push(text);
        }
    }
    let outcome = server.end().await;
    assert_eq!((&outcome.ending, outcome.version), (&Ending::Done, ROUNDS), "{name}");
    (outcome, damage)
}

/// A run with residuals on both sides, with or without stored updates.
fn sparse(fed: &Fed, name: &str, keep_updates: bool) -> Serve {
    let mut options = options(fed, name, &run().compression(SPARSE));
    options.tuning.keep_updates = keep_updates;
    options
}

fn stored(fed: &Fed, name: &str) -> RunStore {
    let store = Store::open(&fed.data(), Disk::default()).unwrap();
    store.run(&name.parse().unwrap()).unwrap()
}

fn blobs(fed: &Fed, name: &str) -> Blobs {
    Blobs::open(&fed.data(), &name.parse().unwrap(), Disk::default()).unwrap()
}

/// The checkpoint files of a run, newest first.
fn checkpoints(fed: &Fed, name: &str) -> Vec<PathBuf> {
    let (run, blobs) = (stored(fed, name), blobs(fed, name));
    let kept = run.checkpoints().unwrap();
    kept.iter().map(|kept| blobs.path(&kept.blob)).collect()
}

/// The file that the first update of a round is in.
fn update(fed: &Fed, name: &str, of: u64) -> PathBuf {
    let (run, blobs) = (stored(fed, name), blobs(fed, name));
    let found = run.records().find_map(|record| match record.unwrap() {
        Record::UpdateAccepted { round, update, .. } if round == of => Some(blobs.path(&update.digest)),
        _ => None,
    });
    found.unwrap()
}

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn remove(path: &Path) {
    std::fs::remove_file(path).unwrap();
}

/// Output and exit code of `fl-server verify` for a run.
fn verify(fed: &Fed, name: &str) -> (i32, String) {
    std::fs::write(fed.dir.path().join("server.toml"), "data = \"data\"\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fl-server"));
    let output = command.arg("verify").arg(fed.dir.path()).arg(name).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

#[tokio::test]
async fn a_run_loses_nothing_to_another_run_of_the_same_updates() {
    let fed = Fed::new();
    serve_rounds(&fed, options(&fed, "a", &run()), 1, 5).await;
    let other = serve_to_the_end(&fed, options(&fed, "b", &run())).await;
    let outcome = serve_to_the_end(&fed, options(&fed, "a", &run())).await;
    assert_eq!(outcome.model, other.model, "the same updates make the same model");
}

#[tokio::test]
async fn an_upload_that_broke_off_is_resumed_after_another_run_was_served() {
    let fed = Fed::new();
    let (a, b) = (options(&fed, "a", &run()), options(&fed, "b", &run()));
    let server = Server::start(a).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = watch_all(&mut hands).await;
    TestClient::until(&mut watches[0], |state| state.phase == Phase::Training).await;
    let frame = hands[0].encode(1);
    let header = hands[0].header(1, &frame);
    let half = vec![header_chunk(&header), data_chunk(&frame[..100])];
    let wanted = UpdateReply::Wanted { offset: 100 };
    assert_eq!(hands[0].submit_parts(half).await.unwrap(), wanted);
    server.stop().await;

    serve_rounds(&fed, b, 1, 1).await;
    let server = Server::start(options(&fed, "a", &run())).await;
    let mut anna = fed.client("anna", &server).await;
    assert_eq!(anna.offer(&header).await, wanted);
    server.stop().await;
}

/// Serves versions 0 to 5 (checkpoints at version 4, and at 5 when it stops), applies `damage`, then serves the run to its end. The
/// model must equal that of `plain`, which was stopped and restarted without damage.
async fn goes_on(
    fed: &Fed,
    (name, keep_updates): (&str, bool),
    damage: impl FnOnce(&Fed),
    plain: &Outcome,
) -> Vec<String> {
    serve_rounds(fed, sparse(fed, name, keep_updates), 1, 5).await;
    damage(fed);
    let (outcome, alerts) = serve_with_damage(fed, sparse(fed, name, keep_updates)).await;
    assert_eq!(outcome.model, plain.model, "{name}: {alerts:?}");
    alerts
}

async fn undisturbed(fed: &Fed) -> Outcome {
    serve_rounds(fed, sparse(fed, "plain", true), 1, 5).await;
    serve_to_the_end(fed, sparse(fed, "plain", true)).await
}

#[tokio::test]
async fn a_damaged_checkpoint_is_replaced_by_the_older_one_or_by_all_updates_to_the_bit() {
    let fed = Fed::new();
    let plain = undisturbed(&fed).await;
    assert_eq!(verify(&fed, "plain").0, 0, "{}", verify(&fed, "plain").1);
    for (name, damage) in [("flipped", flip as fn(&Path)), ("removed", remove)] {
        let newest = |fed: &Fed| damage(&checkpoints(fed, name)[0]);
        let alerts = goes_on(&fed, (name, false), newest, &plain).await;
        assert!(
            alerts[0].contains("from the checkpoint of version 4; nothing is lost"),
            "{alerts:?}"
        );
        assert_eq!(alerts.len(), 1, "{alerts:?}");
        let (code, said) = verify(&fed, name);
        assert_eq!(code, 5, "{code}: {said}");
        assert!(said.contains("note: stored data cannot be used"), "{code}: {said}");
    }
    let both = |fed: &Fed| checkpoints(fed, "both").iter().for_each(|path| remove(path));
    let alerts = goes_on(&fed, ("both", true), both, &plain).await;
    assert!(
        alerts[0].contains("from the first weights and the updates of all rounds; nothing is lost"),
        "{alerts:?}"
    );
    let (code, said) = verify(&fed, "both");
    assert_eq!(code, 0, "{said}");
}

#[tokio::test]
async fn without_checkpoints_and_updates_the_steps_make_the_same_model_and_what_is_lost_is_said() {
    let fed = Fed::new();
    for keep_updates in [false, true] {
        let name = if keep_updates { "kept" } else { "dropped" };
        serve_rounds(&fed, sparse(&fed, name, keep_updates), 1, 5).await;
        checkpoints(&fed, name).iter().for_each(|path| flip(path));
        if keep_updates {
            remove(&update(&fed, name, 3));
        }
        // Served twice, as recovery must happen only once.
        let server = Server::start(sparse(&fed, name, keep_updates)).await;
        assert_eq!(server.stop().await.version, 5);
        serve_rounds(&fed, sparse(&fed, name, keep_updates), 6, 7).await;
        let (_, alerts) = serve_with_damage(&fed, sparse(&fed, name, keep_updates)).await;
        assert_eq!(alerts, Vec::<String>::new(), "the new checkpoint is good");
        let (code, said) = verify(&fed, name);
        assert_contains(&said, "residual and the optimizer's state begin anew");
        // The model updates of later rounds are rebuilt from the checkpoints.
        assert_contains(&said, "round   12: link ok; model ok; aggregation ok");
        let (expected, part) = if keep_updates {
            (4, "is missing")
        } else {
            (5, "aggregation of rounds 1 to ")
        };
        assert_eq!(code, expected, "{said}");
        assert_contains(&said, part);
    }
}

/// Replaces the frame of the model update of a round by one of the same values that another encoder makes.
fn encode_otherwise(fed: &Fed, name: &str, of: u64) {
    let (run, blobs) = (stored(fed, name), blobs(fed, name));
    let records = run.records().map(Result::unwrap);
    let closed = |record: &Record| matches!(record, Record::RoundClosed { round, .. } if *round == of);
    let mut record = records.filter(closed).last().unwrap();
    let before = record.to_bytes();
    let Record::RoundClosed { step, .. } = &mut record else {
        panic!("{record:?}")
    };
    let (layout, bytes) = (Arc::clone(&fed.layout), blobs.get(&step.frame).unwrap());
    let sent = Frame::parse(&bytes, &layout).unwrap();
    let mut values = vec![0.0; layout.len()];
    sent.accumulate(1.0, &mut values).unwrap();
    let header = sent.header();
    let exact = Encoder::new(Arc::clone(&layout), &Spec::exact()).unwrap();
    let other = { exact }.encode(&mut values, header).unwrap();
    blobs.put(&other.frame).unwrap();
    assert_ne!(step.frame, other.digest);
    step.frame = other.digest;
    step.frame_len = other.frame.len() as u64;
    drop(run);
    let store = (0..).find_map(|_| sled::open(fed.data().join("store")).ok()).unwrap();
    let found = store.iter().map(Result::unwrap).find(|(_, value)| *value == before);
    store.insert(found.unwrap().0, record.to_bytes()).unwrap();
    store.flush().unwrap();
}

/// Forgets the checkpoint that a stopped server wrote: a killed one has none.
fn forget_last_checkpoint(fed: &Fed, name: &str) {
    let run = stored(fed, name);
    let [last, before] = run.checkpoints().unwrap()[..] else {
        panic!("two checkpoints")
    };
    assert_eq!((last.version, before.version), (5, 4));
    run.set_checkpoints(&[before], &[]).unwrap();
}

#[tokio::test]
async fn a_server_that_was_stopped_replays_nothing_so_another_encoder_costs_it_nothing() {
    let fed = Fed::new();
    let name = "stopped";
    serve_rounds(&fed, sparse(&fed, name, true), 1, 5).await;
    encode_otherwise(&fed, name, 5);
    let (_, alerts) = serve_with_damage(&fed, sparse(&fed, name, true)).await;
    assert_eq!(alerts, Vec::<String>::new());
}

#[tokio::test]
async fn a_model_update_that_another_program_encoded_is_taken_as_it_was_sent() {
    let fed = Fed::new();
    let name = "encoded";
    serve_rounds(&fed, sparse(&fed, name, true), 1, 5).await;
    forget_last_checkpoint(&fed, name);
    encode_otherwise(&fed, name, 5);
    let (_, alerts) = serve_with_damage(&fed, sparse(&fed, name, true)).await;
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    let said = &alerts[0];
    assert_contains(said, "round 5, repeated, gives frame");
    assert_contains(said, "the encoder of another version");
    assert_contains(said, "the model is exact");
}

#[tokio::test]
async fn an_audit_without_files_misses_no_missing_update_or_checkpoint() {
    let fed = Fed::new();
    let name = "audited";
    serve_to_the_end(&fed, sparse(&fed, name, true)).await;
    let (code, said) = verify(&fed, name);
    assert_eq!(code, 0, "{said}");
    assert_contains(&said, "checkpoint of version 10: ok");
    for path in [update(&fed, name, 4), checkpoints(&fed, name).remove(1)] {
        let bytes = std::fs::read(&path).unwrap();
        remove(&path);
        let (code, said) = verify(&fed, name);
        assert_eq!(code, 4, "{code}: {said}");
        assert!(said.contains("DIFFERS"), "{code}: {said}");
        assert!(said.contains("is missing"), "{code}: {said}");
        std::fs::write(&path, bytes).unwrap();
    }
    let head = fed.data().join("head");
    remove(&head);
    for _ in 0..2 {
        let (_, said) = verify(&fed, name);
        assert_contains(&said, "note: data/head was missing");
    }
}

#[tokio::test]
async fn an_audit_checks_the_kept_snapshots() {
    let fed = Fed::new();
    let name = "rounded";
    let text = fed.toml(&run()).replace("\"test\"", &format!("\"{name}\""));
    let model = "[model]\nweights = \"init.safetensors\"\nsnapshot = { bits = 8, every = 3 }\n[cohort]";
    let text = text
        .replace("model = \"init.safetensors\"\n", "")
        .replace("[cohort]", model);
    let mut serve = options(&fed, name, &run());
    serve.plan = RunPlan::from_toml(&text, fed.dir.path()).unwrap();
    serve.tuning.keep_updates = true;
    serve_to_the_end(&fed, serve).await;
    let (code, said) = verify(&fed, name);
    assert_eq!(code, 0, "{said}");
    assert_contains(&said, "snapshot of version 12: ok");

    let run = stored(&fed, name);
    let list = run.meta("snapshots").unwrap().unwrap();
    let newest = Digest(*list.last_chunk().unwrap());
    let path = blobs(&fed, name).path(&newest);
    drop(run);
    for (damage, why) in [(flip as fn(&Path), "digest"), (remove, "is missing")] {
        damage(&path);
        let (code, said) = verify(&fed, name);
        assert_eq!(code, 4, "{code}: {said}");
        assert!(said.contains("snapshot of version 12: DIFFERS"), "{code}: {said}");
        assert!(said.contains(why), "{code}: {said}");
    }
}
