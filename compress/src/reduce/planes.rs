//! The planes of a section, found but not decoded; and how a form decodes them, a block at a time.

use crate::code::gaps::{IndexPlane, Indices};
use crate::error::Error;
use crate::finite::all_finite;
use crate::layout::Shape;
use crate::quantize::method::ValueReader;
use crate::quantize::recipe::FoundPlane;
use crate::rng::KeyedRng;
use crate::sink::Sink;

// Values handled at a time.
pub(crate) const BLOCK: usize = 4096;

#[derive(Debug, Clone)]
pub(crate) struct Planes<'a> {
    /// Of the tensor.
    pub(crate) shape: Shape,
    pub(crate) rng: KeyedRng,
    /// Those with values.
    pub(crate) parts: Vec<Plane<'a>>,
    pub(crate) offset: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Plane<'a> {
    pub(crate) indices: Option<IndexPlane<'a>>,
    pub(crate) values: FoundPlane<'a>,
    pub(crate) count: usize,
}

impl<'a> Planes<'a> {
    pub(crate) fn part(&self, at: usize) -> Result<&Plane<'a>, Error> {
        self.parts.get(at).ok_or_else(|| self.corrupt())
    }

    /// Indices and values of the part `at`.
    pub(crate) fn sparse(&self, at: usize) -> Result<Sparse<'a>, Error> {
        let Plane { indices, values, count } = self.part(at)?;
        Ok(Sparse {
            indices: indices.ok_or_else(|| self.corrupt())?.open()?,
            values: values.open()?,
            left: *count,
            block: (Vec::new(), Vec::new()),
            taken: 0,
        })
    }

    /// Fills all values of the tensor block by block, and hands them to `sink`.
    pub(crate) fn fill(
        &self,
        sink: &mut dyn Sink,
        mut fill: impl FnMut(usize, &mut [f32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let len = self.shape.len();
        let mut buffer = vec![0.0; BLOCK.min(len)];
        for start in (0..len).step_by(BLOCK) {
            let block = &mut buffer[..BLOCK.min(len - start)];
            fill(start, block)?;
            check(block)?;
            sink.dense(start, block);
        }
        Ok(())
    }

    fn corrupt(&self) -> Error {
        Error::Corrupt {
            what: "planes".to_owned(),
            offset: self.offset,
        }
    }
}

impl Plane<'_> {
    /// Hands the values to `take`, a block at a time, with the number of those before.
    pub(crate) fn blocks(&self, mut take: impl FnMut(usize, &[f32]) -> Result<(), Error>) -> Result<(), Error> {
        let mut values = self.values.open()?;
        // Not on the stack: a server decodes on many threads, and each would keep the pages.
        let mut buffer = vec![0.0; BLOCK.min(self.count)];
        for start in (0..self.count).step_by(BLOCK) {
            let block = &mut buffer[..BLOCK.min(self.count - start)];
            values.read(block)?;
            check(block)?;
            take(start, block)?;
        }
        values.finish()
    }

    pub(crate) fn whole(&self) -> Result<Vec<f32>, Error> {
        let mut all = Vec::with_capacity(self.count);
        self.blocks(|_, block| {
            all.extend_from_slice(block);
            Ok(())
        })?;
        Ok(all)
    }
}

/// Indices, and as many values.
type Block<'b> = (&'b [u32], &'b [f32]);

/// Indices and values from the front of their planes, a block of both at a time.
pub(crate) struct Sparse<'a> {
    indices: Indices<'a>,
    values: Box<dyn ValueReader + 'a>,
    left: usize,
    block: (Vec<u32>, Vec<f32>),
    /// Taken of the block.
    taken: usize,
}

impl Sparse<'_> {
    /// The next indices and their values; `None` after the last.
    pub(crate) fn next_block(&mut self) -> Result<Option<Block<'_>>, Error> {
        let count = BLOCK.min(self.left);
        self.block.0.resize(count, 0);
        self.block.1.resize(count, 0.0);
        (self.left, self.taken) = (self.left - count, 0);
        self.values.read(&mut self.block.1)?;
        check(&self.block.1)?;
        self.indices.read(&mut self.block.0)?;
        Ok((count > 0).then_some((&self.block.0, &self.block.1)))
    }

    /// Adds those at `start..start + out.len()`, all before having been taken.
    pub(crate) fn add_to(&mut self, start: usize, out: &mut [f32]) -> Result<(), Error> {
        loop {
            if self.taken == self.block.0.len() && self.next_block()?.is_none() {
                return Ok(());
            }
            while let Some(&index) = self.block.0.get(self.taken) {
                let Some(out) = (index as usize).checked_sub(start).and_then(|at| out.get_mut(at)) else {
                    return Ok(());
                };
                *out += self.block.1[self.taken];
                self.taken += 1;
            }
        }
    }

    pub(crate) fn finish(&self) -> Result<(), Error> {
        self.indices.finish()?;
        self.values.finish()
    }
}

/// Refuses values that are not finite.
pub(crate) fn check(values: &[f32]) -> Result<(), Error> {
    if all_finite(values) {
        return Ok(());
    }
    Err(Error::NotFinite("decoded value".to_owned()))
}
