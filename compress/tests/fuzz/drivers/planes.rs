//! Targets below the level of a frame.

use fl_compress::internals::{bench, planes};

use super::choices::{Choices, both_ways};
use super::seeds;

/// Symbols decode identically in any portions, are below `1 << width`, and round-trip under the same code.
pub fn symbols(data: &[u8]) {
    let mut choices = Choices(data);
    let (count, code) = (usize::from(choices.u16() % 6000), choices.code());
    let (width, state) = (u32::from(choices.u8() % 8) + 1, choices.u8());
    let decode = |bytes: &[u8]| {
        both_ways(count, state, |portions, out: &mut [u8]| {
            planes::symbols(bytes, width, code, portions, out)
        })
    };
    let [once, parts] = decode(choices.0);
    assert_eq!(once, parts);
    if let Ok(symbols) = once {
        assert!(symbols.iter().all(|&symbol| u32::from(symbol) >> width == 0));
        let mut bytes = Vec::new();
        bench::encode_symbols(&symbols, width, code, &mut bytes);
        assert_eq!(decode(&bytes), [Ok(symbols.clone()), Ok(symbols)]);
    }
}

/// Indices decode identically in any portions, ascend, are below the length, and round-trip under the same code.
pub fn index_plane(data: &[u8]) {
    let mut choices = Choices(data);
    let (shape, code, state) = (choices.shape(), choices.code(), choices.u8());
    let len = shape[0] * shape[1];
    let kept = usize::from(choices.u16()) % len + 1;
    let decode = |bytes: &[u8]| {
        both_ways(kept, state, |portions, out: &mut [u32]| {
            planes::indices(bytes, shape, code, portions, out)
        })
    };
    let [once, parts] = decode(choices.0);
    assert_eq!(once, parts);
    if let Ok(indices) = once {
        assert!(indices.is_sorted_by(|a, b| a < b) && indices.iter().all(|&index| (index as usize) < len));
        let mut bytes = Vec::new();
        planes::encode_indices(&indices, shape, code, &mut bytes);
        assert_eq!(decode(&bytes), [Ok(indices.clone()), Ok(indices)]);
    }
}

/// Levels decode identically in any portions, and round-trip under the same code.
pub fn levels(data: &[u8]) {
    let mut choices = Choices(data);
    let (shape, code, state) = (choices.shape(), choices.code(), choices.u8());
    let decode = |bytes: &[u8]| {
        both_ways(shape[0] * shape[1], state, |portions, out: &mut [i32]| {
            planes::levels(bytes, shape, code, portions, out)
        })
    };
    let [once, parts] = decode(choices.0);
    assert_eq!(once, parts);
    if let Ok(levels) = once
        && !levels.contains(&i32::MIN)
    {
        let mut bytes = Vec::new();
        bench::encode_levels(&levels, shape[1], code, &mut bytes);
        assert_eq!(decode(&bytes), [Ok(levels.clone()), Ok(levels)]);
    }
}

/// A section decodes to finite values at valid places, each place once, and identically in any portions. Every method
/// can encode the decoded values again.
pub fn section(data: &[u8]) {
    let mut choices = Choices(data);
    let (shape, seed, state, method) = (choices.shape(), choices.u8().into(), choices.u8(), choices.u8());
    let len = shape[0] * shape[1];
    let decoded = |bytes: &[u8]| {
        let (mut out, mut seen) = (vec![0.0; len], vec![false; len]);
        let take = |start: usize, values: &[f32]| {
            assert!(values.iter().all(|value| value.is_finite()));
            out[start..start + values.len()].copy_from_slice(values);
            let seen = &mut seen[start..start + values.len()];
            assert!(!seen.contains(&true));
            seen.fill(true);
        };
        planes::section(bytes, shape, seed, take).map(|()| out)
    };
    let Ok(values) = decoded(choices.0) else {
        return;
    };
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let mut whole = true;
    let again = both_ways(len, state, |portions, out: &mut [f32]| {
        let read = planes::section_values(choices.0, shape, seed, portions, out);
        whole = read.is_some();
        read.unwrap_or(Ok(()))
    });
    if whole {
        assert_eq!(
            again.map(|values| values.map(|values| bits(&values))),
            [Ok(bits(&values)), Ok(bits(&values))]
        );
    }
    let methods = seeds::methods();
    let method = &methods[usize::from(method) % methods.len()];
    let encoded = planes::encode_section(&values, shape, seed, state.is_multiple_of(2), method);
    let encoded = encoded.expect("finite values must encode");
    assert!(encoded.len() <= 1 + values.len() * 4);
    let sent = decoded(&encoded).expect("encoded values must decode");
    assert!(values.iter().zip(&sent).all(|(value, sent)| (value - sent).is_finite()));
}
