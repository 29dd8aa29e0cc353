//! Trains fewer values than the model has: `w = w0 + P z`, where `P` is fixed by a seed and `z` starts at zero.
//!
//! `z` has a layout of its own, so that frames, residuals and model versions are those of a small model. `w` is a function of
//! `z`, `w0`, the [`SpaceSpec`] and the seed: this module computes it with integers and `+ - * /` and square roots of IEEE 754
//! only, in a fixed order, so server and clients get the same bits. The columns of `P` are orthonormal.
//!
//! ```text
//! trained tensor of w        tensor of z
//! fc1.weight [200, 784]      fc1.weight.z [14188]    shared = 16000: groups of weights
//!                            fc1.weight.z [8 * 7000] shared = 8000, blocks = 8, one after another: each has groups of its own
//!                            fc1.weight.z [200, 8]  lowrank = 8
//! fc1.bias [200]             fc1.bias.z [200]       lowrank: vectors, and matrices that are no larger, are trained whole;
//!                                                   with blocks, so is a tensor with as many shared values as weights
//! ```
//!
//! Buffers and counters are in both layouts.
//!
//! With blocks, a round trains the values of one block, in turn. One block alone bounds how far the model can move, however many
//! rounds there are; new directions in every round do not (random bases: Gressmann et al. 2020).

mod allot;
mod basis;
mod low_rank;
mod shared;
mod spec;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

pub use spec::{Basis, SpaceSpec};

use crate::error::Error;
use crate::layout::{Dtype, Layout, Role, Tensor, TensorSpec};
use crate::rng::KeyedRng;
use low_rank::LowRank;
use shared::Shared;

// End of the names of the tensors of `z`.
const END: &str = ".z";

/// The map from `z` to the weights of a model. Memory: at most two words for each weight, or half a word for each weight and
/// block.
#[derive(Debug, Clone, PartialEq)]
pub struct Space {
    full: Arc<Layout>,
    reduced: Arc<Layout>,
    blocks: usize,
    /// One for each trained tensor of `full`.
    tensors: Vec<TensorMap>,
}

/// The columns of `P` of one tensor.
#[derive(Debug, Clone, PartialEq)]
struct TensorMap {
    /// One for each block, or a single one that every block trains.
    maps: Vec<Map>,
    /// Its values in `w` and in `z`.
    w: Range<usize>,
    z: Range<usize>,
}

impl TensorMap {
    /// The map that `block` trains, and its values in `z`.
    fn trained(&self, block: usize) -> (&Map, Range<usize>) {
        let own = if self.maps.len() == 1 { 0 } else { block };
        (&self.maps[own], self.of(own))
    }

    /// All maps with their values in `z`.
    fn all(&self) -> impl Iterator<Item = (&Map, Range<usize>)> {
        self.maps.iter().enumerate().map(|(own, map)| (map, self.of(own)))
    }

