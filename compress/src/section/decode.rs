//! A section's bytes to values, block by block.

use crate::code::gaps::{IndexPlane, Indices, support_bound};
use crate::error::Error;
use crate::finite::all_finite;
use crate::layout::Shape;
use crate::quantize::method::ValueReader;
use crate::quantize::recipe::FoundPlane;
use crate::recipe::Recipe;
use crate::reduce::{Reduce, components, count_sketch, low_rank, projection, random_k};
use crate::rng::KeyedRng;
use crate::section::parts::{Part, parts};
use crate::section::planes::{PlaneBounds, PlaneBytes};
use crate::section::sinks::{Measured, Sink};
use crate::threads::{self, both};
use crate::wire::Reader;

/// Values handled at a time.
const BLOCK: usize = 4096;

/// One tensor of a frame, its planes found but not decoded.
#[derive(Debug, Clone)]
pub(crate) struct Section<'a> {
    recipe: Recipe,
    shape: Shape,
    rng: KeyedRng,
    bytes: PlaneBytes,
    planes: Vec<(Option<IndexPlane<'a>>, FoundPlane<'a>)>,
    offset: usize,
}

impl<'a> Section<'a> {
    /// Takes the section of a tensor of `shape` from the front of `reader`.
    pub(crate) fn read(reader: &mut Reader<'a>, shape: Shape, rng: KeyedRng) -> Result<Self, Error> {
        let offset = reader.offset();
        let recipe = Recipe::read(reader, shape)?;
        let mut bytes = PlaneBytes {
            recipe: reader.offset() - offset,
            ..PlaneBytes::default()
        };
        let mut planes = Vec::new();
        for (at, Part { indexed, shape: sent }) in parts(recipe.reduce, shape).into_iter().enumerate() {
            let start = reader.offset();
            let indices = match indexed {
                true => Some(IndexPlane::read(reader, sent.len(), shape, recipe.code)?),
                false => None,
            };
            bytes.indices += reader.offset() - start;
            let start = reader.offset();
            let rng = rng.part(at as u64);
            let values = recipe.quantize.plane(reader, sent, recipe.code, rng)?;
            bytes.scales += values.scale_bytes();
            bytes.values += reader.offset() - start - values.scale_bytes();
            planes.push((indices, values));
        }
        Ok(Self {
            recipe,
            shape,
            rng,
            bytes,
            planes,
            offset,
        })
    }

    pub(crate) fn recipe(&self) -> Recipe {
        self.recipe
    }

    pub(crate) fn bytes(&self) -> PlaneBytes {
        self.bytes
    }

    /// What the planes could not go below.
    pub(crate) fn bounds(&self) -> Result<PlaneBounds, Error> {
        let mut bounds = PlaneBounds::default();
        for ((indices, values), part) in self.planes.iter().zip(parts(self.recipe.reduce, self.shape)) {
            let count = part.shape.len();
            bounds.indices += indices.map_or(0.0, |_| support_bound(self.shape.len(), count) / 8.0);
            let (scales, values) = values.bounds()?;
            bounds.scales += scales;
            bounds.values += values;
        }
        Ok(bounds)
    }

