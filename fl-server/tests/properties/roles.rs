//! A model with buffers and counters: what a round makes of them, under limits, optimizers and restarts.

use std::sync::Arc;

use fl_compress::{BufferPrecision, Dtype, EncodeOptions, Frame, Layout, Role, Spec, TensorSpec};
use fl_server::model::{Claim, GlobalModel};
use fl_server::plan::RunPlan;
use fl_server::state_machine::Contribution;

use crate::client;
use crate::model::{Frames, compressed, plan, values};

fn layout() -> Arc<Layout> {
    let spec = |name: &str, shape: &[usize], dtype, role| TensorSpec::new(name, shape, dtype, role);
    let tensors = [
        spec("a.weight", &[30, 7], Dtype::F16, Role::Trained),
        spec("b.bias", &[9], Dtype::F32, Role::Trained),
        spec("bn.mean", &[40], Dtype::F32, Role::Buffer),
        spec("bn.steps", &[], Dtype::I64, Role::Counter),
        spec("seen", &[3], Dtype::I32, Role::Counter),
    ];
    Arc::new(Layout::of(tensors).unwrap())
}

fn model(layout: &Layout) -> Vec<f32> {
    let mut model = values(1, layout.len());
    model[layout.counters()].copy_from_slice(&[10.0, 20.0, 30.0, 16_777_200.0]);
    model
}

/// An update of client `i` in `round`: noise, and these changes of the counters.
fn delta(layout: &Layout, i: usize, round: u64, counters: [f32; 4]) -> Vec<f32> {
    let mut delta = values(round * 1000 + i as u64, layout.len());
    delta[layout.counters()].copy_from_slice(&counters);
    delta
}

fn update(frames: &mut Frames, layout: &Arc<Layout>, i: usize, round: u64, delta: &[f32]) -> Contribution {
    Contribution {
        examples: 20,
        ..frames.update_against(None, layout, i, round, delta)
    }
}

const COUNTERS: [[f32; 4]; 3] = [[5.0, 1.0, 0.0, 9.0], [3.0, 4.0, 0.0, 900.0], [4.0, 0.0, -2.0, 1.0]];

fn round(frames: &mut Frames, layout: &Arc<Layout>, round: u64) -> Vec<Contribution> {
    let of = |(i, counters): (usize, &[f32; 4])| update(frames, layout, i, round, &delta(layout, i, round, *counters));
    COUNTERS.iter().enumerate().map(of).collect()
}

/// A plan with an optimizer, and an aggregator with its keys.
fn with_methods(optimizer: &str, aggregator: &str) -> RunPlan {
    let text = format!(
        "name = \"test\"\ntask = \"t\"\nrounds = 3\nseed = 7\nmodel = \"m\"\n[cohort]\nmin = 2\ntarget = 3\n\
         [compression.uplink]\nmemory = \"none\"\ndefault = {{}}\n[compression.downlink]\nmemory = \"none\"\ndefault = {{}}\n\
         [optimizer]\nname = \"{optimizer}\"\n[aggregator]\n{aggregator}\n"
    );
    RunPlan::from_toml(&text, std::path::Path::new("")).unwrap()
}

#[test]
fn buffers_take_the_mean_and_counters_the_largest_whatever_the_optimizer() {
    let layout = layout();
    let start = model(&layout);
    let mut step = vec![0.0f32; layout.len()];
    for (i, counters) in COUNTERS.iter().enumerate() {
        let weight = (20.0 / 60.0f64) as f32;
        let delta = delta(&layout, i, 1, *counters);
        step.iter_mut()
            .zip(&delta)
            .for_each(|(sum, value)| *sum += weight * value);
    }
    for optimizer in ["fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad"] {
        let mut frames = Frames::default();
        let plan = with_methods(optimizer, "name = 'mean'");
        let mut global = GlobalModel::initial(Arc::clone(&layout), start.clone(), &plan).unwrap();
        let updates = round(&mut frames, &layout, 1);
        global.close(1, &updates, frames.read()).unwrap();
        for at in layout.buffers() {
            assert_eq!(
                global.model()[at].to_bits(),
                (start[at] + step[at]).to_bits(),
                "{optimizer}"
            );
        }
        // The last would leave the integers that f32 holds.
        assert_eq!(
            global.model()[layout.counters()],
            [15.0, 24.0, 30.0, 16_777_216.0],
            "{optimizer}"
        );
        let moved = layout.trained().filter(|&at| global.model()[at] != start[at]).count();
        assert!(moved > 200, "{optimizer}");
        let again = GlobalModel::load(Arc::clone(&layout), &plan, &global.save()).unwrap();
        assert_eq!(again.save(), global.save());
    }
}

