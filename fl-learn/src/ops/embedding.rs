//! Rows of a table by token.

use candle_core::{Result, Tensor, bail};

use super::slices::{self, read};
use super::tape::Tape;

/// The rows of `w` at `ids`. Shapes: `ids: [n]` of `u32`, `w: [vocabulary, dim]`; returns `[n, dim]`.
///
/// # Errors
/// If an id is not below the vocabulary.
pub fn embedding(tape: &mut Tape, ids: &Tensor, w: &Tensor) -> Result<Tensor> {
    let (vocabulary, dim) = w.dims2()?;
    let rows = ids.flatten_all()?.to_vec1::<u32>()?;
    if let Some(id) = rows.iter().find(|&&id| id as usize >= vocabulary) {
        bail!("token {id} is not in a vocabulary of {vocabulary}");
    }
    if !tape.is_native(w) {
        return composed(tape, &ids.flatten_all()?, w);
    }
    let table = read(w)?;
    let mut out = Vec::with_capacity(rows.len() * dim);
    rows.iter()
        .for_each(|&id| out.extend_from_slice(&table[id as usize * dim..][..dim]));
    let out = slices::tensor(out, (rows.len(), dim))?;
    Ok(tape.looped([w], out, move |grad, _, _| {
        let mut dw = vec![0.0; vocabulary * dim];
        for (&id, grad) in rows.iter().zip(grad.chunks_exact(dim)) {
            slices::add(&mut dw[id as usize * dim..][..dim], grad);
        }
        Ok([Some(dw)])
    }))
}

/// Places in a table of zeros and ones that are worth a product in place of candle's kernel.
const MOST_PLACES: usize = 1 << 26;

/// On other devices: candle's kernel. On the way back its counterpart adds row after row, with a thread for each column; the product of the
/// gradient with a table that has a one where a token is of a word is many times as fast.
fn composed(tape: &mut Tape, ids: &Tensor, w: &Tensor) -> Result<Tensor> {
    let (vocabulary, _) = w.dims2()?;
    let out = w.detach().index_select(ids, 0)?;
    let (ids, table) = (ids.clone(), w.detach());
    Ok(tape.composition([w], out, move |grad, _| {
        if vocabulary.saturating_mul(ids.elem_count()) > MOST_PLACES {
            let zeros = table.zeros_like()?;
            return Ok([Some(zeros.index_add(&ids, &grad.contiguous()?, 0)?)]);
        }
        let words = Tensor::arange(0, vocabulary as u32, ids.device())?.unsqueeze(1)?;
        let places = words.broadcast_eq(&ids.unsqueeze(0)?)?.to_dtype(grad.dtype())?;
        Ok([Some(places.matmul(&grad)?)])
    }))
}