    /// Decodes block by block into `sink`, each value finite.
    pub(crate) fn decode(&self, sink: &mut impl Sink) -> Result<(), Error> {
        let len = self.shape.len();
        match (self.recipe.reduce, self.planes.as_slice()) {
            (_, []) => Ok(()),
            (Reduce::Keep, [(_, values)]) => blocks(values, len, |start, block| {
                sink.dense(start, block);
                Ok(())
            }),
            (Reduce::RandomK { k }, [(_, values)]) => {
                let places = random_k::Places::new(self.rng, len);
                let mut indices = vec![0; BLOCK.min(k as usize)];
                blocks(values, k as usize, |start, block| {
                    let indices = &mut indices[..block.len()];
                    places.fill(start, indices);
                    sink.sparse(indices, block);
                    Ok(())
                })
            }
            (Reduce::Support { k }, [(Some(indices), values)]) => {
                let mut sparse = Sparse::open(indices, values, k as usize)?;
                while sparse.next_block()? {
                    sink.sparse(sparse.indices(), sparse.values());
                }
                sparse.finish()
            }
            (Reduce::Components { rank }, [(_, p), (_, q), (_, rest)]) => {
                let (rank, Shape { rows, cols }) = (rank as usize, self.shape);
                let (p, mut q) = (whole(p, rows * rank)?, whole(q, rank * cols)?);
                components::normalise(&mut q, cols);
                let mut product = vec![0.0; BLOCK.min(len)];
                blocks(rest, len, |start, block| {
                    let product = &mut product[..block.len()];
                    low_rank::multiply(&p, &q, rank, cols, start, product);
                    product.iter_mut().zip(block).for_each(|(sum, value)| *sum += value);
                    check(product)?;
                    sink.dense(start, product);
                    Ok(())
                })
            }
            (Reduce::LowRank { rank, k }, planes) => self.low_rank(rank as usize, k as usize, planes, sink),
            (Reduce::CountSketch { rows, cols, threshold }, [(_, values)]) => {
                let table = whole(values, rows as usize * cols as usize)?;
                let estimates = count_sketch::Estimates::new(&table, rows, cols as usize, self.rng);
                dense_blocks(len, sink, |start, block| {
                    estimates.fill(start, block);
                    let keep = |value: &mut f32| *value = if value.abs() >= threshold { *value } else { 0.0 };
                    block.iter_mut().for_each(keep);
                    Ok(())
                })
            }
            (Reduce::Projection { k }, [(_, values)]) => {
                let mut open = values.open()?;
                let mut sums = vec![0.0; projection::block_sums(projection::BLOCK.min(len), k as usize)];
                let mut out = vec![0.0; projection::BLOCK.min(len)];
                for (at, start) in (0..len).step_by(projection::BLOCK).enumerate() {
                    let block = &mut out[..projection::BLOCK.min(len - start)];
                    let sums = &mut sums[..projection::block_sums(block.len(), k as usize)];
                    open.read(sums)?;
                    check(sums)?;
                    projection::unproject(sums, at, self.rng, block);
                    check(block)?;
                    sink.dense(start, block);
                }
                open.finish()
            }
            _ => Err(self.corrupt("planes")),
        }
    }

    /// Decodes into `sink`, with the same result on any number of threads. On more than one it takes eight bytes for each
    /// value of a support.
    pub(crate) fn measure(&self, threads: usize, sink: &mut Measured<'_>) -> Result<(), Error> {
        match (self.recipe.reduce, self.planes.as_slice()) {
            (Reduce::Support { k }, [(Some(indices), plane)]) if sink.subtract && threads > 1 && k as usize > BLOCK => {
                let read = || {
                    let (mut open, mut all) = (indices.open()?, vec![0; k as usize]);
                    open.read(&mut all).and_then(|()| open.finish()).map(|()| all)
                };
                let (indices, decoded) = both(threads, read, || whole(plane, k as usize));
                let (indices, decoded) = (indices?, decoded?);
                // The blocks of decoding, so that the sums are rounded alike.
                for (indices, decoded) in indices.chunks(BLOCK).zip(decoded.chunks(BLOCK)) {
                    sink.products.sparse(indices, decoded, sink.values, sink.other);
                }
                subtract_sparse(threads, &indices, &decoded, sink.values);
                Ok(())
            }
            _ => self.decode(sink),
        }
    }

    /// Row by row, so that the remainder is added before anything reaches the sink.
    fn low_rank(
        &self,
        rank: usize,
        k: usize,
        planes: &[(Option<IndexPlane<'a>>, FoundPlane<'a>)],
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        let Shape { rows, cols } = self.shape;
        let [(_, p), (_, q), remainder @ ..] = planes else {
            return Err(self.corrupt("planes"));
        };
        let (p, q) = (whole(p, rows * rank)?, whole(q, rank * cols)?);
        let mut remainder = match remainder {
            [(Some(indices), values)] => Some(Sparse::open(indices, values, k)?),
            _ => None,
        };
        dense_blocks(rows * cols, sink, |start, block| {
            low_rank::multiply(&p, &q, rank, cols, start, block);
            match &mut remainder {
                Some(remainder) => remainder.add_to(start, block),
                None => Ok(()),
            }
        })?;
        remainder.map_or(Ok(()), |remainder| remainder.finish())
    }

