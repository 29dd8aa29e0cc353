//! Small tensors, together in one section.

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
