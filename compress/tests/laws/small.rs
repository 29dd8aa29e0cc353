//! Small tensors, merged into one section.

use crate::*;

#[test]
fn small_tensors_may_stand_anywhere_and_be_one() {
    for shapes in [
        &[("a", &[40, 50][..]), ("b", &[10][..])][..],
        &[("a", &[10][..]), ("b", &[40, 50][..])][..],
        &[
            ("a", &[40, 50][..]),
            ("b", &[10][..]),
            ("c", &[40, 50][..]),
            ("d", &[7][..]),
        ][..],
        &[("a", &[10][..])][..],
        &[("a", &[40, 50][..])][..],
    ] {
        let layout = layout(shapes);
        let values = laplace(layout.len(), 1);
        let spec = "default = { quantize = 'half' }\nsmall = { below = 1024, use = {} }";
        let out = once(&layout, spec, &values, 0);
        for tensor in layout.tensors() {
            let range = tensor.offset..tensor.offset + tensor.len;
            let (values, out) = (&values[range.clone()], &out[range]);
            assert_eq!(values == out, tensor.len < 1024, "{shapes:?} {}", tensor.name);
            assert!(error(values, out) <= 1e-6 * dot(values, values));
        }
    }
}

#[test]
fn counting_while_adding_adds_the_same_and_counts_what_is_not_zero() {
    let layout = layout(&[("a", &[3]), ("b", &[40, 30]), ("c", &[5]), ("d", &[2_000])]);
    let values = laplace(layout.len(), 3);
    for spec in [
        "default = { reduce = { top_k = 0.05 }, quantize = { uniform = 4 }, code = \"rans\" }",
        "default = { quantize = { dead_zone = { step = 1.0 } }, code = \"context\" }",
        "budget = \"0.5 bits\"",
    ] {
        let mut encoder = encoder(&layout, spec);
        let pending = encoder
            .encode(
                &mut values.clone(),
                FrameHeader {
                    kind: FrameKind::Update,
                    round: 1,
                    seed: 1,
                },
            )
            .unwrap();
        let frame = Frame::parse(&pending.frame, &layout).unwrap();
        let (mut plain, mut counted) = (vec![1.0; layout.len()], vec![1.0; layout.len()]);
        frame.accumulate(0.5, &mut plain).unwrap();
        let mut kept = Decoded::default();
        frame.accumulate_to(0.5, &mut counted, usize::MAX, &mut kept).unwrap();
        assert_eq!(plain, counted, "{spec}");
        let (counts, largest) = (kept.nonzeros().to_vec(), kept.largest());
        frame.decode_to(usize::MAX, &mut kept).unwrap();
        counted.fill(1.0);
        kept.add(0.5, &mut counted);
        assert_eq!(plain, counted, "{spec}");
        assert_eq!(
            (kept.nonzeros(), kept.largest()),
            (&counts[..], frame.verify().unwrap())
        );
        assert_eq!(kept.largest(), largest, "{spec}");
        let decoded = decode(&layout, &pending.frame);
        let nonzeros = decoded.iter().filter(|value| **value != 0.0).count() as u64;
        assert_eq!(counts.len(), frame.sections().len());
        let sum = counts.iter().sum::<u64>();
        // Components and remainder are two parts of one section, and the nonzeros of both are counted.
        assert!(
            sum >= nonzeros && sum <= layout.len() as u64,
            "{spec}: {sum} of {nonzeros}"
        );
        assert!(
            spec.contains("budget") || sum == nonzeros,
            "{spec}: {sum} of {nonzeros}"
        );
    }
}
