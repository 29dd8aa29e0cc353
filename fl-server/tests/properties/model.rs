//! The global model: plain averaging without compression, and bit-identical results with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fl_compress::{Ack, Digest, EncodeOptions, Encoder, Frame, FrameHeader, FrameKind, Layout, Spec, Stages};
use fl_server::model::{GlobalModel, ModelError};
use fl_server::plan::RunPlan;
use fl_server::state_machine::{Accepted, Contribution, Record, RecordedRound, RecordedRounds};

use crate::client;
use crate::contains::assert_contains;

pub(crate) fn layout() -> Arc<Layout> {
    Arc::new(Layout::new([("bias", vec![7]), ("weight", vec![40, 7])]).unwrap())
}

/// Deterministic values in about [-1, 1).
pub(crate) fn values(seed: u64, len: usize) -> Vec<f32> {
    let draw = |i: u64| fl_compress::Digest::of(&[seed.to_le_bytes(), i.to_le_bytes()].concat()).short();
    (0..len as u64)
        .map(|i| (draw(i) >> 40) as f32 / 8_388_608.0 - 1.0)
        .collect()
}

/// The plan with limits that nothing exceeds.
pub(crate) fn without_limits(mut plan: RunPlan) -> RunPlan {
    let limits = &mut plan.limits;
    (limits.examples, limits.norm, limits.discard) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    limits.share = 1.0;
    plan
}

pub(crate) fn plan(downlink: Spec) -> RunPlan {
    RunPlan {
        downlink,
        ..crate::plan(&[])
    }
}

pub(crate) fn compressed() -> Spec {
    serde_json::from_str(
        r#"{ "memory": "error-feedback",
             "default": { "reduce": { "top_k": 0.1 }, "quantize": { "uniform": { "bits": 4, "rounding": "stochastic" } },
                          "code": "rans" } }"#,
    )
    .unwrap()
}

/// Frames by digest, in place of blobs.
#[derive(Default)]
pub(crate) struct Frames(pub(crate) BTreeMap<Digest, Vec<u8>>);

impl Frames {
    fn update(&mut self, layout: &Arc<Layout>, i: usize, round: u64, delta: &[f32]) -> Contribution {
        self.update_against(None, layout, i, round, delta)
    }

    pub(crate) fn update_against(
        &mut self,
        step: Option<&[u8]>,
        layout: &Arc<Layout>,
        i: usize,
        round: u64,
        delta: &[f32],
    ) -> Contribution {
        self.update_of(&Spec::exact(), step, layout, i, round, delta)
    }

    pub(crate) fn update_of(
        &mut self,
        spec: &Spec,
        step: Option<&[u8]>,
        layout: &Arc<Layout>,
        i: usize,
        round: u64,
        delta: &[f32],
    ) -> Contribution {
        let predictor = step.map(|step| Frame::parse(step, layout).unwrap());
        let options = EncodeOptions {
            predictor: predictor.as_ref(),
            ..EncodeOptions::default()
        };
        self.update_given(spec, options, layout, i, round, delta)
    }

    pub(crate) fn update_given(
        &mut self,
        spec: &Spec,
        options: EncodeOptions<'_>,
        layout: &Arc<Layout>,
        i: usize,
        round: u64,
        delta: &[f32],
    ) -> Contribution {
        let mut encoder = Encoder::new(Arc::clone(layout), spec).unwrap();
        let header = FrameHeader {
            kind: FrameKind::Update,
            round,
            seed: i as u64,
        };
        let pending = encoder.encode_with(options, &mut delta.to_vec(), header);
        let pending = pending.unwrap();
        encoder.settle(&pending, Ack::Accepted).unwrap();
        self.0.insert(pending.digest, pending.frame);
        Contribution {
            client: client(i),
            examples: 10 + 7 * i as u64,
            frame: pending.digest,
        }
    }

