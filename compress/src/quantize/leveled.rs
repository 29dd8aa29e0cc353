//! Planes of values that are one of a few levels: each symbol is the number of a level.

use crate::code::method::Code;
use crate::code::symbols::{SymbolPlane, Symbols};
use crate::error::Error;
use crate::quantize::method::{ValuePlane, ValueReader};
use crate::wire::Reader;

// Values per block on the stack.
const BLOCK: usize = 1024;
// Those of a codebook of four bits.
pub(crate) const MOST_LEVELS: usize = 16;

/// What was read of such a plane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeveledPlane<'a> {
    levels: Levels,
    scale_bytes: usize,
    symbols: SymbolPlane<'a>,
}

/// The values of the symbols; zero where there is no symbol.
#[derive(Debug, Clone, Copy)]
struct Levels {
    values: [f32; MOST_LEVELS],
    used: u8,
    offset: usize,
}

impl<'a> LeveledPlane<'a> {
    /// Reads `count` symbols, behind `scale_bytes` bytes that say what the levels are. Range: 2 to 16 levels.
    pub(crate) fn read(
        reader: &mut Reader<'a>,
        count: usize,
        code: Code,
        scale_bytes: usize,
        levels: &[f32],
    ) -> Result<Self, Error> {
        let mut values = [0.0; MOST_LEVELS];
        values.iter_mut().zip(levels).for_each(|(value, level)| *value = *level);
        let used = levels.len() as u8;
        let offset = reader.offset();
        Ok(Self {
            levels: Levels { values, used, offset },
            scale_bytes,
            symbols: SymbolPlane::read(reader, count, used.next_power_of_two().ilog2(), code)?,
        })
    }
}

impl<'a> ValuePlane<'a> for LeveledPlane<'a> {
    fn scale_bytes(&self) -> usize {
        self.scale_bytes
    }

    fn bound(&self, count: usize, code: Code) -> Result<f64, Error> {
        self.symbols.bound(count, code)
    }

    fn open(&self) -> Result<Box<dyn ValueReader + 'a>, Error> {
        let levels = self.levels;
        let symbols = self.symbols.open()?;
        Ok(Box::new(Values { levels, symbols }))
    }
}

#[derive(Debug)]
struct Values<'a> {
    levels: Levels,
    symbols: Symbols<'a>,
}

impl ValueReader for Values<'_> {
    fn read(&mut self, out: &mut [f32]) -> Result<(), Error> {
        let mut symbols = [0; BLOCK];
        let Levels { values, used, offset } = self.levels;
        for part in out.chunks_mut(BLOCK) {
            let symbols = &mut symbols[..part.len()];
            self.symbols.read(symbols);
            // A maximum is a vector instruction; the first that is too large would be a branch for each.
            if symbols.iter().fold(0, |most, &symbol| most.max(symbol)) >= used {
                let what = "symbol without a level".to_owned();
                return Err(Error::Corrupt { what, offset });
            }
            // So are choices among few.
            match (used, values) {
                (2, [low, high, ..]) => fill(part, symbols, |symbol| if symbol == 0 { low } else { high }),
                (3, [low, middle, high, ..]) => fill(part, symbols, |symbol| match symbol {
                    0 => low,
                    1 => middle,
                    _ => high,
                }),
                _ => fill(part, symbols, |symbol| values[usize::from(symbol) % MOST_LEVELS]),
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        self.symbols.finish()
    }
}

fn fill(out: &mut [f32], symbols: &[u8], level: impl Fn(u8) -> f32) {
    out.iter_mut()
        .zip(symbols)
        .for_each(|(value, &symbol)| *value = level(symbol));
}
