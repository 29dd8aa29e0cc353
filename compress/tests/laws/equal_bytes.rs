//! The constant setting that takes as many bytes as an adaptive rule: what a rule must be compared with.
//!
//! `cargo test -p fl-compress --test laws equal_bytes -- --nocapture` prints both, with the energy that each keeps.

use crate::*;

const ROUNDS: u64 = 16;

/// A matrix whose scale falls and whose tail becomes heavier, and a vector that does the opposite.
fn update(round: u64) -> Vec<f32> {
    let heavier = |at: usize, power: f64| {
        let value = unit(7 + round, at).ln();
        let sign = if unit(90 + round, at) < 0.5 { -1.0 } else { 1.0 };
        sign * value.abs().powf(power)
    };
    let share = round as f64 / ROUNDS as f64;
    let value = |at: usize| {
        if at < 2400 {
            heavier(at, 0.7 + 1.5 * share) * (1.0 - 0.8 * share)
        } else {
            heavier(at, 2.2 - 1.5 * share) * (0.2 + 0.8 * share)
        }
    };
    (0..4000).map(|at| value(at) as f32).collect()
}

/// Bytes of all frames, and the mean share of the energy that their sections keep.
fn run(codec: &str) -> (u64, f64) {
    let layout = layout(&[("matrix", &[40, 60]), ("vector", &[1600])]);
    let mut encoder = encoder(&layout, &format!("memory = 'error-feedback'\ndefault = {{ {codec} }}"));
    let (mut bytes, mut kept) = (0, 0.0);
    for round in 0..ROUNDS {
        let header = FrameHeader { round, ..UPDATE };
        let pending = encoder.encode(&mut update(round), header).unwrap();
        bytes += pending.frame.len() as u64;
        kept += pending
            .fidelity
            .iter()
            .map(|section| f64::from(section.kept))
            .sum::<f64>();
        encoder.settle(&pending, Ack::Accepted).unwrap();
    }
    (bytes, kept / (2 * ROUNDS) as f64)
}

fn show(rule: &str, own: (u64, f64), constant: &str, of: (u64, f64)) {
    println!(
        "{rule}: {} bytes, {:.3} kept; {constant}: {} bytes, {:.3} kept",
        own.0, own.1, of.0, of.1
    );
}

#[test]
fn a_density_of_equal_bytes_exists_for_every_rule() {
    let density =
        |rule: &str| format!("reduce = {{ top_k = {{ density = {rule} }} }}, quantize = 'half', code = 'rice'");
    let names: Vec<&str> = density_rules().map(|rule| rule.name).collect();
    for rule in [
        "{ by = 'entropy' }",
        "{ by = 'fisher' }",
        "{ by = 'fisher', form = 'literal' }",
        "{ by = 'variance' }",
        "{ by = 'bandit' }",
        "{ by = 'schedule', points = [[0, 0.1], [8, 0.01]] }",
    ] {
        let own = run(&density(rule));
        let (mut fewer, mut more) = (0.0005f64, 1.0f64);
        for _ in 0..12 {
            let middle = (fewer * more).sqrt();
            if run(&density(&middle.to_string())).0 <= own.0 {
                fewer = middle
            } else {
                more = middle
            }
        }
        let of = run(&density(&fewer.to_string()));
        show(rule, own, &format!("density {fewer:.4}"), of);
        let share = of.0 as f64 / own.0 as f64;
        // One value more in each section of each frame is up to 4 % of the bytes.
        assert!((0.95..=1.0).contains(&share), "{rule}: {share} at {fewer}");
        assert!(names.iter().any(|name| rule.contains(&format!("'{name}'"))));
    }
    assert_eq!(names.len(), 5, "a new rule belongs in the list above");
}

/// Bits and ranks are whole numbers: the nearest constants with fewer and with more bytes.
#[test]
fn constants_around_a_rule_for_bits_or_ranks_exist() {
    let bits = |bits: &str| format!("quantize = {{ uniform = {{ bits = {bits} }} }}, code = 'rans'");
    let rank = |rank: &str| format!("reduce = {{ low_rank = {{ rank = {rank} }} }}, quantize = 'half'");
    let of_bits = [
        "{ by = 'oracle', target = 2.2 }",
        "{ by = 'learned', target = 2.2 }",
        "{ by = 'bandit' }",
    ];
    let of_ranks = ["{ by = 'entropy', most = 8, window = 1 }"];
    let rules = of_bits.map(|rule| (rule, bits as fn(&str) -> String, [1, 8]));
    for (rule, codec, [least, most]) in rules
        .into_iter()
        .chain(of_ranks.map(|rule| (rule, rank as fn(&str) -> String, [1, 8])))
    {
        let own = run(&codec(rule));
        let constants: Vec<(u32, (u64, f64))> = (least..=most)
            .map(|at: u32| (at, run(&codec(&at.to_string()))))
            .collect();
        let above = constants
            .iter()
            .position(|(_, of)| of.0 > own.0)
            .unwrap_or(constants.len() - 1);
        for (at, of) in &constants[above.saturating_sub(1)..=above] {
            show(rule, own, &format!("{at}"), *of);
        }
        assert!(
            constants[0].1.0 <= own.0 && own.0 <= constants[constants.len() - 1].1.0,
            "{rule}: {own:?}"
        );
    }
}