    /// The values in `z` of one of `maps`.
    fn of(&self, own: usize) -> Range<usize> {
        let each = self.z.len() / self.maps.len();
        let first = self.z.start + own * each;
        first..first + each
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Map {
    Whole,
    Shared(Shared),
    LowRank(LowRank),
}

impl Space {
    /// The space of `spec` in the trained tensors of `full`, as `seed` draws it.
    ///
    /// # Errors
    /// `Usage` if a trained tensor is not `f32`, or the space does not suit the sizes of the tensors; the error names the key
    /// or the tensor.
    pub fn new(full: Arc<Layout>, spec: SpaceSpec, seed: u64) -> Result<Self, Error> {
        let trained: Vec<&Tensor> = full
            .tensors()
            .iter()
            .filter(|t| t.role == Role::Trained && t.len > 0)
            .collect();
        if let Some(other) = trained.iter().find(|tensor| tensor.dtype != Dtype::F32) {
            return Err(Error::Usage(format!(
                "tensor `{}` is {}; `train.space` trains F32 tensors only",
                other.name,
                other.dtype.name()
            )));
        }
        let kinds = match spec.checked()? {
            SpaceSpec::Shared { values, blocks } => shared_kinds(&trained, values as usize, blocks as usize)?,
            SpaceSpec::LowRank { rank, basis } => low_rank_kinds(&trained, rank as usize, basis)?,
        };
        let tensors = trained.iter().zip(&kinds).map(|(tensor, kind)| {
            let shape = kind.shape(tensor);
            TensorSpec::new(format!("{}{END}", tensor.name), &shape, Dtype::F32, Role::Trained)
        });
        let others = full.tensors().iter().filter(|tensor| tensor.role != Role::Trained);
        let reduced = Layout::of(tensors.chain(others.map(TensorSpec::from)))?;
        let places: BTreeMap<&str, &Tensor> = reduced.tensors().iter().map(|t| (t.name.as_str(), t)).collect();
        if let Some(twice) = full
            .tensors()
            .iter()
            .find(|t| t.role == Role::Trained && places.contains_key(&*t.name))
        {
            return Err(Error::Usage(format!(
                "tensor `{}` has the name of a tensor that `train.space` adds; rename it",
                twice.name
            )));
        }
        let tensors = trained
            .iter()
            .zip(&kinds)
            .filter_map(|(tensor, kind): (&&Tensor, &Kind)| {
                let z = places.get(&*format!("{}{END}", tensor.name))?;
                Some(TensorMap {
                    maps: kind.maps(tensor, seed),
                    w: tensor.offset..tensor.offset + tensor.len,
                    z: z.offset..z.offset + z.len,
                })
            })
            .collect();
        Ok(Self {
            reduced: Arc::new(reduced),
            blocks: spec.blocks() as usize,
            tensors,
            full,
        })
    }

    /// The tensors of the model: those of `w`.
    pub fn full(&self) -> &Arc<Layout> {
        &self.full
    }

    /// The tensors that travel: those of `z`, and the model's buffers and counters.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.reduced
    }

    /// Values of version 0: zeros, and the buffers and counters of `w0`. Shapes: `w0: [full.len()]`; returns `[layout.len()]`.
    pub fn first(&self, w0: &[f32]) -> Vec<f32> {
        let mut z = vec![0.0; self.reduced.trained().len()];
        z.extend_from_slice(&w0[self.full.trained().end..]);
        z
    }

    /// The block that `round`, from 1, trains: from 0 to below the number of blocks.
    pub fn block(&self, round: u64) -> usize {
        (round.saturating_sub(1) % self.blocks as u64) as usize
    }

    /// The values of `z` that `block` trains: one range for each trained tensor of [`Space::layout`], in its order.
    pub fn trained(&self, block: usize) -> Vec<Range<usize>> {
        let mut ranges: Vec<_> = self.tensors.iter().map(|tensor| tensor.trained(block).1).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        ranges
    }

    /// `w = w0 + P z`; buffers and counters are those of `z`. Shapes: `w0` and `w: [full.len()]`, `z: [layout.len()]`; of `w0`
    /// the trained values are enough.
    pub fn expand(&self, w0: &[f32], z: &[f32], w: &mut [f32]) {
        self.copy(w0, z, w);
        for tensor in &self.tensors {
            for (map, of) in tensor.all() {
                map.add_expanded(&z[of], &mut w[tensor.w.clone()]);
            }
        }
    }

    /// As [`Space::expand`] without the values that `block` trains; [`Space::add_block`] adds them. Shapes: as there.
    pub fn expand_others(&self, w0: &[f32], z: &[f32], block: usize, w: &mut [f32]) {
        self.copy(w0, z, w);
        for tensor in &self.tensors {
            let trained = tensor.trained(block).1;
            for (map, of) in tensor.all().filter(|(_, of)| *of != trained) {
                map.add_expanded(&z[of], &mut w[tensor.w.clone()]);
            }
        }
    }

    /// Adds `P z` of the values that `block` trains to `w`. Shapes: as [`Space::expand`].
    pub fn add_block(&self, z: &[f32], block: usize, w: &mut [f32]) {
        for tensor in &self.tensors {
            let (map, of) = tensor.trained(block);
            map.add_expanded(&z[of], &mut w[tensor.w.clone()]);
        }
    }

    /// `P^T g` of the values that `block` trains: the gradient with respect to them, from that with respect to the trained values
    /// of `w`. The others of `out` stay as they are. Shapes: `g: [full.trained().len()]`, `out: [layout.trained().len()]`.
    pub fn project(&self, g: &[f32], block: usize, out: &mut [f32]) {
        for tensor in &self.tensors {
            let (map, to) = tensor.trained(block);
            map.project(&g[tensor.w.clone()], &mut out[to]);
        }
    }

    /// The trained values of `w0`, and the buffers and counters of `z`.
    fn copy(&self, w0: &[f32], z: &[f32], w: &mut [f32]) {
        let trained = self.full.trained().end;
        w[..trained].copy_from_slice(&w0[..trained]);
        w[trained..].copy_from_slice(&z[self.reduced.trained().end..]);
    }
}

impl Map {
    fn add_expanded(&self, z: &[f32], w: &mut [f32]) {
        match self {
            Self::Whole => w.iter_mut().zip(z).for_each(|(w, z)| *w += z),
            Self::Shared(shared) => shared.add_expanded(z, w),
            Self::LowRank(low) => low.add_expanded(z, w),
        }
    }

