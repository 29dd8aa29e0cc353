//! Encoder: values to scales and levels.

use crate::code::method::Code;
use crate::code::symbols::encode_symbols;
use crate::code::words::encode_words;
use crate::finite::largest;
use crate::quantize::method::Size;
use crate::quantize::numbers::sum_of_squares;
use crate::quantize::rotated::pieces::{LONGEST, Signs, levels, piece, pieces};
use crate::quantize::rotated::{Rotated, Scale, hadamard};
use crate::rng::KeyedRng;

// Independent sums, so that the compiler vectorizes.
const LANES: usize = 8;

impl Rotated {
    /// Appends the planes of `values`, which are finite.
    pub(crate) fn encode_planes(self, values: &[f32], code: Code, rng: KeyedRng, out: &mut Vec<u8>) -> Size {
        let signs = Signs::new(rng);
        let levels = levels(self.bits);
        let mut symbols = vec![0; values.len()];
        let mut scales = Vec::with_capacity(pieces(values.len()));
        let mut buffer = vec![0.0; values.len().min(LONGEST)];
        let mut start = 0;
        while start < values.len() {
            let end = start + piece(values.len() - start);
            let x = &values[start..end];
            let y = &mut buffer[..end - start];
            let unit = rotate(x, start, signs, y);
            let scale = self.piece(y, unit, &levels, &mut symbols[start..end]);
            scales.push(scale.to_le_bytes());
            start = end;
        }
        let plain = scales.len() * 4 + (values.len() * self.bits as usize).div_ceil(8);
        let bound = encode_words(scales.into_iter(), code, out) + encode_symbols(&symbols, self.bits, code, out);
        Size::new(plain as u64, bound)
    }

    /// Fills `symbols` for the rotated values `y * unit / sqrt(n)`; returns the scale on the wire.
    fn piece(self, y: &[f32], unit: f32, levels: &[f32; 16], symbols: &mut [u8]) -> f32 {
        let count = y.len() as f64;
        let squares = sum_of_squares(y);
        if squares == 0.0 {
            symbols.fill(1 << (self.bits - 1));
            return 0.0;
        }
        nearest(y, (count / squares).sqrt() as f32, &levels[..1 << self.bits], symbols);
        let (cross, norm) = products(y, levels, symbols);
        // Divided by sqrt(n) twice: once because y is not normalized, once because the wire has S / sqrt(n).
        let scale = match self.scale {
            Scale::Least => cross / norm,
            Scale::Unbiased => squares / cross,
        } / count;
        // A decoded value is at most the norm of the piece, so this limit keeps it finite. It only binds near the end
        // of the range.
        let most = f64::from(f32::MAX) * (1.0 - 1e-4) / (norm * count).sqrt().max(1.0);
        (scale * f64::from(unit)).min(most) as f32
    }
}

/// Fills `y` with the transform of the values times their signs, divided by the largest magnitude; returns that
/// magnitude. The division keeps the sums finite.
fn rotate(values: &[f32], start: usize, signs: Signs, y: &mut [f32]) -> f32 {
    let unit = largest(values);
    if unit == 0.0 {
        y.fill(0.0);
        return unit;
    }
    y.iter_mut().zip(values).for_each(|(y, value)| *y = value / unit);
    signs.apply(start, y);
    hadamard::transform(y);
    unit
}

/// Fills `symbols` with the nearest level of each `y * factor`; the upper one on a tie.
fn nearest(y: &[f32], factor: f32, levels: &[f32], symbols: &mut [u8]) {
    let middle = |at: usize| (levels[at] + levels[at + 1]) / 2.0;
    match levels.len() {
        2 => passed::<1>(y, factor, &std::array::from_fn(middle), symbols),
        4 => passed::<3>(y, factor, &std::array::from_fn(middle), symbols),
        8 => passed::<7>(y, factor, &std::array::from_fn(middle), symbols),
        _ => passed::<15>(y, factor, &std::array::from_fn(middle), symbols),
    }
}

/// The symbol is the number of `middles` that `y * factor` reaches: branch-free, so that it vectorizes.
#[inline(never)]
fn passed<const N: usize>(y: &[f32], factor: f32, middles: &[f32; N], symbols: &mut [u8]) {
    let count = |y: f32| {
        middles
            .iter()
            .map(|&middle| i32::from(y * factor >= middle))
            .sum::<i32>() as u8
    };
    let (groups, rest) = y.as_chunks::<LANES>();
    let (symbol_groups, symbol_rest) = symbols.as_chunks_mut::<LANES>();
    for (y, symbols) in groups.iter().zip(symbol_groups) {
        let mut counts = [0i32; LANES];
        for &middle in middles {
            for lane in 0..LANES {
                counts[lane] += i32::from(y[lane] * factor >= middle);
            }
        }
        *symbols = counts.map(|count| count as u8);
    }
    symbol_rest
        .iter_mut()
        .zip(rest)
        .for_each(|(symbol, &y)| *symbol = count(y));
}

/// `<c, y>` and `||c||^2`, summed in a fixed order so that every machine gets the same bits.
#[inline(never)]
fn products(y: &[f32], levels: &[f32; 16], symbols: &[u8]) -> (f64, f64) {
    let mut cross = [0.0f64; 4];
    let mut norm = [0.0f64; 4];
    for (y, symbols) in y.chunks(4).zip(symbols.chunks(4)) {
        for (((y, &symbol), cross), norm) in y.iter().zip(symbols).zip(&mut cross).zip(&mut norm) {
            let level = f64::from(levels[usize::from(symbol & 15)]);
            *cross += level * f64::from(*y);
            *norm += level * level;
        }
    }
    (cross.iter().sum(), norm.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::laws::gaussian;

    #[test]
    fn symbols_are_of_the_nearest_levels() {
        let values = gaussian(4096, 1);
        for bits in 1..=4 {
            let levels = levels(bits);
            let levels = &levels[..1 << bits];
            let mut symbols = vec![0; values.len()];
            nearest(&values, 1.5, levels, &mut symbols);
            for (value, &symbol) in values.iter().zip(&symbols) {
                let off = |level: &f32| (value * 1.5 - level).abs();
                let least = levels.iter().map(off).fold(f32::MAX, f32::min);
                assert!(off(&levels[usize::from(symbol)]) <= least + 1e-6);
            }
        }
    }
}
