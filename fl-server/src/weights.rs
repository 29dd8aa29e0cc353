//! Models as safetensors files: first weights come in one, and an export is one.

use std::io::{self, Read as _};
use std::path::Path;

use fl_compress::Layout;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::disk::open_file;

/// Tensors and values of the file at `path`, with which a run can begin. Returns values of shape `[layout.len()]`.
///
/// # Errors
/// If the file cannot be read, is no safetensors file, or holds a tensor that is not F32 or a value that is not finite;
/// the text names the file and the tensor.
pub(crate) fn read(path: &Path) -> Result<(Layout, Vec<f32>), String> {
    let read = || {
        let mut bytes = Vec::new();
        open_file(path)?.read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = read().map_err(|e: io::Error| format!("{e}; make one with `fl-client init`"));
    bytes
        .and_then(|bytes| from_bytes(&bytes))
        .map_err(|why| format!("model {}: {why}", path.display()))
}

fn from_bytes(bytes: &[u8]) -> Result<(Layout, Vec<f32>), String> {
    let not_safetensors = |e: SafeTensorError| format!("not a safetensors file: {e}");
    let file = SafeTensors::deserialize(bytes).map_err(not_safetensors)?;
    let mut shapes = Vec::new();
    for (name, tensor) in file.iter() {
        let dtype = tensor.dtype();
        if dtype != Dtype::F32 {
            return Err(format!("tensor `{name}` is {dtype:?}; only F32 can be trained"));
        }
        shapes.push((name.to_owned(), tensor.shape().to_vec()));
    }
    let layout = Layout::new(shapes).map_err(|e| e.to_string())?;
    let mut values = Vec::with_capacity(layout.len());
    for tensor in layout.tensors() {
        let name = &tensor.name;
        let data = file.tensor(name).map_err(not_safetensors)?.data();
        values.extend(data.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)));
        if !values[tensor.offset..].iter().all(|value| value.is_finite()) {
            return Err(format!(
                "tensor `{name}` holds a value that is not finite (NaN or infinity); a run cannot begin with it"
            ));
        }
    }
    Ok((layout, values))
}

/// The bytes of such a file. Shapes: `values: [layout.len()]`.
///
/// # Errors
/// The format's.
pub(crate) fn to_bytes(layout: &Layout, values: &[f32]) -> Result<Vec<u8>, SafeTensorError> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut views = Vec::new();
    for tensor in layout.tensors() {
        let data = &bytes[4 * tensor.offset..4 * (tensor.offset + tensor.len)];
        let view = TensorView::new(Dtype::F32, tensor.shape.clone(), data)?;
        views.push((tensor.name.as_str(), view));
    }
    safetensors::serialize(views, None)
}
