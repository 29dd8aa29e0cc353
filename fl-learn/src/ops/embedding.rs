//! Rows of a table by token.

use std::sync::Arc;

use candle_core::{Result, Shape, Tensor, bail};

use super::cuda::{Kernel, upload};
use super::slices;
use super::tape::Tape;

/// The rows of `w` at `ids`. Shapes: `ids: [n]` of `u32` on the CPU, `w: [vocabulary, dim]`; returns `[n, dim]`.
pub(crate) fn embedding(tape: &mut Tape, ids: &Tensor, w: &Tensor) -> Result<Tensor> {
    let (vocabulary, dim) = w.dims2()?;
    let ids = ids.flatten_all()?;
    let rows = Arc::new(ids.to_vec1::<u32>()?);
    if let Some(id) = rows.iter().find(|&&id| id as usize >= vocabulary) {
        bail!("token {id} is not in a vocabulary of {vocabulary}");
    }
    let of_gpu = Arc::clone(&rows);
    tape.apply(
        [w],
        (rows.len(), dim),
        |[w], _| {
            let mut out = Vec::with_capacity(rows.len() * dim);
            rows.iter()
                .for_each(|&id| out.extend_from_slice(&w[id as usize * dim..][..dim]));
            (out, move |grad, _| {
                let mut dw = vec![0.0; vocabulary * dim];
                for (&id, grad) in rows.iter().zip(grad.chunks_exact(dim)) {
                    slices::add(&mut dw[id as usize * dim..][..dim], grad);
                }
                [Some(dw)]
            })
        },
        |[w], _| {
            let device = w.device().clone();
            let ids = upload(of_gpu.to_vec(), ids.shape(), &device)?;
            Ok((w.index_select(&ids, 0)?, move |grad: Tensor| {
                let (starts, order) = by_word(&of_gpu, vocabulary);
                let starts = upload(starts, &Shape::from(vocabulary + 1), &device)?;
                let order = upload(order, &Shape::from(grad.dim(0)?), &device)?;
                let back = Kernel::of_rows("embedding_back", vocabulary, dim).reads([&grad, &starts, &order]);
                Ok([Some(back.ints(&[dim]).fills((vocabulary, dim)).launch_one()?)])
            }))
        },
    )
}

/// The places of the ids, word after word, and where those of each word start. Shapes: returns `[vocabulary + 1]`, `[ids.len()]`.
fn by_word(ids: &[u32], vocabulary: usize) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0u32; vocabulary + 1];
    ids.iter().for_each(|&id| starts[id as usize + 1] += 1);
    for word in 0..vocabulary {
        starts[word + 1] += starts[word];
    }
    let mut next = starts.clone();
    let mut order = vec![0u32; ids.len()];
    for (place, &id) in (0..).zip(ids) {
        let next = &mut next[id as usize];
        order[*next as usize] = place;
        *next += 1;
    }
    (starts, order)
}
