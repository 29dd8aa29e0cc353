//! One encoded tensor: its recipe, then its planes. Here the three slots are put one after the other, and undone.

use crate::Error;
use crate::code::{Code, IndexPlane, encode_indices, support_bound};
use crate::encoder::Stages;
use crate::layout::Shape;
use crate::quantize::{QuantizeSpec, ValuePlane};
use crate::recipe::Recipe;
use crate::reduce::Reduce;
use crate::rng::Draws;
use crate::spec::Method;
use crate::wire::{Reader, Writer};

/// Values decoded at a time.
const BLOCK: usize = 4096;

/// Appends the section of `values`, which are finite and not empty.
pub(crate) fn encode(values: &[f32], shape: Shape, method: &Method, draws: Draws, out: &mut Vec<u8>) -> Stages {
    let start = out.len();
    let stages = encode_as(values, shape, method, draws, out);
    let exact = 1 + values.len() * 4;
    if out.len() - start <= exact {
        return stages;
    }
    out.truncate(start);
    encode_as(values, shape, &Method::default(), draws, out)
}

fn encode_as(values: &[f32], shape: Shape, method: &Method, draws: Draws, out: &mut Vec<u8>) -> Stages {
    let start = out.len();
    let support = support(values, method);
    let gathered: Option<Vec<f32>> = support
        .as_ref()
        .map(|support| support.iter().map(|&index| values[index as usize]).collect());
    let kept = gathered.as_deref().unwrap_or(values);
    let reduce = support.as_ref().map_or(Reduce::Keep, |support| Reduce::Support {
        k: support.len() as u32,
    });
    let kept_shape = if support.is_some() {
        Shape::row(kept.len())
    } else {
        shape
    };
    Recipe {
        reduce,
        quantize: method.quantize.recipe(),
        code: method.code,
    }
    .write(&mut Writer(out));

    let mut stages = Stages {
        fp32: values.len() as u64 * 4,
        ..Stages::default()
    };
    if let Some(support) = &support {
        stages.reduced = support.len() as u64 * 4;
        stages.bound = support_bound(values.len(), support.len()) / 8.0;
    }
    stages.quantized = stages.reduced;
    stages.reduced += kept.len() as u64 * 4;
    if !kept.is_empty() {
        if let Some(support) = &support {
            encode_indices(support, method.code, out);
        }
        let size = method.quantize.encode(kept, kept_shape, method.code, draws, out);
        stages.quantized += size.plain;
        stages.bound += size.bound;
    }
    stages.coded = (out.len() - start) as u64;
    stages
}

/// Indices of the values to send. A tensor of zeros is an empty support, whatever was asked, unless it was to be sent
/// as fp32 FedAvg sends it.
fn support(values: &[f32], method: &Method) -> Option<Vec<u32>> {
    let plain = method.quantize == QuantizeSpec::Exact && method.code == Code::Pack;
    if !plain && values.iter().all(|value| value.to_bits() == 0) {
        return Some(Vec::new());
    }
    method.reduce.support(values)
}

/// Where decoded values go.
pub(crate) trait Sink {
    /// Takes the values at `start..start + values.len()`.
    fn dense(&mut self, start: usize, values: &[f32]);

    /// Takes the values at `indices`, which are ascending; both slices have one length.
    fn sparse(&mut self, indices: &[u32], values: &[f32]);
}

/// One tensor of a frame, its planes found but not decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section<'a> {
    recipe: Recipe,
    count: usize,
    bytes: PlaneBytes,
    planes: Option<(Option<IndexPlane<'a>>, ValuePlane<'a>)>,
}

/// Bytes of one section by what they are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaneBytes {
    /// The recipe.
    pub recipe: usize,
    /// The indices.
    pub indices: usize,
    /// The scales.
    pub scales: usize,
    /// The values.
    pub values: usize,
}

impl PlaneBytes {
    /// The whole section.
    pub fn total(&self) -> usize {
        self.recipe + self.indices + self.scales + self.values
    }
}

