//! A run as a server leaves it, made without one: records, facts and blobs.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use fl_compress::{Digest, Encoder, Frame, FrameHeader, FrameKind, Layout, Memory, Spec, Verdict, snapshot};
use fl_server::blobs::Blobs;
use fl_server::disk::Disk;
use fl_server::record::{Accepted, Record};
use fl_server::store::Store;

pub struct StoredRun<'a> {
    pub name: &'a str,
    pub layout: Arc<Layout>,
    pub clients: usize,
    pub rounds: u64,
    /// How updates were encoded. Steps are the first client's updates, exact.
    pub uplink: &'a Spec,
    /// The update of a client in a round.
    pub delta: &'a dyn Fn(usize, u64) -> Vec<f32>,
}

impl StoredRun<'_> {
    /// Writes it below `data`, closed and done.
    pub fn write(&self, data: &Path) {
        let disk = Disk::default();
        disk.create_dir(data).unwrap();
        let (store, blobs) = (
            Store::open(data, disk.clone()).unwrap(),
            Blobs::open(data, &self.name.parse().unwrap(), disk).unwrap(),
        );
        let run = store.run(&self.name.parse().unwrap()).unwrap();
        let model = vec![0.0; self.layout.len()];
        let initial = blobs.put(&snapshot(&self.layout, &model, 0).unwrap()).unwrap();
        let tensors: Vec<_> = self.layout.tensors().iter().map(|t| (&t.name, &t.shape)).collect();
        let facts = serde_json::json!({
            "task": "toy", "rounds": self.rounds, "layout": tensors,
            "initial": initial.to_string(), "instance": Digest::of(b"instance").to_string(),
        });
        run.set_meta("facts", facts.to_string().as_bytes()).unwrap();
        let mut records = vec![Record::Started {
            plan: Digest::of(b"plan"),
            model: Digest::of_f32(&model),
            at: 1_000,
        }];
        let names: Vec<fl_proto::ClientId> = (0..self.clients)
            .map(|i| format!("client-{i}").parse().unwrap())
            .collect();
        let encoder = |spec| Encoder::new(Arc::clone(&self.layout), spec).unwrap();
        let mut encoders: Vec<Encoder> = names.iter().map(|_| encoder(self.uplink)).collect();
        let mut steps = encoder(&Spec::exact());
        let mut step: Option<Vec<u8>> = None;
        let put = |encoder: &mut Encoder, kind, round, predictor: Option<&Frame<'_>>, mut delta: Vec<f32>| {
            let header = FrameHeader {
                kind,
                round,
                seed: round,
            };
            let pending = encoder.encode_against(predictor, &mut delta, header).unwrap();
            encoder.settle(&pending, Verdict::Accepted).unwrap();
            blobs.put(&pending.frame).unwrap();
            pending
        };
        for round in 1..=self.rounds {
            let at = 1_000 * round;
            records.push(Record::RoundOpened {
                round,
                attempt: 1,
                cohort: BTreeSet::from_iter(names.iter().cloned()),
                present: self.clients as u32,
                at,
                deadline: at + 60_000,
            });
            for (i, (client, encoder)) in names.iter().zip(&mut encoders).enumerate() {
                let parsed = step.as_ref().map(|step| Frame::parse(step, &self.layout).unwrap());
                let predictor = parsed.as_ref().filter(|_| self.uplink.memory == Memory::Cafe);
                let pending = put(encoder, FrameKind::Update, round, predictor, (self.delta)(i, round));
                let update = Accepted {
                    digest: pending.digest,
                    len: pending.frame.len() as u64,
                    examples: 10,
                    loss: 0.5,
                    train_ms: 3,
                    encode_ms: 1,
                    stages: pending.stages,
                    at: at + 1,
                };
                let client = client.clone();
                records.push(Record::UpdateAccepted { round, client, update });
            }
            let pending = put(&mut steps, FrameKind::Step, round, None, (self.delta)(0, round));
            records.push(Record::RoundClosed {
                round,
                frame: pending.digest,
                frame_len: pending.frame.len() as u64,
                stages: pending.stages,
                model: Digest::of(format!("model {round}").as_bytes()),
                at: at + 2,
            });
            step = Some(pending.frame);
        }
        records.push(Record::RunDone {
            at: 1_000 * self.rounds + 3,
        });
        run.append(&records, &[]).unwrap();
    }
}
