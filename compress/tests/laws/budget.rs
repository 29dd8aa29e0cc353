//! Laws of budgets, apart from those of frame sizes.

use crate::*;

/// A budget in bits per value may be exceeded by codecs without a step or density, but never fails.
#[test]
fn a_budget_in_bits_is_never_refused() {
    for method in [
        "quantize = { rotated = 1 }",
        "quantize = { rotated = 4 }, code = 'rans'",
        "quantize = 'ternary'",
        "quantize = 'natural', code = 'huffman'",
        "quantize = { sign = 'split' }",
        "quantize = { uniform = { bits = 8, block = 16 } }, code = 'context'",
        "reduce = { top_k = { density = { by = 'fisher' } } }",
        "reduce = { top_k = { density = 0.5, chunk = 64 } }",
        "reduce = { threshold = 1e-9 }",
        "reduce = { low_rank = 2 }",
        "reduce = { projection = 0.2 }",
    ] {
        // A rotation splits 16,383 = 2^14 - 1 values into 14 pieces, each with its own scale.
        let layout = layout(&[("a", &[16_383]), ("b", &[30, 40])]);
        let spec = format!("budget = '0.01 bits'\ndefault = {{ {method} }}");
        encoder(&layout, &spec)
            .encode(&mut laplace(layout.len(), 2), UPDATE)
            .unwrap_or_else(|error| panic!("{method}: {error}"));
    }
}

/// A budget in bytes that the encoder accepts is met for any values.
#[test]
fn a_budget_in_bytes_is_refused_at_once_or_kept() {
    for method in [
        "quantize = { rotated = 1 }",
        "quantize = { uniform = { bits = 2, block = 16 } }, code = 'rans'",
        "quantize = 'ternary', code = 'huffman'",
        "quantize = 'natural', code = 'context'",
        "quantize = { sign = 'split' }, code = 'rice'",
        "quantize = { codebook = 4 }, code = 'rans'",
        "reduce = { random_k = 0.1 }, quantize = 'half', code = 'rans'",
        "reduce = { top_k = { density = { by = 'entropy', form = 'literal' } } }",
        "reduce = { top_k = { density = { by = 'entropy' } } }",
    ] {
        let layout = layout(&[("a", &[8191])]);
        let spec =
            |bytes: u64| toml::from_str::<Spec>(&format!("budget = '{bytes} B'\ndefault = {{ {method} }}")).unwrap();
        let taken = |bytes: &u64| Encoder::new(Arc::clone(&layout), &spec(*bytes)).is_ok();
        let least = (1..).map(|at| at * 64).find(taken).unwrap();
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec(least)).unwrap();
        for (name, mut values) in hard(8191) {
            let pending = encoder
                .encode(&mut values, UPDATE)
                .unwrap_or_else(|error| panic!("{method} {name}: {error}"));
            assert!(
                pending.frame.len() as u64 <= least,
                "{method} {name}: {} of {least}",
                pending.frame.len()
            );
            encoder.settle(&pending, Ack::Accepted).unwrap();
        }
    }
}

/// Bytes that tensors without a step or density certainly save are not given to other tensors.
#[test]
fn tensors_without_a_choice_do_not_widen_a_budget() {
    let layout = layout(&[("a", &[300, 100]), ("b", &[200, 100])]);
    let spec = "budget = '0.25 bits'\ndefault = { quantize = 'dead_zone', code = 'context' }
        [[rules]]\nwhen = { name = 'a' }\nuse = { reduce = { random_k = 0.002 }, quantize = 'half' }";
    let pending = encoder(&layout, spec).encode(&mut laplace(50_000, 3), UPDATE).unwrap();
    let most = 50_000.0 * 0.25 / 8.0;
    assert!(
        (0.97 * most..=most).contains(&(pending.frame.len() as f64)),
        "{} of {most}",
        pending.frame.len()
    );
}

