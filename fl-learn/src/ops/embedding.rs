//! Rows of a table by token.

use candle_core::{Result, Tensor, bail};

use super::slices;
use super::tape::Tape;

/// Places in a table of zeros and ones that are worth a product in place of candle's kernel.
const MOST_PLACES: usize = 1 << 26;

/// The rows of `w` at `ids`. Shapes: `ids: [n]` of `u32`, `w: [vocabulary, dim]`; returns `[n, dim]`.
///
/// # Errors
/// If an id is not below the vocabulary.
pub(crate) fn embedding(tape: &mut Tape, ids: &Tensor, w: &Tensor) -> Result<Tensor> {
    let (vocabulary, dim) = w.dims2()?;
    let ids = ids.flatten_all()?;
    let rows = ids.to_vec1::<u32>()?;
    if let Some(id) = rows.iter().find(|&&id| id as usize >= vocabulary) {
        bail!("token {id} is not in a vocabulary of {vocabulary}");
    }
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
        // candle's kernel for the way back adds row after row, with a thread for each column; the product of the gradient with a
        // table that has a one where a token is of a word is many times as fast.
        |[w], _| {
            Ok((w.index_select(&ids, 0)?, move |grad: Tensor| {
                if vocabulary.saturating_mul(ids.elem_count()) > MOST_PLACES {
                    let zeros = w.zeros_like()?;
                    return Ok([Some(zeros.index_add(&ids, &grad.contiguous()?, 0)?)]);
                }
                let words = Tensor::arange(0, vocabulary as u32, ids.device())?.unsqueeze(1)?;
                let places = words.broadcast_eq(&ids.unsqueeze(0)?)?.to_dtype(grad.dtype())?;
                Ok([Some(places.matmul(&grad)?)])
            }))
        },
    )
}
