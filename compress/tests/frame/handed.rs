//! Frames meet a budget that is handed over with the update, in place of the budget of their spec.

use std::sync::Arc;

use fl_compress::*;

use crate::*;

fn layout() -> Arc<Layout> {
    let layout = Layout::new([
        ("a.weight", vec![64, 200]),
        ("b.bias", vec![40]),
        ("b.weight", vec![120, 100]),
    ]);
    Arc::new(layout.unwrap())
}

/// The frame of the third update; its residual has been carried over from the others.
fn third(spec: &str, given: EncodeOptions<'_>) -> Pending {
    let layout = layout();
    let mut encoder = Encoder::new(Arc::clone(&layout), &from_toml(spec)).unwrap();
    let mut made = None;
    for round in 0..3 {
        let mut delta = noise(layout.len(), round + 5);
        delta.iter_mut().for_each(|value| *value = value.powi(3));
        let header = FrameHeader { round, ..UPDATE };
        let pending = encoder.encode_with(given, &mut delta, header).unwrap();
        assert!(Frame::parse(&pending.frame, &layout).unwrap().verify().is_ok());
        encoder.settle(&pending, Ack::Accepted).unwrap();
        made = Some(pending);
    }
    made.unwrap()
}

const SPECS: [&str; 5] = [
    "memory = 'error-feedback'\nbudget = '0.25 bits'",
    "memory = 'error-feedback'\nbudget = '0.25 to 1 bits, error 0.7'",
    "memory = 'none'\nbudget = '700 B'",
    "budget = '0.1 bits'\ndefault = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = 'rice' }",
    "budget = '0.5 bits'\nsmall = { below = 100, use = { quantize = { uniform = 8 }, code = 'rans' } }",
];

#[test]
fn a_handed_budget_is_kept_and_used_whatever_the_spec_asks_for() {
    for spec in SPECS {
        for budget in [600, 1_500, 4_096, 9_000] {
            let given = EncodeOptions {
                budget: Some(budget),
                ..EncodeOptions::default()
            };
            let pending = third(spec, given);
            let bytes = pending.frame.len() as u64;
            assert_eq!(pending.asked, Some(budget));
            assert!(
                bytes <= budget && bytes as f64 >= 0.97 * budget as f64,
                "{spec}: {bytes} of {budget}"
            );
        }
    }
}

#[test]
fn the_most_bytes_bind_only_frames_that_are_longer() {
    for spec in SPECS {
        let free = third(spec, EncodeOptions::default());
        let len = free.frame.len() as u64;
        let at_most = |most| EncodeOptions {
            most: Some(most),
            ..EncodeOptions::default()
        };
        assert_eq!(third(spec, at_most(2 * len)).frame, free.frame, "{spec}");
        let bound = third(spec, at_most(len * 2 / 3)).frame.len() as u64;
        assert!(
            bound <= len * 2 / 3 && bound as f64 >= 0.6 * len as f64,
            "{spec}: {bound} of {len}"
        );
        let both = EncodeOptions {
            budget: Some(9_000),
            most: Some(2_000),
            ..EncodeOptions::default()
        };
        let bound = third(spec, both);
        assert!(bound.frame.len() <= 2_000 && bound.asked == Some(2_000), "{spec}");
    }
}

#[test]
fn a_frame_that_cannot_meet_its_budget_is_as_small_as_it_can_be() {
    for spec in SPECS {
        let sizes = [1, 8, 20].map(|budget| {
            let given = EncodeOptions {
                budget: Some(budget),
                ..EncodeOptions::default()
            };
            third(spec, given).frame.len()
        });
        assert!(
            sizes.iter().all(|size| *size == sizes[0] && *size < 250),
            "{spec}: {sizes:?}"
        );
    }
}

/// The first tensor is sent by bandwidth, of the third update the values that are not zero.
fn nonzeros(bandwidth: Option<u32>) -> u64 {
    let spec = "memory = 'error-feedback'\nsmall = { below = 100, use = { quantize = 'half' } }\n\
                default = { reduce = { top_k = { density = { by = 'variance', alpha = 0, gamma = 0.5 } } } }";
    assert!(from_toml(spec).wants_bandwidth());
    let given = EncodeOptions {
        bandwidth,
        ..EncodeOptions::default()
    };
    let pending = third(spec, given);
    pending.fidelity[0].nonzeros
}

#[test]
fn a_frame_over_a_faster_link_has_more_values() {
    let links = [Some(250_000), None, Some(1_000_000), Some(4_000_000)];
    assert_eq!(links.map(nonzeros), [64, 128, 128, 256]);
    let fixed = "default = { reduce = { top_k = { density = { by = 'variance' } } } }";
    assert!(!from_toml(fixed).wants_bandwidth());
}

#[test]
fn a_limit_of_the_error_that_changes_with_the_rounds_holds_in_each() {
    let (layout, spec) = (layout(), from_toml("budget = '0.01 bits, error 0.3 to 0.7 by round 3'"));
    let lengths = [(1, 0.3f32), (2, 0.5), (3, 0.7), (9, 0.7)].map(|(round, limit)| {
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
        let update = noise(layout.len(), 5);
        let pending = encoder
            .encode(&mut update.clone(), FrameHeader { round, ..UPDATE })
            .unwrap();
        let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>().sqrt();
        let sent = decode(&layout, &pending.frame);
        let error =
            norm(&mut sent.iter().zip(&update).map(|(sent, value)| sent - value)) / norm(&mut update.iter().copied());
        assert!(
            (0.8 * limit..limit * 1.01).contains(&error),
            "round {round}: {error} for a limit of {limit}"
        );
        assert!(
            pending.fidelity.iter().all(|section| section.kept > 0.18),
            "a section has an error above 0.9"
        );
        pending.frame.len()
    });
    assert!(lengths[0] > lengths[1] && lengths[1] > lengths[2], "{lengths:?}");
    assert_eq!(lengths[2], lengths[3]);
}
