//! Layouts with buffers and counters: both arrive whole and leave no trace in any memory; trained tensors are sent as if
//! they were alone.

use std::sync::Arc;

use fl_compress::*;
use proptest::prelude::*;
use proptest::sample::select;

use crate::merged::{layout as trained_tensors, specs};
use crate::*;

fn tensor(name: &str, shape: &[usize], dtype: Dtype, role: Role) -> TensorSpec {
    TensorSpec::new(name, shape, dtype, role)
}

/// The tensors of [`trained_tensors`] with statistics between them.
pub(crate) fn layout() -> Arc<Layout> {
    let trained = trained_tensors();
    let trained = trained.tensors().iter();
    let trained = trained.map(|own| tensor(&own.name, &own.shape, Dtype::F32, Role::Trained));
    let aside = [
        tensor("a.running_mean", &[20], Dtype::F32, Role::Buffer),
        tensor("a.running_var", &[20], Dtype::F32, Role::Buffer),
        tensor("a.num_batches_tracked", &[], Dtype::I64, Role::Counter),
        tensor("d.running_mean", &[1200], Dtype::F16, Role::Buffer),
        tensor("z.seen", &[3], Dtype::I32, Role::Counter),
    ];
    Arc::new(Layout::of(trained.chain(aside)).unwrap())
}

fn delta(layout: &Layout, seed: u64) -> Vec<f32> {
    let mut delta = noise(layout.len(), seed);
    delta[layout.counters()]
        .iter_mut()
        .for_each(|value| *value = (*value * 1000.0).round());
    delta
}

fn expect_no_trace(encoder: &Encoder, pending: Option<&Pending>) {
    let layout = encoder.layout();
    for vector in saved_vectors(encoder, pending) {
        let aside = &vector[layout.trained().end..];
        assert!(aside.iter().all(|&value| value == 0.0), "{aside:?}");
    }
    if let Some(residual) = encoder.residual() {
        assert!(residual[layout.trained().end..].iter().all(|&value| value == 0.0));
    }
}

fn reloaded(encoder: &Encoder, spec: &Spec, pending: Option<&Pending>) -> (Encoder, Option<Pending>) {
    let mut bytes = Vec::new();
    encoder.save(pending, &mut bytes);
    Encoder::load(layout(), spec, &bytes).unwrap()
}

fn verdicts() -> impl Strategy<Value = Vec<(Ack, bool)>> {
    let verdict = (select(vec![Ack::Accepted, Ack::Rejected, Ack::Dropped]), any::<bool>());
    prop::collection::vec(verdict, 1..7)
}

