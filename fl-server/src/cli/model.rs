//! What can be said of a run's first weights without serving it.

use std::path::Path;

use anyhow::{Context, ensure};
use fl_compress::Layout;
use safetensors::{Dtype, SafeTensors};

/// The layout of the first weights in the file at `path`, if a run can begin with them.
///
/// # Errors
/// If the file cannot be read, is no safetensors file, or holds a tensor that is not F32 or a value that is not finite;
/// the error names the file and the tensor.
pub(super) fn layout_of(path: &Path) -> anyhow::Result<Layout> {
    let of_file = || format!("model {}", path.display());
    let bytes = std::fs::read(path).with_context(of_file)?;
    layout(&bytes).with_context(of_file)
}

fn layout(bytes: &[u8]) -> anyhow::Result<Layout> {
    let file = SafeTensors::deserialize(bytes).context("not a safetensors file")?;
    let mut shapes = Vec::new();
    for (name, tensor) in file.iter() {
        let dtype = tensor.dtype();
        ensure!(
            dtype == Dtype::F32,
            "tensor `{name}` is {dtype:?}; only F32 can be trained"
        );
        let values = tensor.data().as_chunks().0.iter();
        let finite = values.map(|value| f32::from_le_bytes(*value)).all(f32::is_finite);
        ensure!(
            finite,
            "tensor `{name}` holds a value that is not finite (NaN or infinity); a run cannot begin with it"
        );
        shapes.push((name.to_owned(), tensor.shape().to_vec()));
    }
    Ok(Layout::new(shapes)?)
}
