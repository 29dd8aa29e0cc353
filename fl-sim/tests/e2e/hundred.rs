//! A hundred concurrent clients, each with its own connection and state: no client is lost, and every byte is accounted
//! for.

use std::sync::Arc;

use fl_client::{Learner, Tasks};
use fl_sim::federation::{self, Member, Setup};
use fl_sim::ready::{self, Ready};
use fl_sim::workload::TASK;

use crate::fixtures::COMPRESSED;

const CLIENTS: u64 = 100;
const VALUES: usize = 10_000;

fn member(client: u64) -> Member {
    let make = move || Ok(Box::new(Ready::new(VALUES, client)?) as Box<dyn Learner>);
    let name = format!("client-{client:03}").parse().unwrap();
    Member {
        name,
        tasks: Tasks::new().with_lazy(TASK, make),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_are_all_counted_once_in_every_round() {
    let dir = tempfile::tempdir().unwrap();
    let run = format!(
        "name = \"hundred\"\ntask = \"{TASK}\"\nrounds = 2\nseed = 1\nevaluate = false\n\
         [cohort]\nmin = {CLIENTS}\ntarget = {CLIENTS}\n{COMPRESSED}"
    );
    let first = (Arc::new(ready::layout(VALUES).unwrap()), vec![0.0; VALUES]);
    let setup = Setup::new(dir.path(), run, first, (0..CLIENTS).map(member).collect());
    let mut accepted = std::collections::BTreeMap::<_, u32>::new();
    let score = federation::run(setup, |news| {
        if let federation::News::Server(fl_server::Event::UpdateAccepted { client, .. }) = news {
            *accepted.entry(client.clone()).or_default() += 1;
        }
    });
    let score = score.await.unwrap();
    assert!(score.balanced(), "{}", score.summary(false));
    assert_eq!(
        score.rounds.iter().map(|round| round.updates).collect::<Vec<_>>(),
        [CLIENTS; 2]
    );
    assert_eq!(accepted.len() as u64, CLIENTS);
    assert!(accepted.values().all(|&updates| updates == 2), "{accepted:?}");
}
