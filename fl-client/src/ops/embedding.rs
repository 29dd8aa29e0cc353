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
        return w.index_select(&ids.flatten_all()?, 0);
    }
    let table = read(w)?;
    let mut out = Vec::with_capacity(rows.len() * dim);
    rows.iter()
        .for_each(|&id| out.extend_from_slice(&table[id as usize * dim..][..dim]));
    let out = slices::tensor(out, (rows.len(), dim))?;
    if tape.wants(w) {
        let w = w.clone();
        tape.record(&out, move |grad, grads| {
            let mut dw = vec![0.0; vocabulary * dim];
            for (&id, grad) in rows.iter().zip(grad.chunks_exact(dim)) {
                slices::add(&mut dw[id as usize * dim..][..dim], grad);
            }
            grads.add(&w, dw);
            Ok(())
        });
    }
    Ok(out)
}