/// Bytes that the planes of one section could not go below: the order-0 entropy of what is entropy coded, for indices the
/// logarithm of the number of supports of the same size, the size itself of what is packed as asked.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PlaneBounds {
    /// Of the indices.
    pub indices: f64,
    /// Of the scales.
    pub scales: f64,
    /// Of the values.
    pub values: f64,
}

impl PlaneBounds {
    /// The whole section.
    pub fn total(&self) -> f64 {
        self.indices + self.scales + self.values
    }
}

impl<'a> Section<'a> {
    /// Takes the section of a tensor of `len` values from the front of `reader`.
    pub(crate) fn read(reader: &mut Reader<'a>, shape: Shape, draws: Draws) -> Result<Self, Error> {
        let (start, len) = (reader.offset(), shape.len());
        let recipe = Recipe::read(reader, shape)?;
        let mut bytes = PlaneBytes {
            recipe: reader.offset() - start,
            ..PlaneBytes::default()
        };
        let sent = match recipe.reduce {
            Reduce::Keep => shape,
            Reduce::Support { k } => Shape::row(k as usize),
            _ => return Err(reader.corrupt("reduce")),
        };
        let count = sent.len();
        if count == 0 {
            return Ok(Self {
                recipe,
                count,
                bytes,
                planes: None,
            });
        }
        let start = reader.offset();
        let indices = match recipe.reduce {
            Reduce::Support { .. } => Some(IndexPlane::read(reader, count, len)?),
            _ => None,
        };
        bytes.indices = reader.offset() - start;
        let start = reader.offset();
        let values = ValuePlane::read(reader, sent, recipe.quantize, recipe.code, draws)?;
        bytes.scales = values.scale_bytes();
        bytes.values = reader.offset() - start - bytes.scales;
        Ok(Self {
            recipe,
            count,
            bytes,
            planes: Some((indices, values)),
        })
    }

    pub(crate) fn recipe(&self) -> Recipe {
        self.recipe
    }

    pub(crate) fn bytes(&self) -> PlaneBytes {
        self.bytes
    }

    /// Bounds of the planes of a tensor of `len` values.
    pub(crate) fn bounds(&self, len: usize) -> Result<PlaneBounds, Error> {
        let Some((indices, values)) = &self.planes else {
            return Ok(PlaneBounds::default());
        };
        let (scales, values) = values.bounds(self.count, self.recipe.code)?;
        let indices = indices.map_or(0.0, |_| support_bound(len, self.count) / 8.0);
        Ok(PlaneBounds {
            indices,
            scales,
            values,
        })
    }

    /// Decodes block by block into `sink`, each value finite.
    pub(crate) fn decode(&self, sink: &mut impl Sink) -> Result<(), Error> {
        let Some((indices, values)) = &self.planes else {
            return Ok(());
        };
        let mut values = values.open()?;
        let mut indices = indices.as_ref().map(IndexPlane::open).transpose()?;
        let count = self.count;
        // Not on the stack: a server decodes on many threads, and each would keep the pages.
        let mut buffer = vec![0.0; BLOCK.min(count)];
        let mut places = vec![0; indices.as_ref().map_or(0, |_| BLOCK.min(count))];
        for start in (0..count).step_by(BLOCK) {
            let block = &mut buffer[..BLOCK.min(count - start)];
            values.read(block)?;
            if !all_finite(block) {
                return Err(Error::NotFinite("decoded value".to_owned()));
            }
            match &mut indices {
                None => sink.dense(start, block),
                Some(indices) => {
                    let places = &mut places[..block.len()];
                    indices.read(places)?;
                    sink.sparse(places, block);
                }
            }
        }
        indices.map_or(Ok(()), |indices| indices.finish())?;
        values.finish()
    }
}

/// Whether no value is NaN or infinite.
pub(crate) fn all_finite(values: &[f32]) -> bool {
    const INFINITY: i32 = f32::INFINITY.to_bits() as i32;
    let not_finite = |value: &f32| (value.to_bits() & 0x7fff_ffff) as i32 >= INFINITY;
    !values.iter().fold(false, |any, value| any | not_finite(value))
}
