//! A federation with half of the clients per round, whose updates are encoded against the last model update.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fl_compress::wire::Reader;
use fl_compress::{Digest, Frame, FrameKind};
use fl_learn::data::{Builtin, DataSource};
use fl_server::blobs::Blobs;
use fl_server::disk::Disk;
use fl_server::record::Record;
use fl_server::store::Store;
use fl_sim::federation::{self, Setup};
use fl_sim::workload::{TASK, Workload};

const CLIENTS: u32 = 4;
const ROUNDS: u64 = 8;

/// `auto`, which resolves to CAFe: two of four clients are in a cohort. Top-k 10 % at 4 bits, both ways.
const COMPRESSION: &str = r#"
[compression.uplink]
memory  = "auto"
default = { reduce = { top_k = 0.1 }, quantize = { uniform = 4 }, code = "rans" }
[compression.downlink]
memory  = "auto"
default = { reduce = { top_k = 0.1 }, quantize = { uniform = 4 }, code = "rans" }
"#;

/// Version and digest of the model that a client kept at its end; `None` if it had none yet.
fn kept(state: &Path) -> Option<(u64, Digest)> {
    let bytes = std::fs::read(state.join("runs/predicted/model")).ok()?;
    // After magic and version of the format.
    let mut reader = Reader::new(&bytes[6..]);
    Some(reader.value("head").unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_partial_participation_every_client_holds_the_server_s_model_and_predicts_from_the_same_step() {
    let dir = tempfile::tempdir().unwrap();
    let builtin = Builtin {
        seed: 3,
        client: 0,
        train: 1000,
        test: 20,
    };
    let workload = Workload {
        learner: "mlp".parse().unwrap(),
        clients: CLIENTS,
        data: DataSource::new("builtin", &builtin).unwrap(),
    };
    let (layout, weights) = workload.initial(7).unwrap();
    let run = format!(
        "name = \"predicted\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = 7\n\
         [cohort]\nmin = 2\ntarget = 2\nclients = {CLIENTS}\n{COMPRESSION}"
    );
    let setup = Setup {
        gate: federation::gate(1),
        ..Setup::new(dir.path(), run, (layout.clone(), weights), workload.members().unwrap())
    };
    let score = federation::run(setup, |_| {}).await.unwrap();

    let data = dir.path().join("server");
    let store = Store::open(&data, Disk::default()).unwrap();
    let (mut steps, mut models, mut updates) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let mut took_part = BTreeSet::new();
    for record in store.run(&"predicted".parse().unwrap()).unwrap().records() {
        match record.unwrap() {
            Record::Started { model, .. } => drop(models.insert(0, model)),
            Record::UpdateAccepted { round, client, update } => {
                took_part.insert(client);
                updates.push((round, update.digest));
            }
            Record::RoundClosed { round, step, .. } => {
                steps.insert(round, step.frame.short());
                models.insert(round, step.model);
            }
            _ => {}
        }
    }
    assert_eq!(models[&ROUNDS].to_string(), score.model);
    assert_eq!(updates.len() as u64, 2 * ROUNDS);
    let blobs = Blobs::open(&data, &"predicted".parse().unwrap(), Disk::default()).unwrap();
    let mut predicted = 0;
    for (round, digest) in updates {
        let bytes = blobs.get(&digest).unwrap();
        let frame = Frame::parse(&bytes, &layout).unwrap();
        assert_eq!(frame.header().kind, FrameKind::Update);
        // A client that was not in an earlier cohort may have fetched a snapshot.
        let named = frame.predictor();
        assert!(
            named.is_none() || named == steps.get(&(round - 1)).copied(),
            "round {round}"
        );
        predicted += u64::from(named.is_some());
    }
    assert!(predicted >= ROUNDS - 1, "{predicted} updates were predicted");
    assert!(
        took_part.len() > 2,
        "only {took_part:?} took part: none of them missed a round"
    );
    let mut followed = 0;
    for client in 0..CLIENTS {
        let state = dir.path().join(format!("clients/client-{client:02}"));
        let Some((version, digest)) = kept(&state) else {
            continue;
        };
        assert_eq!(
            models.get(&version),
            Some(&digest),
            "client {client} at version {version}"
        );
        followed += 1;
    }
    assert!(followed >= 2, "{followed} clients kept a model");
}