    fn corrupt(&self, what: &str) -> Error {
        Error::Corrupt {
            what: what.to_owned(),
            offset: self.offset,
        }
    }
}

/// Subtracts `decoded` at ascending `indices`, each thread in a range of `values`.
fn subtract_sparse(threads: usize, indices: &[u32], decoded: &[f32], values: &mut [f32]) {
    let size = values.len().div_ceil(threads);
    let part = |(at, values): (usize, &mut [f32])| {
        let first = at * size;
        let place = |end: usize| indices.partition_point(|&index| (index as usize) < end);
        let range = place(first)..place(first + values.len());
        for (&index, &decoded) in indices[range.clone()].iter().zip(&decoded[range]) {
            values[index as usize - first] -= decoded;
        }
    };
    threads::map(values.chunks_mut(size).enumerate().collect(), threads, part);
}

fn check(values: &[f32]) -> Result<(), Error> {
    if all_finite(values) {
        return Ok(());
    }
    Err(Error::NotFinite("decoded value".to_owned()))
}

/// Hands the `count` values of a plane to `take`, a block at a time, with the number of those before.
fn blocks(
    plane: &FoundPlane<'_>,
    count: usize,
    mut take: impl FnMut(usize, &[f32]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut values = plane.open()?;
    // Not on the stack: a server decodes on many threads, and each would keep the pages.
    let mut buffer = vec![0.0; BLOCK.min(count)];
    for start in (0..count).step_by(BLOCK) {
        let block = &mut buffer[..BLOCK.min(count - start)];
        values.read(block)?;
        check(block)?;
        take(start, block)?;
    }
    values.finish()
}

/// All values of a plane.
fn whole(plane: &FoundPlane<'_>, count: usize) -> Result<Vec<f32>, Error> {
    let mut all = Vec::with_capacity(count);
    blocks(plane, count, |_, block| {
        all.extend_from_slice(block);
        Ok(())
    })?;
    Ok(all)
}

/// Fills `len` values block by block, and hands them on.
fn dense_blocks(
    len: usize,
    sink: &mut impl Sink,
    mut fill: impl FnMut(usize, &mut [f32]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut buffer = vec![0.0; BLOCK.min(len)];
    for start in (0..len).step_by(BLOCK) {
        let block = &mut buffer[..BLOCK.min(len - start)];
        fill(start, block)?;
        check(block)?;
        sink.dense(start, block);
    }
    Ok(())
}

/// Indices and values from the front of their planes, a block of both at a time.
struct Sparse<'a> {
    indices: Indices<'a>,
    values: Box<dyn ValueReader + 'a>,
    left: usize,
    block: (Vec<u32>, Vec<f32>),
    /// Taken of the block.
    taken: usize,
}

impl<'a> Sparse<'a> {
    fn open(indices: &IndexPlane<'a>, values: &FoundPlane<'a>, count: usize) -> Result<Self, Error> {
        Ok(Self {
            indices: indices.open()?,
            values: values.open()?,
            left: count,
            block: (Vec::new(), Vec::new()),
            taken: 0,
        })
    }

    /// Reads the next block; whether there was one.
    fn next_block(&mut self) -> Result<bool, Error> {
        let count = BLOCK.min(self.left);
        self.block.0.resize(count, 0);
        self.block.1.resize(count, 0.0);
        (self.left, self.taken) = (self.left - count, 0);
        self.values.read(&mut self.block.1)?;
        check(&self.block.1)?;
        self.indices.read(&mut self.block.0)?;
        Ok(count > 0)
    }

    fn indices(&self) -> &[u32] {
        &self.block.0
    }

    fn values(&self) -> &[f32] {
        &self.block.1
    }

    /// Adds those at `start..start + out.len()`, all before having been taken.
    fn add_to(&mut self, start: usize, out: &mut [f32]) -> Result<(), Error> {
        loop {
            if self.taken == self.block.0.len() && !self.next_block()? {
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

    fn finish(&self) -> Result<(), Error> {
        self.indices.finish()?;
        self.values.finish()
    }
}
