//! `model.snapshot`: late joiners get the short snapshot of a rounded version and the model updates after it.

use fl_compress::Digest;
use fl_proto::PartialFrame;
use fl_server::{RunPlan, Serve};

use crate::edge::fl_server;
use crate::support::*;

fn options(fed: &Fed, rounds: u64) -> Serve {
    let run = Run::rounds(rounds).compression(SPARSE);
    let text = fed.toml(&run).replace("model = \"init.safetensors\"\n", "");
    let table = "[model]\nweights = \"init.safetensors\"\nsnapshot = { bits = 8, every = 3 }\n[cohort]";
    let text = text.replace("[cohort]", table);
    std::fs::write(fed.dir.path().join("run.toml"), &text).unwrap();
    let mut options = fed.options(&run);
    options.plan = RunPlan::from_toml(&text, fed.dir.path()).unwrap();
    options.tuning.keep_updates = true;
    options.exit_when_done = false;
    options
}

/// The model that a client without any fetches, and the versions of the frames.
async fn late(fed: &Fed, server: &Server, want: u64) -> (Digest, Vec<u64>) {
    let mut client = fed.client("late", server).await;
    let (header, _) = client.fetch(None, want).await.unwrap();
    assert!(header.is_snapshot());
    let most = 2 * client.run.as_ref().unwrap().layout.len() as u64;
    assert!(header.sent_bytes() < most, "{} bytes, of {most}", header.sent_bytes());
    let versions = header.frames().iter().map(|part| part.version).collect();
    (client.try_update_model(want).await.unwrap(), versions)
}

#[tokio::test]
async fn a_late_joiner_has_the_server_s_model_from_a_short_snapshot_also_after_a_restart_and_a_rollback() {
    let fed = Fed::new();
    let server = Server::start(options(&fed, 8)).await;
    let mut clients = fed.clients(&server).await;
    let models = all_take_part(&mut clients).await;
    assert!(models.iter().all(|model| *model == models[0]));
    assert_eq!(late(&fed, &server, 8).await, (models[0], vec![6, 7, 8]));
    // A client that holds a version gets the model updates alone.
    let (header, _) = clients[0].fetch(Some(5), 8).await.unwrap();
    assert!(!header.is_snapshot() && header.frames().len() == 3);
    // A part of a short snapshot is continued.
    let request = |partial| fetch_request(None, 8, partial);
    let (whole, bytes) = clients[0].fetch_bytes(request(None)).await.unwrap();
    let digest = whole.frames()[0].digest;
    let partial = Some(PartialFrame { digest, held: 100 });
    let (rest, after) = clients[0].fetch_bytes(request(partial)).await.unwrap();
    assert_eq!((rest.frames(), rest.offset()), (whole.frames(), 100));
    assert_eq!(after, bytes[100..]);
    drop(clients);
    assert_eq!(server.stop().await.model, models[0]);
    assert!(fed.ledger().is_balanced());

    let server = Server::start(options(&fed, 8)).await;
    assert_eq!(late(&fed, &server, 8).await, (models[0], vec![6, 7, 8]));
    server.stop().await;

    std::fs::write(fed.dir.path().join("server.toml"), "admin = \"off\"\n").unwrap();
    let dir = fed.dir.path().to_str().unwrap();
    fl_server(&["rollback", dir, "--to", "4"]).await;
    let server = Server::start(options(&fed, 8)).await;
    let mut clients = fed.clients(&server).await;
    let models = all_take_part(&mut clients).await;
    assert!(models.iter().all(|model| *model == models[0]));
    // Version 9 is the rollback; four more rounds follow.
    assert_eq!(late(&fed, &server, 13).await, (models[0], vec![12, 13]));
    drop(clients);
    server.stop().await;
    let plan = fed.dir.path().join("run.toml");
    let verified = fl_server(&["verify", dir, "--plan", plan.to_str().unwrap()]).await;
    let is_good = |round: u64| verified.contains(&format!("round {round:>4}: link ok; model ok; aggregation ok"));
    assert!([1, 3, 6, 8, 10, 12, 13].into_iter().all(is_good), "{verified}");
    let model = fed.dir.path().join("model.safetensors");
    let exported = fl_server(&["export", dir, "-o", model.to_str().unwrap()]).await;
    assert_contains(&exported, &models[0].to_string());
}

#[tokio::test]
async fn check_says_which_versions_are_rounded_and_warns_where_the_error_is_lost() {
    let fed = Fed::new();
    let plan = options(&fed, 6).plan;
    let file = fed.dir.path().join("run.toml");
    let file = file.to_str().unwrap();
    let said = fl_server(&["check", file]).await;
    assert_contains(&said, "rounded versions: one in 3, to 8 bits a value");
    let text = plan.text.0.replace("memory  = \"error-feedback\"", "memory = \"none\"");
    std::fs::write(file, text).unwrap();
    let said = fl_server(&["check", file]).await;
    assert_contains(&said, "WARNING: `model.snapshot` rounds one version in 3");
    let text = plan.text.0.replace("every = 3", "every = 300");
    std::fs::write(file, text).unwrap();
    let said = fl_server(&["check", file]).await;
    assert_contains(&said, "WARNING: `model.snapshot.every` is 300, so that a run of");
}