#[test]
fn variances_that_are_not_negative_at_any_client_never_become_so() {
    let variance = TensorSpec::new("bn.running_var", &[400], Dtype::F32, Role::Buffer);
    let weight = TensorSpec::new("w", &[3], Dtype::F32, Role::Trained);
    let layout = Arc::new(Layout::of([weight, variance]).unwrap());
    let buffers = layout.buffers();
    for precision in [BufferPrecision::Exact, BufferPrecision::Rounded] {
        let mut spec = Spec::exact();
        spec.buffers = precision;
        let plan = plan(spec.clone());
        let mut start = vec![0.0; layout.len()];
        // From 1e-6 to about 3000.
        let before: Vec<f32> = (0..400u16).map(|i| 1e-6 * 1.0563f32.powi(i32::from(i))).collect();
        start[buffers.clone()].copy_from_slice(&before);
        let mut global = GlobalModel::initial(Arc::clone(&layout), start, &plan).unwrap();
        let mut frames = Frames::default();
        for round in 1..=4 {
            let updates: Vec<_> = (0..7)
                .map(|i| {
                    let mut delta = values(round * 100 + i, layout.len());
                    for (delta, now) in delta[buffers.clone()].iter_mut().zip(&global.model()[buffers.clone()]) {
                        // The variance of each client falls to nearly 0.
                        *delta = 1e-9 * (i + 1) as f32 - now;
                    }
                    let options = EncodeOptions {
                        buffers: Some(&global.model()[buffers.clone()]),
                        ..EncodeOptions::default()
                    };
                    Contribution {
                        examples: 20 + 7 * i,
                        ..frames.update_given(&spec, options, &layout, i as usize, round, &delta)
                    }
                })
                .collect();
            global.close(round, &updates, frames.read()).unwrap();
            let least = global.model()[buffers.clone()]
                .iter()
                .copied()
                .fold(f32::INFINITY, f32::min);
            assert!(least >= 0.0, "{least} in round {round}, {precision:?}");
        }
    }
}

#[test]
fn trimmed_mean_trims_buffers_and_leaves_counters_to_the_largest() {
    let (layout, mut frames) = (layout(), Frames::default());
    let plan = with_methods("fedavg", "name = 'trimmed-mean'\ntrim = 0.34");
    let mut global = GlobalModel::initial(Arc::clone(&layout), model(&layout), &plan).unwrap();
    let updates = round(&mut frames, &layout, 1);
    global.close(1, &updates, frames.read()).unwrap();
    let deltas: Vec<_> = (0..3).map(|i| delta(&layout, i, 1, COUNTERS[i])).collect();
    for at in layout.buffers() {
        let mut votes = [deltas[0][at], deltas[1][at], deltas[2][at]];
        votes.sort_by(f32::total_cmp);
        assert_eq!(global.model()[at], model(&layout)[at] + votes[1]);
    }
    assert_eq!(global.model()[layout.counters()], [15.0, 24.0, 30.0, 16_777_216.0]);
}