/// A model update that serves as a predictor.
fn predictor(layout: &Arc<Layout>, seed: u64) -> Vec<u8> {
    let mut encoder = Encoder::new(Arc::clone(layout), &from_toml("default = { quantize = 'bf16' }")).unwrap();
    encoder
        .encode(&mut delta(&self::layout(), seed)[..layout.len()], UPDATE)
        .unwrap()
        .frame
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn buffers_and_counters_arrive_whole_and_change_nothing_of_the_others(
        spec in select(specs()),
        memory in select(every_memory()),
        buffers in select(vec![BufferPrecision::Exact, BufferPrecision::Rounded]),
        verdicts in verdicts(),
        predicts in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let (layout, trained) = (layout(), trained_tensors());
        let budget = spec.budget.filter(|budget| !matches!(budget, Budget::Bytes(_)));
        let spec = Spec { memory, buffers, budget, ..spec };
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
        let mut alone = Encoder::new(Arc::clone(&trained), &spec).unwrap();
        let end = layout.trained().end;
        prop_assert_eq!(end, trained.len());
        let (step, step_alone) = (predictor(&layout, seed), predictor(&trained, seed));
        let step = Frame::parse(&step, &layout).unwrap();
        let step_alone = Frame::parse(&step_alone, &trained).unwrap();
        let predicts = predicts && memory.predicts();
        for (round, (verdict, restarts)) in (0..).zip(verdicts) {
            let header = FrameHeader { round, seed, ..UPDATE };
            let whole = delta(&layout, seed ^ round);
            let values = noise(layout.buffers().len(), !seed ^ round);
            let given = EncodeOptions { predictor: predicts.then_some(&step), buffers: Some(&values), ..EncodeOptions::default() };
            let mut pending = encoder.encode_with(given, &mut whole.clone(), header).unwrap();
            let before = predicts.then_some(&step_alone);
            let expected = alone.encode_against(before, &mut whole[..end].to_vec(), header).unwrap();
            let decoded = decode(&layout, &pending.frame);
            prop_assert_eq!(bits(&decoded[..end]), bits(&decode(&trained, &expected.frame)));
            prop_assert_eq!(&decoded[layout.counters()], &whole[layout.counters()]);
            let arrived = &decoded[layout.buffers()];
            match buffers {
                BufferPrecision::Exact => prop_assert_eq!(arrived, &whole[layout.buffers()]),
                BufferPrecision::Rounded => {
                    let changes = arrived.iter().zip(&whole[layout.buffers()]);
                    for (before, (got, sent)) in values.iter().zip(changes) {
                        let after = f64::from(before + sent);
                        let error = (f64::from(*got) - f64::from(*sent)).abs();
                        prop_assert!(error <= after.abs() / f64::from(1 << 14), "{} {} {}", before, got, sent);
                    }
                    prop_assert_ne!(arrived, &whole[layout.buffers()]);
                }
            }
            expect_no_trace(&encoder, Some(&pending));
            if restarts {
                let (again, pending_again) = reloaded(&encoder, &spec, Some(&pending));
                (encoder, pending) = (again, pending_again.unwrap());
            }
            encoder.settle(&pending, verdict).unwrap();
            alone.settle(&expected, verdict).unwrap();
            expect_no_trace(&encoder, None);
            prop_assert_eq!(encoder.residual().map(|values| bits(&values[..end])), alone.residual().map(bits));
            let groups = expected.fidelity.len();
            prop_assert_eq!(pending.fidelity.len(), groups + 2);
            if !restarts {
                prop_assert_eq!(&pending.fidelity[..groups], &expected.fidelity[..]);
            }
        }
    }

    /// Invariant 1 on the trained range: decoded updates plus residual equal the sum of the updates.
    #[test]
    fn nothing_of_a_trained_tensor_is_lost(spec in select(specs()), verdicts in verdicts(), seed in any::<u64>()) {
        let layout = layout();
        let budget = spec.budget.filter(|budget| !matches!(budget, Budget::Bytes(_)));
        let spec = Spec { memory: from_toml("memory = 'error-feedback'").memory, budget, ..spec };
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
        let end = layout.trained().end;
        let (mut made, mut taken) = (vec![0.0f64; end], vec![0.0f64; end]);
        for (round, (verdict, restarts)) in (0..).zip(verdicts) {
            let whole = delta(&layout, seed ^ round);
            made.iter_mut().zip(&whole).for_each(|(sum, value)| *sum += f64::from(*value));
            let header = FrameHeader { round, seed, ..UPDATE };
            let pending = encoder.encode(&mut whole.clone(), header).unwrap();
            if verdict != Ack::Rejected {
                let decoded = decode(&layout, &pending.frame);
                taken.iter_mut().zip(&decoded).for_each(|(sum, value)| *sum += f64::from(*value));
            }
            encoder.settle(&pending, verdict).unwrap();
            if restarts {
                (encoder, _) = reloaded(&encoder, &spec, None);
            }
        }
        let residual = encoder.residual().unwrap();
        for at in 0..end {
            let sum = taken[at] + f64::from(residual[at]);
            prop_assert!((sum - made[at]).abs() <= 1e-4 * (1.0 + made[at].abs()), "{} {}", sum, made[at]);
        }
    }
}

