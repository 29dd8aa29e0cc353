//! Aligned budgets over real connections of different rates. What is compared are budgets, measurements and bytes, never times.

use std::collections::BTreeMap;
use std::sync::Arc;

use fl_compress::{Ack, Digest, EncodeOptions, FrameHeader, FrameKind, Layout};
use fl_proto::{ClientId, Pace, Paces, Phase, RoundState, UpdateReply};
use fl_server::RunPlan;
use fl_server::disk::Disk;
use fl_server::state_machine::{Record, Transfer};
use fl_server::store::Store;

use crate::support::*;

const ROUNDS: u64 = 5;
/// Bytes a second of the three clients' uploads.
const RATES: [u64; 3] = [16_000, 64_000, 160_000];

/// Takes part within the budgets that it is given. Returns these, and the bytes of its frames, by round.
async fn take_part(client: &mut TestClient) -> BTreeMap<u64, (Option<u64>, u64)> {
    let (mut watch, mut rounds) = (client.watch().await, BTreeMap::new());
    while let Some(state) = watch.message().await.unwrap() {
        let state = RoundState::try_from(state).unwrap();
        if state.phase == Phase::Done {
            break;
        }
        let is_due = state.phase == Phase::Training && state.selected && !rounds.contains_key(&state.round);
        if !is_due {
            continue;
        }
        let mut delta = client.model_delta(state.round);
        let header = FrameHeader {
            kind: FrameKind::Update,
            round: state.round,
            seed: state.round,
        };
        let options = EncodeOptions {
            budget: state.budget,
            ..EncodeOptions::default()
        };
        let encoder = client.encoder.as_mut().unwrap();
        let pending = encoder.encode_with(options, &mut delta, header).unwrap();
        encoder.settle(&pending, Ack::Accepted).unwrap();
        let header = client.header(state.round, &pending.frame);
        assert_eq!(header.id.digest, Digest::of(&pending.frame));
        let reply = client.submit(&header, &pending.frame).await.unwrap();
        assert_eq!(reply, UpdateReply::Accepted);
        rounds.insert(state.round, (state.budget, pending.frame.len() as u64));
    }
    rounds
}

/// The budgets that were handed out, and the measurements, by round.
type Stored = (
    BTreeMap<u64, BTreeMap<ClientId, u64>>,
    BTreeMap<u64, BTreeMap<ClientId, Transfer>>,
);

fn stored(fed: &Fed) -> Stored {
    let store = Store::open(&fed.data(), Disk::default()).unwrap();
    let (mut set, mut measured) = Stored::default();
    for record in store.run(&"test".parse().unwrap()).unwrap().records() {
        match record.unwrap() {
            Record::BudgetsSet { round, budgets, .. } => drop(set.insert(round, budgets)),
            Record::UploadMeasured {
                round,
                client,
                transfer,
                ..
            } => {
                let of_round: &mut BTreeMap<_, _> = measured.entry(round).or_default();
                of_round.insert(client, transfer);
            }
            _ => {}
        }
    }
    (set, measured)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_follow_the_measured_rates_of_the_links_and_add_up_to_equal_ones() {
    // A budget is 45 KB: an upload that fits one record of TLS would not be measured.
    let fed = Fed::with_layout(Layout::new([("a.weight", vec![300, 150])]).unwrap());
    let run = Run::rounds(ROUNDS)
        .compression("[compression.uplink]\nbudget = \"8 bits\"\n[compression.downlink]\nbudget = \"1 bit\"\n");
    let text = fed.toml(&run).replace("[cohort]\n", "[cohort]\nalign = true\n");
    let mut options = fed.options(&run);
    options.plan = RunPlan::from_toml(&text, fed.dir.path()).unwrap();
    let handout = options.plan.clone().with_layout(&fed.layout).handout.unwrap();
    let server = Server::start(options).await;
    let mut clients = Vec::new();
    for (name, rate) in NAMES.iter().zip(RATES) {
        let paces = Paces {
            up: Some(Arc::new(Pace::new(rate))),
            down: None,
        };
        let own = fed.issue(name);
        let client = TestClient::dial_paced(&server.address, &fed.root.certificate, &own, paces);
        clients.push(client.await.unwrap().joined(name).await);
    }
    let parts = join_all(clients.iter_mut().map(take_part).collect()).await;
    drop(clients);
    assert_eq!(server.end().await.version, ROUNDS);
    assert!(fed.ledger().is_balanced());

    let (set, measured) = stored(&fed);
    let ids: [ClientId; 3] = NAMES.map(|name| name.parse().unwrap());
    let total = NAMES.len() as u64 * handout.reference;
    for round in 1..=ROUNDS {
        let told = parts.iter().map(|rounds| rounds[&round].0);
        let expected = ids.iter().map(|id| set.get(&round)?.get(id).copied());
        assert!(told.eq(expected), "round {round}: clients are told what is recorded");
        for rounds in &parts {
            let (budget, sent) = rounds[&round];
            let most = budget.unwrap_or(handout.reference);
            assert!(sent <= most, "round {round}: {sent} bytes, of {most}");
            assert!(
                sent * 10 >= most * 9,
                "round {round}: a budget is used: {sent} of {most}"
            );
        }
    }
    assert!(!set.contains_key(&1), "nothing is measured before the first update");
    for (round, budgets) in &set {
        let sum: u64 = budgets.values().sum();
        assert!(sum <= total, "round {round}: {budgets:?} of {total}");
        assert!(sum * 100 >= total * 90, "round {round}: {budgets:?} of {total}");
        let within = |budget: &u64| (handout.least..=handout.most).contains(budget);
        assert!(budgets.values().all(within), "round {round}: {budgets:?}");
    }
    // Before any budget differs, a client that is measured to be faster and no later gets no smaller one.
    let (first, of_first) = (&set[&2], &measured[&1]);
    let rate = |transfer: &Transfer| transfer.bytes * 1_000_000 / transfer.micros.max(1);
    for (one, fast) in of_first {
        for (other, slow) in of_first {
            if rate(fast) > rate(slow) && fast.wait <= slow.wait && fast.bytes <= slow.bytes {
                assert!(first[one] >= first[other], "{first:?} {of_first:?}");
            }
        }
    }
    let last = &set[&ROUNDS];
    let [slow, fast] = [&ids[0], &ids[2]].map(|id| last[id]);
    assert!(2 * slow < fast, "links of 1 to 16: {last:?}");
}
