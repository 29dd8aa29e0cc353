//! Decoder of a section: bytes to values, block by block.

use std::sync::Arc;

use crate::code::gaps::{IndexPlane, support_bound};
use crate::error::Error;
use crate::layout::Shape;
use crate::quantize::method::KnownPlane;
use crate::recipe::Recipe;
use crate::reduce::form::Part;
use crate::reduce::planes::{BLOCK, Plane, Planes};
use crate::reduce::support;
use crate::rng::KeyedRng;
use crate::section::planes::{PlaneBounds, PlaneBytes};
use crate::section::sinks::MeasuringSink;
use crate::sink::Sink;
use crate::threads;
use crate::wire::Reader;

/// One section of a frame, with its planes still encoded.
#[derive(Debug, Clone)]
pub(crate) struct Section<'a> {
    recipe: Recipe,
    bytes: PlaneBytes,
    planes: Planes<'a>,
}

impl<'a> Section<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, shape: Shape, rng: KeyedRng) -> Result<Self, Error> {
        let offset = reader.offset();
        let recipe = Recipe::read(reader, shape)?;
        let mut bytes = PlaneBytes {
            recipe: reader.offset() - offset,
            ..PlaneBytes::default()
        };
        let mut parts = Vec::new();
        for (at, Part { indexed, shape: sent }) in recipe.reduce.parts(shape).into_iter().enumerate() {
            let start = reader.offset();
            let indices = if indexed {
                Some(IndexPlane::read(reader, sent.len(), shape, recipe.code)?)
            } else {
                None
            };
            bytes.indices += reader.offset() - start;
            let start = reader.offset();
            let rng = rng.part(at as u64);
            let values = recipe.quantize.plane(reader, sent, recipe.code, rng)?;
            bytes.scales += values.scale_bytes();
            bytes.values += reader.offset() - start - values.scale_bytes();
            let count = sent.len();
            parts.push(Plane { indices, values, count });
        }
        let planes = Planes {
            shape,
            rng,
            parts,
            offset,
        };
        Ok(Self { recipe, bytes, planes })
    }

    /// Takes what the parts decode to from their encoder, which knows it, instead of their planes.
    pub(crate) fn know(&mut self, known: Vec<Option<Arc<dyn KnownPlane>>>) {
        for (part, known) in self.planes.parts.iter_mut().zip(known) {
            part.values.know(known);
        }
    }

    pub(crate) fn recipe(&self) -> Recipe {
        self.recipe
    }

    pub(crate) fn bytes(&self) -> PlaneBytes {
        self.bytes
    }

    pub(crate) fn coded_values(&self) -> usize {
        self.planes.parts.iter().map(|part| part.count).sum()
    }

    /// Lower bounds of the sizes of the planes.
    pub(crate) fn bounds(&self) -> Result<PlaneBounds, Error> {
        let mut bounds = PlaneBounds::default();
        for Plane { indices, values, count } in &self.planes.parts {
            bounds.indices += indices.map_or(0.0, |_| support_bound(self.planes.shape.len(), *count) / 8.0);
            let (scales, values) = values.bounds()?;
            bounds.scales += scales;
            bounds.values += values;
        }
        Ok(bounds)
    }

    /// Decodes block by block into `sink`; fails on a value that is not finite.
    pub(crate) fn decode(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        self.recipe.reduce.decode(&self.planes, sink)
    }

    /// Decodes into `sink`; the result does not depend on `threads`. With several threads, a support takes eight bytes
    /// of memory per value.
    pub(crate) fn measure(&self, threads: usize, sink: &mut MeasuringSink<'_>) -> Result<(), Error> {
        let is_long = self.planes.parts.first().is_some_and(|part| part.count > BLOCK);
        if !(self.recipe.reduce.is_support() && is_long && sink.subtract && threads > 1) {
            return self.decode(sink);
        }
        let (indices, decoded) = support::whole(threads, &self.planes)?;
        // The same blocks as in `decode`, so that the sums round identically.
        for (indices, decoded) in indices.chunks(BLOCK).zip(decoded.chunks(BLOCK)) {
            sink.products.sparse(indices, decoded, sink.values, sink.other);
        }
        subtract_sparse(threads, &indices, &decoded, sink.values);
        Ok(())
    }
}

/// Subtracts `decoded` at ascending `indices`; each thread handles a range of `values`.
fn subtract_sparse(threads: usize, indices: &[u32], decoded: &[f32], values: &mut [f32]) {
    let size = values.len().div_ceil(threads);
    threads::map(
        values.chunks_mut(size).enumerate().collect(),
        threads,
        |(at, values): (usize, &mut [f32])| {
            let first = at * size;
            let place = |end: usize| indices.partition_point(|&index| (index as usize) < end);
            let range = place(first)..place(first + values.len());
            for (&index, &decoded) in indices[range.clone()].iter().zip(&decoded[range]) {
                values[index as usize - first] -= decoded;
            }
        },
    );
}
