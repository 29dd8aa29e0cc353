//! The smallest budget in bytes: accepted, met by the frames of any values, and not far above those of random ones.

use std::sync::Arc;

use fl_compress::*;

use crate::*;

fn layouts() -> [Layout; 2] {
    [
        Layout::new([
            ("fc1.bias", vec![100]),
            ("fc1.weight", vec![100, 196]),
            ("fc2.bias", vec![10]),
            ("fc2.weight", vec![10, 100]),
        ])
        .unwrap(),
        Layout::new([("conv.weight", vec![24, 16, 3, 3]), ("conv.bias", vec![24])]).unwrap(),
    ]
}

fn with_budget(spec: &Spec, bytes: u64) -> Spec {
    Spec {
        budget: Some(Budget::Bytes(bytes)),
        ..spec.clone()
    }
}

/// The budget that the refusal of a budget of one byte names.
fn named(layout: &Layout, spec: &Spec) -> u64 {
    let refusal = Encoder::new(Arc::new(layout.clone()), &with_budget(spec, 1))
        .unwrap_err()
        .to_string();
    let (_, least) = refusal.split_once("at least \"").unwrap_or_else(|| panic!("{refusal}"));
    assert!(refusal.contains("`budget`"), "{refusal}");
    match least.split_once('"').unwrap().0.parse() {
        Ok(Budget::Bytes(least)) => least,
        other => panic!("{refusal}: {other:?}"),
    }
}

/// Random, constant, sparse, of one spike, and zero.
fn updates(len: usize) -> Vec<Vec<f32>> {
    let random = noise(len, 3);
    let sparse = random
        .iter()
        .enumerate()
        .map(|(at, value)| if at % 50 == 0 { *value } else { 0.0 });
    let spike = random
        .iter()
        .enumerate()
        .map(|(at, value)| if at == len / 2 { 1e4 } else { *value });
    vec![
        random.clone(),
        vec![0.25; len],
        sparse.collect(),
        spike.collect(),
        vec![0.0; len],
    ]
}

/// Checks the least budget of `spec`; returns it with the size of the frame of random values.
fn check(layout: &Layout, spec: &Spec) -> (u64, u64) {
    let least = named(layout, spec);
    assert_eq!(spec.smallest_budget(layout), least);
    let layout = Arc::new(layout.clone());
    let frames = updates(layout.len()).into_iter().map(|mut delta| {
        let mut encoder = Encoder::new(Arc::clone(&layout), &with_budget(spec, least)).unwrap();
        let pending = encoder
            .encode(&mut delta, UPDATE)
            .unwrap_or_else(|error| panic!("{spec:?}: {error}"));
        assert!(
            pending.frame.len() as u64 <= least,
            "{spec:?}: {} of {least}",
            pending.frame.len()
        );
        pending.frame.len() as u64
    });
    let sizes: Vec<u64> = frames.collect();
    // Slightly less is refused, and not met by luck of the values.
    let less = with_budget(spec, least * 97 / 100 - 1);
    assert!(Encoder::new(layout, &less).is_err());
    (least, sizes[0])
}

#[test]
fn every_preset_names_a_least_budget_that_its_frames_meet() {
    for layout in layouts() {
        for &preset in Preset::ALL {
            let spec = Spec::preset(preset).unwrap();
            let (least, random) = check(&layout, &spec);
            // A rule by a threshold may select every value; it selects few of random ones.
            let is_near = least as f64 <= 1.35 * random as f64 + 64.0;
            let may_select_all = matches!(preset, Preset::AgcFisher);
            // Small levels under a norm of all values are coded in fewer bits.
            let is_coded = matches!(preset, Preset::Qsgd);
            assert!(
                is_near || may_select_all || is_coded,
                "{}: {least} for {random}",
                preset.name()
            );
        }
    }
}

#[test]
fn every_reducer_and_quantizer_has_a_bound_that_holds() {
    let [mlp, conv] = layouts();
    for method in every_method() {
        check(&conv, &spec(Memory::None, method));
    }
    for method in some_methods() {
        check(&mlp, &spec(from_toml("memory = 'error-feedback'").memory, method));
    }
}
