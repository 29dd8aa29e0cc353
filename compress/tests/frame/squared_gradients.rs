//! Rules that choose by squared gradients.

use std::sync::Arc;

use fl_compress::*;

use crate::*;

const RULE: &str = "reduce = { top_k = { density = { by = 'fisher', form = 'gradients', density = 0.25 } } }";

/// Small tensors that are merged, and a large one. No buffers.
fn layout() -> Arc<Layout> {
    let tensors = [("a.bias", vec![2]), ("b.bias", vec![2]), ("c.weight", vec![2, 4])];
    Arc::new(Layout::new(tensors).unwrap())
}

fn encoder(spec: &str) -> Encoder {
    Encoder::new(layout(), &from_toml(spec)).unwrap()
}

/// What arrives of the update 1, 2, .. 12 with these squared gradients.
fn received(spec: &str, squared_gradients: Option<&[f32]>) -> Vec<f32> {
    let given = EncodeOptions {
        squared_gradients,
        ..EncodeOptions::default()
    };
    let mut delta: Vec<f32> = (1..=12).map(|at| at as f32).collect();
    let pending = encoder(spec).encode_with(given, &mut delta, UPDATE).unwrap();
    let mut out = vec![0.0; 12];
    let layout = layout();
    Frame::parse(&pending.frame, &layout).unwrap().decode(&mut out).unwrap();
    out
}

#[test]
fn the_largest_products_of_square_and_squared_gradient_are_sent() {
    let spec = format!("default = {{ {RULE} }}\nsmall = {{ below = 4, use = {{ {RULE} }} }}");
    // Of the four merged values, 1 * 100 is the largest; of the others, 25 * 9 and 49 * 4 are, before 144 * 1.
    let squared = [100.0, 1.0, 1.0, 1.0, 9.0, 1.0, 4.0, 1.0, 0.0, 1.0, 1.0, 1.0];
    let sent = received(&spec, Some(&squared));
    assert_eq!(sent, [1.0, 0.0, 0.0, 0.0, 5.0, 0.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let sent = received(&spec, None);
    assert_eq!(sent, [0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 11.0, 12.0]);
    // Products beyond the range of f32, and values without a gradient.
    let mut squared = [0.0; 12];
    squared[4..6].fill(f32::MAX);
    let sent = received(&spec, Some(&squared));
    assert_eq!(sent, [0.0, 0.0, 0.0, 0.0, 5.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn other_rules_do_not_look_at_squared_gradients() {
    assert!(encoder(&format!("default = {{ {RULE} }}")).wants_squared_gradients());
    for rule in [
        "",
        "reduce = { top_k = 0.25 }",
        "reduce = { top_k = { density = { by = 'fisher' } } }",
    ] {
        let spec = format!("default = {{ {rule} }}");
        assert!(!encoder(&spec).wants_squared_gradients(), "{rule}");
        let mut squared = [0.0; 12];
        squared[0] = 1.0;
        assert_eq!(received(&spec, Some(&squared)), received(&spec, None), "{rule}");
    }
}

#[test]
fn what_is_no_mean_of_squares_is_refused_by_name_and_changes_nothing() {
    let mut encoder = encoder(&format!("default = {{ {RULE} }}"));
    let saved = |encoder: &Encoder| {
        let mut bytes = Vec::new();
        encoder.save(None, &mut bytes);
        bytes
    };
    let before = saved(&encoder);
    for (wrong, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (-1.0, "-1")] {
        let mut squared = [1.0; 12];
        squared[3] = wrong;
        let given = EncodeOptions {
            squared_gradients: Some(&squared),
            ..EncodeOptions::default()
        };
        let why = encoder.encode_with(given, &mut [1.0; 12], UPDATE).unwrap_err();
        let expected = "tensor `b.bias`, value 1: a mean squared gradient must be finite and not negative";
        assert!(
            why.to_string().starts_with(expected) && why.to_string().ends_with(shown),
            "{why}"
        );
    }
    let given = EncodeOptions {
        squared_gradients: Some(&[1.0; 11]),
        ..EncodeOptions::default()
    };
    let why = encoder.encode_with(given, &mut [1.0; 12], UPDATE).unwrap_err();
    assert!(
        why.to_string().contains("11 squared gradients for 12 trained values"),
        "{why}"
    );
    assert_eq!(saved(&encoder), before);
}
