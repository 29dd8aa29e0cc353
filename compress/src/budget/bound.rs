//! The largest section that a codec without a knob makes of a tensor, whatever the values are.

use crate::layout::Shape;
use crate::math;
use crate::quantize::QuantizeSpec;
use crate::quantize::method::Quantizer;
use crate::quantize::uniform::Rounding;
use crate::reduce::form::Part;
use crate::reduce::method::Sends;
use crate::spec::method::Method;

// Bytes of an empty section: its recipe.
const EMPTY: u64 = 3;
// Worst-case bytes of a recipe with numbers.
const RECIPE: u64 = 16;
// Most planes of symbols of one part: one per byte of a float.
const PLANES: u64 = 4;
// Gaps in a block of Rice codes, and the bits before each block.
const BLOCK: f64 = 256.0;
const BLOCK_BITS: f64 = 5.0;
// Worst-case bits of an index beyond `log2(n / k)`, escapes included: of the two parameters next to the mean gap, the
// better one has at most `2.72` more, by concavity also if blocks have different means.
const INDEX_BITS: f64 = 2.72;
// Bytes of the one value that stochastic rounding may send at the coarsest step, with its plane.
const CHANCE: u64 = 32;

/// Whether a budget chooses the step or the density of the sections of `method`.
pub(crate) fn has_knob(Method { reduce, quantize, .. }: &Method) -> bool {
    match reduce.method().sends() {
        Sends::Largest { .. } => true,
        Sends::All | Sends::Components => matches!(quantize, QuantizeSpec::DeadZone(_)),
        Sends::Other => false,
    }
}

/// Worst-case bytes of a section at its coarsest step or its least density, or of any section if its codec has none.
pub(crate) fn section_bytes(method: &Method, shape: Shape, places: usize) -> u64 {
    match (has_knob(method), &method.quantize) {
        (true, QuantizeSpec::DeadZone(zone)) if zone.rounding() == Rounding::Stochastic => EMPTY + CHANCE,
        (true, _) => EMPTY,
        (false, quantize) => {
            let parts = method.reduce.method().most_parts(shape, places);
            let parts = parts.unwrap_or_else(|| vec![Part::indexed(shape.len())]);
            // A longer section falls back to the exact values.
            EMPTY
                + (RECIPE - EMPTY
                    + parts
                        .iter()
                        .map(|part: &Part| part_bytes(*part, shape.len(), quantize.method()))
                        .sum::<u64>())
                .min(shape.len() as u64 * 4)
        }
    }
}

/// Worst-case bytes of one part of a section of `len` values. A plane that no coder shortens is packed behind its length.
fn part_bytes(part: Part, len: usize, quantize: &dyn Quantizer) -> u64 {
    let count = part.shape.len();
    if count == 0 {
        return 0;
    }
    let values = quantize.most_bytes(count) as u64;
    let indices = if part.indexed { index_bytes(count, len) } else { 0 };
    values + PLANES * varint_bytes(values) + indices
}

/// Worst-case bytes of the places of `count` of `len` values, as Rice codes: other coders are used where they are shorter.
fn index_bytes(count: usize, len: usize) -> u64 {
    let kept = count as f64;
    let len = len.max(count) as f64;
    let bits = kept * (math::log2(len / kept) + INDEX_BITS) + (kept / BLOCK).ceil() * BLOCK_BITS;
    let bytes = (bits / 8.0) as u64 + 1;
    bytes + varint_bytes(2 * bytes + 1)
}

fn varint_bytes(value: u64) -> u64 {
    u64::from((value | 1).ilog2()) / 7 + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::code::gaps::encode_indices;
    use crate::code::method::Code;
    use crate::rng::KeyedRng;

    fn ascending(len: usize, seed: u64, density: f32, run: usize) -> Vec<u32> {
        let rng = KeyedRng::new(seed, 0);
        let indices = (0..len).filter(|&at| rng.unit(at / run) < density);
        indices.map(|at| at as u32).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, rng_seed: RngSeed::Fixed(3), ..ProptestConfig::default() })]

        /// Random, clustered, and one far behind many.
        #[test]
        fn no_support_takes_more_than_its_bound(
            len in 1usize..10_000, seed in 0u64..1000, density in 0.0005f32..1.0, run in prop_oneof![Just(1usize), 2usize..400], far in 0usize..9
        ) {
            let mut indices = ascending(len, seed, density, run);
            let len = len << (2 * far);
            indices.push(len as u32 - 1);
            indices.dedup();
            for &code in Code::ALL {
                let mut bytes = Vec::new();
                encode_indices(&indices, Shape::row(len), code, &mut bytes);
                prop_assert!(bytes.len() as u64 <= index_bytes(indices.len(), len), "{code:?}: {} of {len}", indices.len());
            }
        }
    }

    #[test]
    fn the_bound_of_a_random_support_is_near() {
        for density in [0.001, 0.02, 0.1] {
            let (indices, len) = (ascending(200_000, 1, density, 1), 200_000);
            let mut bytes = Vec::new();
            encode_indices(&indices, Shape::row(len), Code::Rans, &mut bytes);
            let most = index_bytes(indices.len(), len) as f64;
            assert!(
                most < 1.4 * bytes.len() as f64 + 8.0,
                "{density}: {} of {most}",
                bytes.len()
            );
        }
    }
}