    pub(crate) fn round(&mut self, layout: &Arc<Layout>, clients: usize, round: u64) -> Vec<Contribution> {
        let delta = |i: usize| values(round * 1_000 + i as u64, layout.len());
        (0..clients).map(|i| self.update(layout, i, round, &delta(i))).collect()
    }

    pub(crate) fn read(&self) -> impl Fn(&Digest, &mut Vec<u8>) -> Result<(), String> + '_ {
        |digest, bytes| {
            bytes.clone_from(self.0.get(digest).ok_or_else(|| "missing".to_owned())?);
            Ok(())
        }
    }
}

#[test]
fn uncompressed_it_is_plain_federated_averaging_bit_for_bit() {
    let (layout, mut frames) = (layout(), Frames::default());
    let mut model = values(1, layout.len());
    let mut global = GlobalModel::initial(Arc::clone(&layout), model.clone(), &plan(Spec::exact())).unwrap();
    for round in 1..=3 {
        let updates = frames.round(&layout, 5, round);
        let stepped = global.close(round, &updates, frames.read()).unwrap();

        let total: u64 = updates.iter().map(|update| update.examples).sum();
        let mut step = vec![0.0f32; model.len()];
        for (i, update) in updates.iter().enumerate() {
            let weight = (update.examples as f64 / total as f64) as f32;
            let delta = values(round * 1_000 + i as u64, layout.len());
            step.iter_mut()
                .zip(&delta)
                .for_each(|(acc, value)| *acc += weight * value);
        }
        model.iter_mut().zip(&step).for_each(|(value, step)| *value += step);

        assert!(
            global
                .model()
                .iter()
                .zip(&model)
                .all(|(a, b)| a.to_bits() == b.to_bits()),
            "round {round}"
        );
        assert_eq!((stepped.step.model, global.version()), (Digest::of_f32(&model), round));
    }
}