/// The coder takes many times the bits that histograms promise for the factors of a matrix of few components. A frame that sends
/// nothing is no answer to that.
#[test]
fn updates_of_few_components_use_their_budget_in_every_round() {
    let layout = layout(&[("bias", &[50]), ("weight", &[50, 40])]);
    for bits in [1, 2, 4, 8] {
        let mut encoder = encoder(&layout, &format!("budget = '{bits} bits'"));
        for round in 1..=6 {
            let wave = |at: usize| (at as f32 * 0.37 + round as f32).sin() * 0.01;
            let update: Vec<f32> = (0..layout.len()).map(wave).collect();
            let header = FrameHeader { round, ..UPDATE };
            let pending = encoder.encode(&mut update.clone(), header).unwrap();
            let asked = layout.len() * bits / 8;
            // More than about 3 bits are of no use to three vectors of floats.
            let least = asked.min(layout.len() / 4) * 8 / 10;
            assert!(
                (least..=asked).contains(&pending.frame.len()),
                "{bits} bits, round {round}: {} of {asked} bytes",
                pending.frame.len()
            );
            encoder.settle(&pending, Ack::Accepted).unwrap();
            let mut decoded = vec![0.0; layout.len()];
            let frame = Frame::parse(&pending.frame, &layout).unwrap();
            frame.accumulate(1.0, &mut decoded).unwrap();
            let error: f32 = update.iter().zip(&decoded).map(|(a, b)| (a - b).powi(2)).sum();
            assert!(
                error < 0.01 * update.iter().map(|a| a * a).sum::<f32>(),
                "{bits} bits, round {round}: {error}"
            );
        }
    }
}

/// A budget that float32 itself would not need, such as that of a fast link with a long deadline, is not spent on steps so fine
/// that levels end at their limit.
#[test]
fn a_budget_beyond_float32_errs_as_little_as_one_near_it() {
    let layout = layout(&[("bias", &[50]), ("weight", &[60, 500])]);
    let update = laplace(layout.len(), 3);
    let energy: f64 = update.iter().map(|&value| f64::from(value).powi(2)).sum();
    for bits in [8, 16, 20, 24, 28, 30, 31, 32, 64, 1000] {
        for memory in ["none", "error-feedback"] {
            let mut encoder = encoder(
                &layout,
                &format!("memory = '{memory}'\nbudget = '{}B'", layout.len() * bits / 8),
            );
            for round in 1..=3 {
                let header = FrameHeader { round, ..UPDATE };
                let pending = encoder.encode(&mut update.clone(), header).unwrap();
                encoder.settle(&pending, Ack::Accepted).unwrap();
                let mut decoded = vec![0.0; layout.len()];
                let frame = Frame::parse(&pending.frame, &layout).unwrap();
                frame.accumulate(1.0, &mut decoded).unwrap();
                let error: f64 = update.iter().zip(&decoded).map(|(a, b)| f64::from(a - b).powi(2)).sum();
                let most = if bits < 16 { 3e-2 } else { 2e-3 };
                assert!(
                    error.sqrt() < most * energy.sqrt(),
                    "{bits} bits, {memory}, round {round}: {error:e} of {energy:e}"
                );
            }
        }
    }
}

/// Between the rates of coarse levels and those of floats, the error falls by half with each bit.
#[test]
fn budgets_of_many_bits_are_spent_on_a_smaller_error() {
    let layout = layout(&[("a", &[60, 50]), ("b", &[40, 25]), ("c", &[11])]);
    for code in ["context", "rans"] {
        for bits in [12, 16, 20] {
            let spec = format!(
                "memory = 'none'\nbudget = '{bits} bits'\ndefault = {{ quantize = 'dead_zone', code = '{code}' }}"
            );
            let values = laplace(layout.len(), 5);
            let pending = encoder(&layout, &spec).encode(&mut values.clone(), UPDATE).unwrap();
            let error = error(&values, &decode(&layout, &pending.frame));
            // Levels of as many bits over the range of the values.
            let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            let step = 2.0 * f64::from(largest) / f64::from(bits).exp2();
            let uniform = layout.len() as f64 * step * step / 12.0;
            let used = pending.frame.len() as f64 * 8.0 / (f64::from(bits) * layout.len() as f64);
            assert!(
                error < 2.0 * uniform,
                "{code}, {bits} bits: {error:e}, uniform {uniform:e}, {used}"
            );
            assert!((0.9..=1.0).contains(&used), "{code}, {bits} bits: {used}");
        }
    }
}