    fn project(&self, g: &[f32], z: &mut [f32]) {
        match self {
            Self::Whole => z.copy_from_slice(g),
            Self::Shared(shared) => shared.project(g, z),
            Self::LowRank(low) => low.project(g, z),
        }
    }
}

enum Kind {
    Whole,
    Shared { values: usize, blocks: usize },
    LowRank(usize, Basis),
}

impl Kind {
    fn shape(&self, tensor: &Tensor) -> Vec<usize> {
        match self {
            Self::Whole => tensor.shape.clone(),
            Self::Shared { values, blocks } => vec![values * blocks],
            Self::LowRank(rank, _) => LowRank::values(tensor.matrix(), *rank).to_vec(),
        }
    }

    fn maps(&self, tensor: &Tensor, seed: u64) -> Vec<Map> {
        let rng = KeyedRng::new(seed, tensor.offset);
        match self {
            Self::Whole => vec![Map::Whole],
            Self::Shared { values, blocks } => (0..*blocks as u64)
                .map(|block| Map::Shared(Shared::new(tensor.len, *values, rng.part(BLOCKS * block))))
                .collect(),
            Self::LowRank(rank, basis) => vec![Map::LowRank(LowRank::new(tensor.matrix(), *rank, *basis, rng))],
        }
    }
}

// Block `b` draws from part `BLOCKS * b` of the tensor's generator. Part 1 of that draws the signs.
const BLOCKS: u64 = 2;

fn shared_kinds(trained: &[&Tensor], values: usize, blocks: usize) -> Result<Vec<Kind>, Error> {
    let sizes: Vec<usize> = trained.iter().map(|tensor| tensor.len).collect();
    let (least, most) = (sizes.len(), sizes.iter().sum::<usize>());
    if !(least..=most).contains(&values) {
        return Err(Error::Usage(format!(
            "`train.space.shared` is {values}, but must be {least} to {most}: from one value for each trained tensor to the \
             values of the model"
        )));
    }
    let allotted = allot::allot(values, &sizes).into_iter().zip(&sizes);
    Ok(allotted
        .map(|(values, size): (usize, &usize)| {
            if blocks > 1 && values == *size {
                Kind::Whole
            } else {
                Kind::Shared { values, blocks }
            }
        })
        .collect())
}

fn shorter_side(tensor: &Tensor) -> usize {
    let shape = tensor.matrix();
    shape.rows.min(shape.cols)
}

fn low_rank_kinds(trained: &[&Tensor], rank: usize, basis: Basis) -> Result<Vec<Kind>, Error> {
    let most = trained.iter().map(|tensor| shorter_side(tensor)).max().unwrap_or(0);
    if rank > most || most < 2 {
        return Err(Error::Usage(format!(
            "`train.space.lowrank` is {rank}, but the largest rank of a trained matrix of the model is {most}; set a lower one"
        )));
    }
    Ok(trained
        .iter()
        .map(|tensor: &&Tensor| {
            if shorter_side(tensor) > 1 && shorter_side(tensor) >= rank {
                Kind::LowRank(rank, basis)
            } else {
                Kind::Whole
            }
        })
        .collect())
}

#[cfg(test)]
mod tests;
