//! Decoder: levels to values.

use crate::code::levels::{LevelPlane, Levels};
use crate::code::method::Code;
use crate::error::Error;
use crate::layout::Shape;
use crate::quantize::method::{ValuePlane, ValueReader};
use crate::quantize::numbers::read_scale;
use crate::simd::vectorized;
use crate::wire::Reader;

// Levels per block on the stack.
const BLOCK: usize = 1024;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plane<'a> {
    step: f32,
    mean: f32,
    levels: LevelPlane<'a>,
}

impl<'a> Plane<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, shape: Shape, code: Code) -> Result<Self, Error> {
        let step = read_scale(reader, "step")?;
        if !step.is_normal() {
            return Err(reader.corrupt("step"));
        }
        let mean = read_scale(reader, "mean of level one")?;
        if mean == 0.0 || mean > 2.0 * step {
            return Err(reader.corrupt("mean of level one"));
        }
        Ok(Self {
            step,
            mean,
            levels: LevelPlane::read(reader, shape, code)?,
        })
    }
}

impl<'a> ValuePlane<'a> for Plane<'a> {
    fn scale_bytes(&self) -> usize {
        8
    }

    fn bound(&self, count: usize, _: Code) -> Result<f64, Error> {
        self.levels.bound(count)
    }

    fn open(&self) -> Result<Box<dyn ValueReader + 'a>, Error> {
        Ok(Box::new(Values {
            step: self.step,
            mean: self.mean,
            levels: self.levels.open()?,
        }))
    }
}

#[derive(Debug)]
pub(crate) struct Values<'a> {
    step: f32,
    mean: f32,
    levels: Levels<'a>,
}

impl ValueReader for Values<'_> {
    fn read(&mut self, out: &mut [f32]) -> Result<(), Error> {
        let step = self.step;
        let mean = self.mean;
        if let Levels::Context { levels, .. } = &mut self.levels {
            // Level zero decodes to zero times the step.
            out.fill(0.0);
            vectorized(
                #[inline(always)]
                || levels.read(out.len(), |at, level| out[at] = decoded(level, step, mean)),
            );
            return Ok(());
        }
        let mut levels = [0; BLOCK];
        for part in out.chunks_mut(BLOCK) {
            let levels = &mut levels[..part.len()];
            self.levels.read(levels)?;
            values(levels, step, mean, part);
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        self.levels.finish()
    }
}

pub(crate) fn values(levels: &[i32], step: f32, mean: f32, out: &mut [f32]) {
    vectorized(
        #[inline(always)]
        || {
            for (value, &level) in out.iter_mut().zip(levels) {
                *value = decoded(level, step, mean);
            }
        },
    );
}

#[inline(always)]
pub(crate) fn decoded(level: i32, step: f32, mean: f32) -> f32 {
    let unit = if (level == 1) | (level == -1) { mean } else { step };
    level as f32 * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_means_out_of_range_are_refused() {
        let read = |step: f32, mean: f32| {
            let mut bytes = [step.to_le_bytes(), mean.to_le_bytes()].concat();
            bytes.push(0);
            Plane::read(&mut Reader::new(&bytes), Shape::row(3), Code::Pack).map(|_| ())
        };
        assert_eq!(read(1.0, 2.0), Ok(()));
        assert_eq!(read(f32::MAX, f32::MAX), Ok(()));
        assert_eq!(read(f32::MIN_POSITIVE, f32::MIN_POSITIVE / 2.0), Ok(()));
        for (step, mean) in [
            (0.0, 0.0),
            (1.0, 0.0),
            (1.0, 2.1),
            (-1.0, 1.0),
            (1.0, -1.0),
            (1e-40, 1e-40),
        ] {
            assert!(
                matches!(read(step, mean), Err(Error::Corrupt { .. })),
                "{step:e} {mean:e}"
            );
        }
        for (step, mean) in [(f32::INFINITY, 1.0), (1.0, f32::NAN)] {
            assert!(matches!(read(step, mean), Err(Error::NotFinite(_))));
        }
    }
}
