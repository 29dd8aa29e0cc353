//! Whole frames with merged small tensors, rules, budgets and schedules.

use std::sync::Arc;

use fl_compress::*;

use crate::*;

/// Small tensors between large ones, some of one value.
pub(crate) fn layout() -> Arc<Layout> {
    Arc::new(
        Layout::new([
            ("a.bias", vec![7]),
            ("a.weight", vec![20, 30]),
            ("b.bias", vec![1]),
            ("b.scale", vec![]),
            ("b.weight", vec![900]),
            ("c.weight", vec![3, 3]),
            ("d.weight", vec![40, 25]),
        ])
        .unwrap(),
    )
}

/// Specs that together use every key.
pub(crate) fn specs() -> Vec<Spec> {
    [
        "default = { reduce = { top_k = 0.1 }, quantize = { uniform = 4 }, code = 'context' }
         small = { below = 100, use = { quantize = 'bf16' } }",
        "default = { quantize = 'dead_zone', code = 'context' }
         small = { below = 100, use = { quantize = { uniform = 8 }, code = 'context' } }
         budget = '400 B'",
        "default = { reduce = { top_k = { density = { by = 'entropy', warm_up = 1 } } }, code = 'huffman' }
         rules = [{ when = { min_dims = 2 }, use = { reduce = { low_rank = 2 }, quantize = 'natural' } },
                  { when = { name = '*.scale' }, use = {} }]",
        "default = { reduce = { low_rank = { rank = { by = 'schedule', points = [[0, 3], [2, 1]] }, remainder = 0.05 } } }
         small = { below = 100, use = { reduce = { top_k = 0.2 }, code = 'rice' } }",
        "default = { reduce = { top_k = { density = { by = 'schedule', shape = 'exponential', points = [[0, 0.5], [4, 0.01]] } } } }
         small = { below = 1000, use = { quantize = { rotated = 2 }, code = 'rans' } }
         rules = [{ when = { min_dims = 2 }, use = { reduce = { top_k = { density = { by = 'fisher' } } }, quantize = 'half' } }]",
        "default = { reduce = { top_k = 0.1 }, quantize = { uniform = 6 }, code = 'auto' }
         small = { below = 8, use = { reduce = { random_k = 0.5 }, quantize = 'sign' } }
         budget = '2 bits'",
        "default = {}
         small = { below = 100000, use = { reduce = { count_sketch = 0.2 }, quantize = { dead_zone = { step = 0.1 } } } }",
    ]
    .map(from_toml)
    .to_vec()
}

#[test]
fn frames_round_trip_under_every_spec_and_memory() {
    let layout = layout();
    for spec in specs() {
        for memory in every_memory() {
            let spec = Spec { memory, ..spec.clone() };
            let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
            let mut threaded = Encoder::new(Arc::clone(&layout), &spec).unwrap();
            threaded.set_threads(3);
            for round in 0..5 {
                let header = FrameHeader { round, ..UPDATE };
                let pending = encoder.encode(&mut noise(layout.len(), round), header).unwrap();
                assert_eq!(
                    threaded.encode(&mut noise(layout.len(), round), header).unwrap(),
                    pending
                );
                let frame = Frame::parse(&pending.frame, &layout).unwrap();
                let largest = frame.verify().unwrap();
                let decoded = decode(&layout, &pending.frame);
                assert!(decoded.iter().all(|value| value.abs() <= largest));
                let mut sum = vec![0.0; layout.len()];
                frame.accumulate(1.0, &mut sum).unwrap();
                assert_eq!(bits(&sum), bits(&decoded));
                let mut values = vec![f32::NAN; layout.len()];
                frame.decode(&mut values).unwrap();
                assert_eq!(values, decoded);
                let mut seen: Vec<&str> = frame
                    .sections()
                    .flat_map(|section| section.tensors)
                    .map(|tensor| tensor.name.as_str())
                    .collect();
                seen.sort_unstable();
                let names: Vec<&str> = layout.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
                assert_eq!(seen, names, "a tensor is not in exactly one section");
                let verdict = [Ack::Accepted, Ack::Rejected, Ack::Dropped][round as usize % 3];
                encoder.settle(&pending, verdict).unwrap();
                threaded.settle(&pending, verdict).unwrap();
            }
        }
    }
}

#[test]
fn small_tensors_decode_to_their_own_places() {
    let layout = layout();
    let spec = from_toml(
        "default = { reduce = { top_k = 1.0 } }\nsmall = { below = 100, use = { reduce = { top_k = 1.0 }, quantize = 'bf16' } }",
    );
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
    let values: Vec<f32> = (0..layout.len()).map(|i| (i % 200) as f32).collect();
    let pending = encoder.encode(&mut values.clone(), UPDATE).unwrap();
    assert_eq!(decode(&layout, &pending.frame), values);
    let frame = Frame::parse(&pending.frame, &layout).unwrap();
    let first = frame.sections().next().unwrap();
    assert_eq!(first.tensors.len(), 4);
}

#[test]
fn a_frame_that_cannot_be_made_changes_nothing() {
    // A sketch of random values is larger than the budget and has no step or density to adapt.
    let layout = Arc::new(Layout::new([("a", vec![2000]), ("b", vec![300])]).unwrap());
    let spec = from_toml(
        "memory = 'error-feedback'
         budget = '1500 B'
         default = { reduce = { top_k = { density = { by = 'entropy' } } } }
         rules = [{ when = { max_len = 500 }, use = { reduce = { top_k = { density = { by = 'fisher', least = 0.09 } } } } }]",
    );
    let Ok(mut encoder) = Encoder::new(Arc::clone(&layout), &spec) else {
        return;
    };
    let save = |encoder: &Encoder| {
        let mut bytes = Vec::new();
        encoder.save(None, &mut bytes);
        bytes
    };
    let before = save(&encoder);
    if encoder.encode(&mut noise(2300, 1), UPDATE).is_err() {
        assert_eq!(save(&encoder), before);
    }
}
