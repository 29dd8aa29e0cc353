//! What the registry decides of a run, and what it does not.

use fl_compress::Memory;
use fl_proto::UpdateReply;
use fl_server::{Event, RunPlan, Serve};

use crate::support::*;

/// `memory = "auto"`, for a cohort of `target`. `more`: a key of `[cohort]`.
fn options(fed: &Fed, name: &str, target: usize, more: &str) -> Serve {
    let run = Run::rounds(2)
        .clients(target)
        .compression("[compression.uplink]\nmemory = \"auto\"\ndefault = { quantize = { uniform = 8 } }");
    let text = fed.toml(&run).replace("\"test\"", &format!("\"{name}\""));
    let text = text.replace("[cohort]", &format!("[cohort]\n{more}"));
    let mut options = fed.options(&run);
    options.plan = RunPlan::from_toml(&text, fed.dir.path()).unwrap();
    options
}

/// The memory of updates that the server names to `names`, who join.
async fn memory(fed: &Fed, options: Serve, names: &[&str]) -> Memory {
    let server = Server::start(options).await;
    let mut memories = Vec::new();
    for name in names {
        let client = fed.client(name, &server).await;
        memories.push(client.run.as_ref().unwrap().uplink.memory);
    }
    server.stop().await;
    memories.dedup();
    assert_eq!(memories.len(), 1);
    memories[0]
}

#[tokio::test]
async fn a_client_whose_classes_differ_from_those_of_most_is_refused_and_its_watch_ends() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let mut hands = fed.clients(&server).await;
    let other = |status: &tonic::Status| {
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);
        assert!(status.message().contains("classes of this client's data"), "{status}");
    };
    hands[0].join_with(None, Some(7)).await.unwrap();
    let mut watch = hands[0].watch().await;
    watch.message().await.unwrap().unwrap();
    other(&hands[1].join_with(None, Some(8)).await.unwrap_err());
    // Whoever joins first does not decide for the others.
    hands[2].join_with(None, Some(8)).await.unwrap();
    hands[1].join_with(None, Some(8)).await.unwrap();
    other(&ended(&mut watch).await);
    other(&hands[0].join_with(None, Some(7)).await.unwrap_err());
    // Its data was corrected.
    hands[0].join_with(None, None).await.unwrap();
    hands[0].join_with(None, Some(8)).await.unwrap();
    server.stop().await;
}

/// A client may train before it has read all of its data.
#[tokio::test]
async fn the_update_of_a_client_that_is_refused_for_its_classes_does_not_count() {
    let fed = Fed::new();
    let run = Run::rounds(1);
    let text = fed.toml(&run).replace("min = 3", "min = 2");
    let mut options = fed.options(&run);
    options.plan = RunPlan::from_toml(&text, fed.dir.path()).unwrap();
    let mut server = Server::start(options).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = watch_all(&mut hands).await;
    TestClient::until(&mut watches[0], |state| state.selected).await;
    assert_eq!(hands[0].send(1).await, UpdateReply::Accepted);
    for hand in &mut hands[1..] {
        hand.join_with(None, Some(8)).await.unwrap();
    }
    hands[0].join_with(None, Some(7)).await.unwrap_err();
    while watches[0].message().await.is_ok_and(|message| message.is_some()) {}
    // Its data was corrected, and the server has forgotten the watch that it ended.
    hands[0].join_with(None, Some(8)).await.unwrap();
    watches[0] = hands[0].watch().await;
    watches[0].message().await.unwrap().unwrap();
    for hand in &mut hands[1..] {
        assert_eq!(hand.send(1).await, UpdateReply::Accepted);
    }
    let mut lines = Vec::new();
    let closed = loop {
        match server.events.recv().await.unwrap() {
            Event::RoundClosed(closed) => break closed,
            Event::Client { line, .. } => lines.extend(line),
            _ => {}
        }
    };
    assert_eq!(closed.updates, 2);
    assert_eq!(lines, ["anna is back"]);
    drop((hands, watches));
    server.stop().await;
}

#[tokio::test]
async fn equal_plans_have_equal_memories_whoever_is_registered() {
    let fed = Fed::new();
    let everyone = Memory::Auto.resolved(true);
    // At the second run, the registry knows the clients of the first.
    for name in ["first", "second"] {
        assert_eq!(memory(&fed, options(&fed, name, 3, ""), &NAMES).await, Memory::Cafe);
    }
    for (name, clients, expected) in [("all", 3, everyone), ("some", 4, Memory::Cafe)] {
        let clients = format!("clients = {clients}");
        assert_eq!(memory(&fed, options(&fed, name, 3, &clients), &NAMES).await, expected);
    }
}