#[test]
fn any_number_of_threads_closes_a_round_to_the_same_bits() {
    let cafe: Spec = serde_json::from_str(r#"{ "memory": "cafe" }"#).unwrap();
    // Frames of smaller models are decoded on one thread.
    let layout = Arc::new(Layout::new([("bias", vec![7]), ("head", vec![40, 25]), ("body", vec![130, 510])]).unwrap());
    let plan = RunPlan {
        uplink: cafe,
        ..plan(compressed())
    };
    let closed = |threads: usize| {
        let mut frames = Frames::default();
        let mut global = GlobalModel::initial(Arc::clone(&layout), values(1, layout.len()), &plan).unwrap();
        global.set_threads(threads);
        let (mut results, mut step): (Vec<_>, Option<Vec<u8>>) = (Vec::new(), None);
        for round in 1..=4 {
            let updates: Vec<_> = (0..9)
                .map(|i| {
                    // The last is above the limits, so the round is aggregated twice; every third comes without a predictor.
                    let scale = if i == 8 { 20.0 } else { 1.0 };
                    let delta = values(round * 1_000 + i as u64, layout.len());
                    let delta: Vec<f32> = delta.iter().map(|value| scale * value).collect();
                    let step = step.as_deref().filter(|_| i % 3 > 0);
                    frames.update_against(step, &layout, i, round, &delta)
                })
                .collect();
            let result = global.close(round, &updates, frames.read()).unwrap();
            let squares = values(round * 1_000 + 8, layout.len())
                .into_iter()
                .map(|value| 400.0 * value * value);
            let norm = squares.sum::<f32>().sqrt();
            let [limited] = &result.limited[..] else {
                panic!("{:?}", result.limited)
            };
            assert!(
                (limited.norm as f32 - norm).abs() < 1e-4 * norm,
                "with its predictor: {limited:?}, not {norm}"
            );
            step = Some(result.frame.clone());
            frames.0.insert(result.step.frame, result.frame.clone());
            results.push((result.step.frame, result.step.model, result.limited, result.uplink));
        }
        let broken = Contribution {
            frame: Digest::of(b"missing"),
            client: client(7),
            examples: 1,
        };
        let updates = vec![
            frames.update_against(None, &layout, 1, 5, &values(3, layout.len())),
            broken,
        ];
        let error = global.close(5, &updates, frames.read()).unwrap_err();
        (results, error.to_string(), Digest::of(&global.save()))
    };
    let alone = closed(1);
    for threads in [2, 3, 16] {
        assert_eq!(closed(threads), alone, "{threads} threads");
    }
}

/// Under CAFe, an update of zeros decodes to what the codec loses of the predictor.
#[test]
fn clients_that_return_the_model_unchanged_leave_the_others_their_change() {
    let layout = Arc::new(Layout::new([("w", vec![60, 70])]).unwrap());
    let direction = values(9, layout.len());
    for memory in ["cafe", "none"] {
        let uplink: Spec = serde_json::from_str(&format!(r#"{{ "memory": "{memory}" }}"#)).unwrap();
        let plan = RunPlan {
            uplink: uplink.clone(),
            ..plan(Spec::exact())
        };
        for (clients, silent, least) in [
            (2, 1, 0.0),
            (3, 1, 1e-9),
            (4, 2, 0.0),
            (4, 2, 1e-9),
            (5, 2, 0.0),
            (8, 4, 0.0),
            (8, 4, 1e-3),
        ] {
            let distance = |plan: &RunPlan| {
                let mut frames = Frames::default();
                let mut global = GlobalModel::initial(Arc::clone(&layout), vec![0.0; layout.len()], plan).unwrap();
                let mut step: Option<Vec<u8>> = None;
                for round in 1..=10 {
                    let update = |i: usize| {
                        let length = if i < silent { least } else { 1.0 + 0.1 * i as f32 };
                        let noise = values(100 * round + i as u64, layout.len());
                        let delta = direction
                            .iter()
                            .zip(noise)
                            .map(|(to, noise)| length * (to + 0.3 * noise));
                        let delta: Vec<f32> = delta.collect();
                        let step = step.as_deref().filter(|_| memory == "cafe");
                        Contribution {
                            examples: 100,
                            ..frames.update_of(&uplink, step, &layout, i, round, &delta)
                        }
                    };
                    let updates: Vec<_> = (0..clients).map(update).collect();
                    let result = global.close(round, &updates, frames.read()).unwrap();
                    frames.0.insert(result.step.frame, result.frame.clone());
                    step = Some(result.frame);
                }
                let pairs = global.model().iter().zip(&direction);
                pairs.map(|(moved, to)| moved * to).sum::<f32>()
            };
            let (limited, mean) = (distance(&plan), distance(&without_limits(plan.clone())));
            assert!(
                limited > 0.95 * mean,
                "{memory}, {silent} of {clients}: {limited} of {mean}"
            );
        }
    }
}

#[test]
fn a_client_that_applies_the_frames_holds_the_server_s_model() {
    for downlink in [Spec::exact(), compressed()] {
        let (layout, mut frames) = (layout(), Frames::default());
        let mut mine = values(1, layout.len());
        let mut global = GlobalModel::initial(Arc::clone(&layout), mine.clone(), &plan(downlink)).unwrap();
        for round in 1..=6 {
            let updates = frames.round(&layout, 3, round);
            let stepped = global.close(round, &updates, frames.read()).unwrap();
            let frame = Frame::parse(&stepped.frame, &layout).unwrap();
            assert_eq!(frame.header().kind, FrameKind::ModelUpdate);
            assert_eq!(frame.header().round, round);
            assert_eq!(Digest::of(&stepped.frame), stepped.step.frame);
            frame.accumulate(1.0, &mut mine).unwrap();
            assert_eq!(Digest::of_f32(&mine), stepped.step.model);
        }
        let snapshot = global.snapshot().unwrap();
        let frame = Frame::parse(&snapshot, &layout).unwrap();
        let mut fresh = vec![0.5; layout.len()];
        frame.decode(&mut fresh).unwrap();
        assert_eq!((frame.header().round, Digest::of_f32(&fresh)), (6, global.digest()));
    }
}

fn recorded(records: &[Record]) -> Vec<RecordedRound> {
    let rounds = RecordedRounds::of(records.iter().cloned().map(Ok::<_, String>));
    rounds.collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_restart_from_any_checkpoint_gives_the_same_bytes() {
    let (layout, mut frames, plan) = (layout(), Frames::default(), plan(compressed()));
    let initial = || GlobalModel::initial(Arc::clone(&layout), values(1, layout.len()), &plan).unwrap();
    let mut global = initial();
    let mut checkpoints = vec![global.save()];
    let mut records: Vec<Record> = Vec::new();
    let stages = Stages::default();
    for round in 1..=5 {
        let mut updates = frames.round(&layout, 4, round);
        if round > 2 {
            // Above the limits: the scaling depends on the norms of all updates.
            let delta: Vec<f32> = values(round, layout.len()).iter().map(|value| 9.0 * value).collect();
            updates[2] = frames.update(&layout, 2, round, &delta);
        }
        for part in updates.iter().rev() {
            let (digest, examples) = (part.frame, part.examples);
            let update = Accepted {
                digest,
                len: 1,
                examples,
                loss: 0.0,
                train_ms: 0,
                encode_ms: 0,
                stages,
                at: 0,
                metrics: Default::default(),
            };
            records.push(Record::UpdateAccepted {
                round,
                client: part.client.clone(),
                update,
            });
        }
        let stepped = global.close(round, &updates, frames.read()).unwrap();
        assert_eq!(stepped.limited.len(), usize::from(round > 2));
        records.push(Record::RoundClosing { round, at: 0 });
        records.push(Record::RoundClosed {
            round,
            step: stepped.step,
            limited: stepped.limited,
            at: 0,
        });
        checkpoints.push(global.save());
    }
    for (version, bytes) in (0..).zip(&checkpoints) {
        let mut again = GlobalModel::load(Arc::clone(&layout), &plan, bytes).unwrap();
        assert_eq!((again.version(), &again.save()), (version, bytes));
        for round in recorded(&records).iter().filter(|round| round.round > version) {
            again
                .replay(&round.work(), round.step.as_ref().unwrap(), frames.read())
                .unwrap();
        }
        assert_eq!(again.digest(), global.digest());
        assert_eq!(again.save(), global.save(), "residual and all");
    }
    let rounds = recorded(&records);
    assert_eq!(rounds.len(), 5);
    let (first, mut second) = (rounds[0].work(), rounds[1].work());
    let mut step = rounds[0].step.unwrap();
    step.model = Digest::of(b"other");
    let error = initial().replay(&first, &step, frames.read()).unwrap_err();
    assert!(
        matches!(
            error,
            ModelError::Differs {
                round: 1,
                what: "model",
                ..
            }
        ),
        "{error}"
    );
    second.updates[0].examples += 1;
    let mut global = initial();
    drop(global.replay(&first, &step, frames.read()));
    let error = global
        .replay(&second, rounds[1].step.as_ref().unwrap(), frames.read())
        .unwrap_err();
    assert!(matches!(error, ModelError::Differs { round: 2, .. }), "{error}");
}

#[test]
fn broken_updates_name_their_client_and_change_nothing() {
    let (layout, mut frames) = (layout(), Frames::default());
    let mut global = GlobalModel::initial(Arc::clone(&layout), values(1, layout.len()), &plan(compressed())).unwrap();
    let before = global.save();
    let good = frames.round(&layout, 3, 1);
    let mut missing = good.clone();
    missing[1].frame = Digest::of(b"nothing");
    let mut late = good.clone();
    late[1] = frames.update(&layout, 1, 2, &values(3, layout.len()));
    let cut = frames.0[&good[1].frame][..100].to_vec();
    let mut short = good.clone();
    short[1].frame = Digest::of(&cut);
    frames.0.insert(short[1].frame, cut);
    for updates in [missing, late, short] {
        let error = global.close(1, &updates, frames.read()).unwrap_err();
        assert!(
            matches!(&error, ModelError::Frame { round: 1, client: of, .. } if *of == client(1)),
            "{error}"
        );
        assert_eq!(global.save(), before);
    }
    assert_eq!(global.close(1, &[], frames.read()), Err(ModelError::Empty { round: 1 }));
    assert_eq!(
        global.close(2, &good, frames.read()),
        Err(ModelError::Order { round: 2, version: 0 })
    );
    global.close(1, &good, frames.read()).unwrap();
}

#[test]
fn claimed_examples_and_norms_are_cut_to_what_the_others_allow() {
    let (layout, mut frames) = (layout(), Frames::default());
    let mut global = GlobalModel::initial(Arc::clone(&layout), vec![0.0; layout.len()], &plan(Spec::exact())).unwrap();
    let value = |value: f32| vec![value; layout.len()];
    let mut updates: Vec<_> = (0..4).map(|i| frames.update(&layout, i, 1, &value(1.0))).collect();
    updates.iter_mut().for_each(|update| update.examples = 100);
    updates[3] = Contribution {
        examples: 1 << 40,
        ..frames.update(&layout, 3, 1, &value(-8.0))
    };
    let stepped = global.close(1, &updates, frames.read()).unwrap();
    // 200 of 500 examples: weights 0.6 forward and 0.4 back.
    assert!(
        global.model().iter().all(|value| (value - 0.2).abs() < 1e-6),
        "{:?}",
        &global.model()[..3]
    );
    let limited = &stepped.limited[0];
    assert_eq!(stepped.limited.len(), 1);
    assert_eq!(limited.claimed, 1 << 40);
    assert_eq!(limited.counted, 200.0);
    let text = limited.to_string();
    assert_contains(
        &text,
        "counts with 200 of the 1099511627776 examples that it claims and 0.125 of its values",
    );
    assert!(
        text.ends_with("([limits] of run.toml: `share`, `examples`, `norm`)"),
        "{text}"
    );
}

/// FedAvg with this learning rate and an exact downlink.
pub(crate) fn with_rate(learning_rate: f32) -> RunPlan {
    let plan = plan(Spec::exact());
    RunPlan {
        optimizer: plan.optimizer.with("learning_rate", learning_rate).unwrap(),
        ..plan
    }
}

#[test]
fn the_server_learning_rate_scales_the_model_update() {
    let (layout, mut frames) = (layout(), Frames::default());
    let plan = with_rate(0.5);
    let mut global = GlobalModel::initial(Arc::clone(&layout), vec![0.0; layout.len()], &plan).unwrap();
    let updates = vec![frames.update(&layout, 0, 1, &vec![3.0; layout.len()])];
    global.close(1, &updates, frames.read()).unwrap();
    assert!(global.model().iter().all(|&value| value == 1.5));
}

#[test]
fn damaged_checkpoints_and_models_are_refused() {
    let (layout, plan) = (layout(), plan(compressed()));
    let bytes = GlobalModel::initial(Arc::clone(&layout), values(1, layout.len()), &plan)
        .unwrap()
        .save();
    for cut in 0..bytes.len() {
        assert!(GlobalModel::load(Arc::clone(&layout), &plan, &bytes[..cut]).is_err());
    }
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(
            GlobalModel::load(Arc::clone(&layout), &plan, &flipped).is_err(),
            "byte {at}"
        );
    }
    let other = RunPlan {
        seed: 8,
        ..plan.clone()
    };
    assert!(
        GlobalModel::load(Arc::clone(&layout), &other, &bytes)
            .unwrap_err()
            .to_string()
            .contains("another model or run")
    );
    assert!(GlobalModel::initial(Arc::clone(&layout), vec![0.0; 3], &plan).is_err());
    assert!(GlobalModel::initial(Arc::clone(&layout), vec![f32::NAN; layout.len()], &plan).is_err());
}