#[test]
fn a_predictor_adds_nothing_to_buffers_and_counters() {
    let layout = layout();
    let bytes = predictor(&layout, 3);
    let step = Frame::parse(&bytes, &layout).unwrap();
    let mut encoder = Encoder::new(Arc::clone(&layout), &from_toml("memory = 'cafe'\ndefault = {}")).unwrap();
    let whole = delta(&layout, 4);
    let pending = encoder.encode_against(Some(&step), &mut whole.clone(), UPDATE).unwrap();
    let mut received = decode(&layout, &pending.frame);
    step.accumulate_trained(1.0, &mut received).unwrap();
    let end = layout.trained().end;
    assert_eq!(received[end..], whole[end..]);
    for (received, sent) in received.iter().zip(&whole) {
        assert!((received - sent).abs() < 1e-5, "{received} {sent}");
    }
}

#[test]
fn a_snapshot_of_a_layout_with_roles_is_exact() {
    let layout = layout();
    let values = delta(&layout, 9);
    let bytes = snapshot(&layout, &values, 5).unwrap();
    let frame = Frame::parse(&bytes, &layout).unwrap();
    let mut out = vec![0.0; layout.len()];
    frame.decode(&mut out).unwrap();
    assert_eq!(bits(&out), bits(&values));
    let (mut each, mut names) = (Vec::new(), Vec::new());
    let take = |tensor: &Tensor, values: &[f32]| {
        names.push(tensor.name.clone());
        each.extend_from_slice(values);
        Ok::<(), Error>(())
    };
    frame.decode_each(take).unwrap();
    assert_eq!(bits(&each), bits(&values));
    assert_eq!(names.len(), layout.tensors().len());
}

#[test]
fn sections_never_mix_roles() {
    let layout = layout();
    for spec in specs() {
        let mut encoder = Encoder::new(Arc::clone(&layout), &Spec { budget: None, ..spec }).unwrap();
        let pending = encoder.encode(&mut delta(&layout, 1), UPDATE).unwrap();
        let frame = Frame::parse(&pending.frame, &layout).unwrap();
        let mut values = Vec::new();
        frame
            .decode_each(|_, part: &[f32]| {
                values.extend_from_slice(part);
                Ok::<(), Error>(())
            })
            .unwrap();
        assert_eq!(values, decode(&layout, &pending.frame));
        let mut aside = Vec::new();
        for section in frame.sections() {
            let role = section.tensors[0].role;
            assert!(section.tensors.iter().all(|tensor| tensor.role == role));
            if role != Role::Trained {
                assert!(section.recipe.is_lossless());
                aside.push((role, section.tensors.len()));
            }
        }
        assert_eq!(aside, [(Role::Buffer, 3), (Role::Counter, 2)]);
    }
}

#[test]
fn a_budget_in_bytes_includes_buffers_and_one_in_bits_does_not() {
    let layout = layout();
    let size = |budget: &str| {
        let spec = from_toml(&format!("budget = '{budget}'\nmemory = 'none'"));
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
        let pending = encoder.encode(&mut delta(&layout, 2), UPDATE).unwrap();
        let frame = Frame::parse(&pending.frame, &layout).unwrap();
        let of = |section: SectionInfo<'_>| (section.tensors[0].role == Role::Trained, section.bytes);
        let trained = frame.sections().map(of).filter(|(is_trained, _)| *is_trained);
        let trained: u64 = trained.map(|(_, bytes)| bytes.total() as u64).sum();
        (pending.frame.len() as u64, trained, pending.asked.unwrap())
    };
    let (whole, trained, asked) = size("2 bits");
    let most = layout.trained().len() as u64 / 4;
    assert!((most * 8 / 10..=most).contains(&trained), "{trained} of {most}");
    assert!(whole > trained + 3000 && whole <= asked, "{whole} of {asked}");
    let (whole, trained, asked) = size("6000 B");
    assert_eq!(asked, 6000);
    assert!(whole <= 6000 && trained > 0, "{whole}");
}
