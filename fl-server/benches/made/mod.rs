//! The store of a long run as a server leaves it, made without one: records and ledger rows, no blobs.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::path::Path;

use fl_compress::{Digest, Stages};
use fl_proto::ClientId;
use fl_server::disk::Disk;
use fl_server::ledger::{Direction, Flow, Row, Section};
use fl_server::record::{Accepted, Record};
use fl_server::store::Store;

/// Values of each tensor.
const VALUES: u64 = 100_000;
/// Tensors of the model.
const TENSORS: u32 = 10;
/// Bytes of each client's frame, nearly.
const FRAME: u64 = 15_000;

/// Names of clients, as many as asked for.
pub fn names(clients: usize) -> Vec<ClientId> {
    let name = |i| format!("client-{i:03}").parse().unwrap();
    (0..clients).map(name).collect()
}

/// Writes a finished run below `data`. All of `clients` answer in every round and evaluate every model.
pub fn write(data: &Path, run: &str, rounds: u64, clients: &[ClientId]) {
    let disk = Disk::default();
    disk.create_dir(data).unwrap();
    let store = Store::open(data, disk).unwrap();
    let run = store.run(&run.parse().unwrap()).unwrap();
    let layout: Vec<_> = (0..TENSORS)
        .map(|i| (format!("layer{i}.weight"), [VALUES / 100, 100]))
        .collect();
    let facts = serde_json::json!({
        "task": "made", "rounds": rounds, "layout": layout,
        "initial": Digest::of(b"initial").to_string(), "instance": Digest::of(b"instance").to_string(),
    });
    run.set_meta("facts", facts.to_string().as_bytes()).unwrap();
    let started = Record::Started {
        plan: Digest::of(b"plan"),
        model: Digest::of(b"model 0"),
        at: 1_000,
    };
    run.append(&[started], &[]).unwrap();
    for round in 1..=rounds {
        let [first, last] = records(round, clients);
        run.append(&first, &[]).unwrap();
        let rows: Vec<_> = rows(round, clients).iter().map(Row::to_bytes).collect();
        run.append(&last, &rows).unwrap();
    }
    let at = 10_000 * (rounds + 1);
    run.append(&[Record::RunDone { at }], &[]).unwrap();
}

/// The records of a round: those until the last update, and those of its end.
pub fn records(round: u64, clients: &[ClientId]) -> [Vec<Record>; 2] {
    let at = 10_000 * round;
    let mut first = vec![Record::RoundOpened {
        round,
        attempt: 1,
        cohort: clients.iter().cloned().collect(),
        present: clients.len() as u32,
        at,
        deadline: at + 60_000,
    }];
    for (n, client) in (0..).zip(clients) {
        let (at, own) = (at + 1_000 + 50 * n, noise(round, n));
        first.push(Record::UpdateAccepted {
            round,
            client: client.clone(),
            update: Accepted {
                digest: Digest::of(&own.to_le_bytes()),
                len: FRAME + own,
                examples: 600,
                loss: 1.0 / round as f64 + own as f64 * 1e-5,
                train_ms: 700 + own,
                encode_ms: 20 + own / 50,
                stages: stages(FRAME + own),
                at,
            },
        });
        first.push(Record::EvaluationAccepted {
            version: round - 1,
            client: client.clone(),
            examples: 100,
            loss: 1.0 / round as f64,
            correct: 60 + own % 40,
            at,
        });
    }
    let last = [
        Record::RoundClosing {
            round,
            at: at + 6_500,
            limited: true,
        },
        Record::RoundClosed {
            round,
            frame: Digest::of(&round.to_le_bytes()),
            frame_len: FRAME,
            stages: stages(FRAME),
            model: Digest::of(format!("model {round}").as_bytes()),
            at: at + 7_000,
        },
    ];
    [first, last.into()]
}

/// The ledger's rows of a round.
pub fn rows(round: u64, clients: &[ClientId]) -> Vec<Row> {
    let sections = |direction, frames| Row::Sections {
        round,
        direction,
        sections: (0..TENSORS).map(|first| section(first, frames)).collect(),
    };
    let mut rows = vec![
        sections(Direction::Up, clients.len() as u64),
        sections(Direction::Down, 1),
    ];
    let mut meter = (0, 0);
    for (n, client) in (0..).zip(clients) {
        let flow = flow(noise(round, n));
        meter = (meter.0 + flow.socket_up, meter.1 + flow.socket_down);
        rows.push(Row::Client {
            round,
            client: Some(client.clone()),
            flow,
        });
    }
    let (read, written) = meter;
    rows.push(Row::Meter { round, read, written });
    rows.push(Row::Link {
        round,
        link: Digest::of(format!("link {round}").as_bytes()),
    });
    rows
}

/// Below 1,000; another for every round and client.
fn noise(round: u64, client: u64) -> u64 {
    let mixed = (round * 1_000 + client + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32 & 0x3ff
}

fn stages(framed: u64) -> Stages {
    Stages {
        fp32: 4 * VALUES * u64::from(TENSORS),
        reduced: 80_000,
        quantized: 22_500,
        coded: framed - 100,
        framed,
        bound: framed as f64 - 150.5,
    }
}

fn section(first: u32, frames: u64) -> Section {
    Section {
        first,
        tensors: 1,
        parameters: VALUES,
        frames,
        recipe: 4 * frames,
        indices: 800 * frames,
        scales: 4 * frames,
        values: 500 * frames,
        nonzeros: 1_000 * frames,
        ..Section::default()
    }
}

fn flow(own: u64) -> Flow {
    let mut flow = Flow {
        update: FRAME + own,
        evaluation: 40,
        control_up: 120,
        heartbeat_up: 39 * (own % 3),
        socket_up: FRAME + own + 900,
        steps: FRAME,
        control_down: 200,
        heartbeat_down: 39 * (own % 3),
        socket_down: FRAME + 1_100,
        retries: u64::from(own == 7),
        upload_ms: 40 + own / 10,
        download_ms: 30 + own / 20,
        ..Flow::default()
    };
    flow.settle_transport();
    flow
}