#[test]
fn buffers_beyond_the_others_are_cut_by_themselves() {
    let layout = layout();
    let plan = plan(Spec::exact());
    let start = || GlobalModel::initial(Arc::clone(&layout), model(&layout), &plan).unwrap();
    let mut frames = Frames::default();
    let mut calm = start();
    let updates = round(&mut frames, &layout, 1);
    let stepped = calm.close(1, &updates, frames.read()).unwrap();
    assert_eq!(stepped.limited, []);

    for (factor, left_out) in [(8.0f32, false), (1e30, true)] {
        let mut updates = updates.clone();
        let mut far = delta(&layout, 2, 1, COUNTERS[2]);
        far[layout.buffers()].iter_mut().for_each(|value| *value *= factor);
        updates[2] = update(&mut frames, &layout, 2, 1, &far);
        let mut attacked = start();
        let stepped = attacked.close(1, &updates, frames.read()).unwrap();
        // The trained values count as ever.
        assert_eq!(attacked.model()[layout.trained()], calm.model()[layout.trained()]);
        assert_eq!(attacked.model()[layout.counters()], calm.model()[layout.counters()]);
        let [limited] = &stepped.limited[..] else {
            panic!("{:?}", stepped.limited)
        };
        assert_eq!(limited.of, Claim::Buffers, "{limited:?}");
        assert_eq!(limited.client, client(2), "{limited:?}");
        assert_eq!(limited.scale == 0.0, left_out, "{limited:?}");
        assert!(
            limited.to_string().contains("the buffers of the update of client-02"),
            "{limited}"
        );
        let deltas: Vec<_> = (0..3).map(|i| delta(&layout, i, 1, COUNTERS[i])).collect();
        for at in layout.buffers() {
            let third = (20.0 / 60.0f64) as f32;
            let scaled = third * limited.scale as f32 * far[at];
            let expected = model(&layout)[at] + third * deltas[0][at] + third * deltas[1][at] + scaled;
            let found = attacked.model()[at];
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
    }
}

#[test]
fn an_update_that_does_not_count_takes_buffers_and_counters_with_it() {
    let layout = layout();
    let plan = plan(Spec::exact());
    let start = || GlobalModel::initial(Arc::clone(&layout), model(&layout), &plan).unwrap();
    let mut frames = Frames::default();
    let updates = round(&mut frames, &layout, 1);
    let mut calm = start();
    calm.close(1, &updates, frames.read()).unwrap();
    let mut far = delta(&layout, 3, 1, [9e6, 9e6, 9e6, 9e6]);
    far[layout.trained()].iter_mut().for_each(|value| *value *= 1e9);
    let attack = update(&mut frames, &layout, 3, 1, &far);
    let all: Vec<_> = updates.into_iter().chain([attack]).collect();
    let mut attacked = start();
    let stepped = attacked.close(1, &all, frames.read()).unwrap();
    assert_eq!(attacked.digest(), calm.digest());
    assert_eq!(stepped.limited.len(), 1);
}

#[test]
fn replicas_and_restarts_have_the_same_bits_under_a_lossy_downlink() {
    let (layout, plan) = (layout(), plan(compressed()));
    let mut frames = Frames::default();
    let mut mine = model(&layout);
    let mut global = GlobalModel::initial(Arc::clone(&layout), mine.clone(), &plan).unwrap();
    for at in 1..=4 {
        let updates = round(&mut frames, &layout, at);
        let saved = global.save();
        let stepped = global.close(at, &updates, frames.read()).unwrap();
        let mut again = GlobalModel::load(Arc::clone(&layout), &plan, &saved).unwrap();
        let repeated = again.close(at, &updates, frames.read()).unwrap();
        assert_eq!(repeated, stepped);
        assert_eq!(again.save(), global.save());
        Frame::parse(&stepped.frame, &layout)
            .unwrap()
            .accumulate(1.0, &mut mine)
            .unwrap();
        assert_eq!(fl_compress::Digest::of_f32(&mine), stepped.step.model);
        assert!(mine[layout.counters()].iter().all(|value| value.fract() == 0.0));
    }
    assert_eq!(mine[layout.counters()], [30.0, 36.0, 30.0, 16_777_216.0]);
}
