//! Weights of tensors in a budget.

use std::sync::Arc;

use fl_compress::*;

use crate::*;

/// Two matrices of like values, and two small tensors.
fn layout() -> Arc<Layout> {
    let tensors = [
        ("a.bias", vec![8]),
        ("a.weight", vec![30, 100]),
        ("b.bias", vec![8]),
        ("b.weight", vec![30, 100]),
    ];
    Arc::new(Layout::new(tensors).unwrap())
}

/// Relative errors of `a.weight` and `b.weight`, and the frame.
fn encoded(spec: &str, squared_gradients: Option<&[f32]>) -> ([f64; 2], Vec<u8>) {
    let layout = layout();
    let spec = from_toml(&format!("memory = 'error-feedback'\nbudget = '0.5 bits'\n{spec}"));
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
    let values: Vec<f32> = noise(layout.len(), 3)
        .iter()
        .map(|value| value * value * value)
        .collect();
    let given = EncodeOptions {
        squared_gradients,
        ..EncodeOptions::default()
    };
    let pending = encoder.encode_with(given, &mut values.clone(), UPDATE).unwrap();
    assert!(pending.frame.len() as u64 <= pending.asked.unwrap());
    let decoded = decode(&layout, &pending.frame);
    let error = |at: usize| {
        let range = layout.tensors()[at].offset..layout.tensors()[at].offset + 3000;
        let squares = |of: &dyn Fn(usize) -> f32| range.clone().map(|at| f64::from(of(at)).powi(2)).sum::<f64>();
        squares(&|at| values[at] - decoded[at]) / squares(&|at| values[at])
    };
    ([error(1), error(3)], pending.frame)
}

/// Squared gradients that are 100 times as large for the values of `a.weight` as for the others.
fn squared() -> Vec<f32> {
    let layout = layout();
    let tensor = &layout.tensors()[1];
    let inside = tensor.offset..tensor.offset + tensor.len;
    let value = |at| if inside.contains(&at) { 1e-2 } else { 1e-4 };
    (0..layout.len()).map(value).collect()
}

#[test]
fn a_weight_of_one_changes_no_byte() {
    let (_, plain) = encoded("", None);
    for spec in [
        "weight = 1",
        "rules = [{ when = { name = 'b.*' }, weight = 1 }]",
        // Nothing is known of the gradients.
        "weight = 'fisher'",
    ] {
        assert_eq!(encoded(spec, None).1, plain, "{spec}");
    }
    assert_eq!(encoded("weight = 1", Some(&squared())).1, plain);
}

#[test]
fn a_tensor_of_more_weight_errs_less_and_the_budget_holds() {
    let ([a, b], _) = encoded("", None);
    let ([heavy, light], _) = encoded("rules = [{ when = { name = 'a.*' }, weight = 8 }]", None);
    assert!(heavy < 0.9 * a && light > 1.05 * b, "{a} {b}: {heavy} {light}");
    let ([fisher, other], _) = encoded("weight = 'fisher'", Some(&squared()));
    assert!(fisher < 0.9 * a && other > 1.05 * b, "{a} {b}: {fisher} {other}");
    // The first rule with a weight applies, and a rule without a codec leaves the codec as it is.
    let rules = "rules = [{ when = { name = 'a.w*' }, weight = 8 }, { when = { name = 'a.*' }, weight = 0.1 }]";
    assert_eq!(encoded(rules, None).0, [heavy, light]);
}

#[test]
fn fisher_weights_ask_for_squared_gradients() {
    let wants = |spec: &str| {
        let spec = from_toml(spec);
        let encoder = Encoder::new(layout(), &spec).unwrap();
        assert_eq!(encoder.wants_squared_gradients(), spec.wants_squared_gradients());
        spec.wants_squared_gradients()
    };
    assert!(wants("weight = 'fisher'"));
    assert!(wants("rules = [{ when = { name = 'b.weight' }, weight = 'fisher' }]"));
    assert!(!wants("weight = 3") && !wants(""));
}
