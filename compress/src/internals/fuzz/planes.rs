//! Targets below a frame.

use crate::code::gaps::{IndexPlane, encode_indices};
use crate::code::levels::{LevelPlane, encode_levels};
use crate::code::symbols::{SymbolPlane, encode_symbols};
use crate::error::Error;
use crate::finite::all_finite;
use crate::internals::fuzz::choices::{Choices, both_ways};
use crate::internals::fuzz::seeds;
use crate::recipe::Recipe;
use crate::reduce::Reduce;
use crate::rng::KeyedRng;
use crate::rules::rule_state::RuleState;
use crate::section::decode::Section;
use crate::section::encode::encode;
use crate::section::input::Input;
use crate::section::sinks::Sink;
use crate::spec::Method;
use crate::wire::Reader;

/// Symbols decode alike in any portions, are below `1 << width`, and stay themselves under the same code.
pub fn symbols(data: &[u8]) {
    let mut choices = Choices(data);
    let (count, code) = (usize::from(choices.u16() % 6000), choices.code());
    let (width, state) = (u32::from(choices.u8() % 8) + 1, choices.u8());
    let decode = |bytes: &[u8]| {
        both_ways(count, state, |portions, out: &mut [u8]| {
            let mut reader = Reader::new(bytes);
            let mut symbols = SymbolPlane::read(&mut reader, count, width, code)?.open()?;
            let mut rest = out;
            for &portion in portions {
                symbols.read(rest.split_off_mut(..portion).unwrap_or_default());
            }
            symbols.finish()
        })
    };
    let [once, parts] = decode(choices.0);
    assert_eq!(once, parts);
    if let Ok(symbols) = once {
        assert!(symbols.iter().all(|&symbol| u32::from(symbol) >> width == 0));
        let mut bytes = Vec::new();
        encode_symbols(&symbols, width, code, &mut bytes);
        assert_eq!(decode(&bytes), [Ok(symbols.clone()), Ok(symbols)]);
    }
}

/// Indices decode alike in any portions, ascend below the length, and stay themselves under the same code.
pub fn index_plane(data: &[u8]) {
    let mut choices = Choices(data);
    let (shape, code, state) = (choices.shape(), choices.code(), choices.u8());
    let kept = usize::from(choices.u16()) % shape.len() + 1;
    let decode = |bytes: &[u8]| {
        both_ways(kept, state, |portions, out: &mut [u32]| {
            let mut indices = IndexPlane::read(&mut Reader::new(bytes), kept, shape, code)?.open()?;
            let mut rest = out;
            for &portion in portions {
                indices.read(rest.split_off_mut(..portion).unwrap_or_default())?;
            }
            indices.finish()
        })
    };
    let [once, parts] = decode(choices.0);
    assert_eq!(once, parts);
    if let Ok(indices) = once {
        assert!(indices.is_sorted_by(|a, b| a < b) && indices.iter().all(|&index| (index as usize) < shape.len()));
        let mut bytes = Vec::new();
        encode_indices(&indices, shape, code, &mut bytes);
        assert_eq!(decode(&bytes), [Ok(indices.clone()), Ok(indices)]);
    }
}

/// Levels decode alike in any portions, and stay themselves under the same code.
pub fn levels(data: &[u8]) {
    let mut choices = Choices(data);
    let (shape, code, state) = (choices.shape(), choices.code(), choices.u8());
    let decode = |bytes: &[u8]| {
        both_ways(shape.len(), state, |portions, out: &mut [i32]| {
            let mut levels = LevelPlane::read(&mut Reader::new(bytes), shape, code)?.open()?;
            let mut rest = out;
            for &portion in portions {
                levels.read(rest.split_off_mut(..portion).unwrap_or_default())?;
            }
            levels.finish()
        })
    };
    let [once, parts] = decode(choices.0);
    assert_eq!(once, parts);
    if let Ok(levels) = once
        && !levels.contains(&i32::MIN)
    {
        let mut bytes = Vec::new();
        encode_levels(&levels, shape, code, &mut bytes);
        assert_eq!(decode(&bytes), [Ok(levels.clone()), Ok(levels)]);
    }
}

/// A section decodes to finite values at places that there are, each once, and alike in any portions. What it decodes to
/// can be sent again by any method.
pub fn section(data: &[u8]) {
    let mut choices = Choices(data);
    let (shape, seed, state) = (choices.shape(), choices.u8(), choices.u8());
    let (method, rng) = (choices.u8(), KeyedRng::new(seed.into(), 0));
    let Ok(values) = decoded(choices.0, shape.len(), |reader| Section::read(reader, shape, rng)) else {
        return;
    };
    let mut reader = Reader::new(choices.0);
    let recipe = Recipe::read(&mut reader, shape).expect("it was read before");
    if recipe.reduce == Reduce::Keep {
        let plane = recipe
            .quantize
            .plane(&mut reader, shape, recipe.code, rng)
            .expect("as before");
        let again = both_ways(shape.len(), state, |portions, out: &mut [f32]| {
            let (mut open, mut rest) = (plane.open()?, out);
            for &portion in portions {
                open.read(rest.split_off_mut(..portion).unwrap_or_default())?;
            }
            open.finish()
        });
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        let again = again.map(|values: Result<_, Error>| values.map(|values| bits(&values)));
        assert_eq!(again, [Ok(bits(&values)), Ok(bits(&values))]);
    }
    let methods = seeds::methods();
    let Method { reduce, quantize, code } = &methods[usize::from(method) % methods.len()];
    let unbiased = state.is_multiple_of(2);
    let (selection, clip) = reduce.select(&values, shape, seed.into(), unbiased, &mut RuleState::default());
    let input = Input {
        values: &values,
        shape,
        selection,
        leading: None,
        clip,
        quantize: *quantize,
        code: *code,
        rng,
        unbiased,
        threads: 1,
    };
    let encoded = encode(&input, &mut None).expect("finite values are encoded");
    assert!(encoded.bytes.len() <= 1 + values.len() * 4);
    let sent = decoded(&encoded.bytes, shape.len(), |reader| Section::read(reader, shape, rng));
    let sent = sent.expect("what is encoded decodes");
    let left: Vec<f32> = values.iter().zip(&sent).map(|(value, sent)| value - sent).collect();
    assert!(all_finite(&left));
}

fn decoded<'a>(
    bytes: &'a [u8],
    len: usize,
    read: impl FnOnce(&mut Reader<'a>) -> Result<Section<'a>, Error>,
) -> Result<Vec<f32>, Error> {
    let mut once = Once {
        values: vec![0.0; len],
        seen: vec![false; len],
    };
    read(&mut Reader::new(bytes))?.decode(&mut once)?;
    Ok(once.values)
}

/// Takes each place at most once.
struct Once {
    values: Vec<f32>,
    seen: Vec<bool>,
}

impl Sink for Once {
    fn dense(&mut self, start: usize, values: &[f32]) {
        assert!(all_finite(values));
        self.values[start..start + values.len()].copy_from_slice(values);
        let seen = &mut self.seen[start..start + values.len()];
        assert!(!seen.contains(&true));
        seen.fill(true);
    }

    fn sparse(&mut self, indices: &[u32], values: &[f32]) {
        assert_eq!(indices.len(), values.len());
        for (&index, value) in indices.iter().zip(values) {
            self.dense(index as usize, std::slice::from_ref(value));
        }
    }
}
