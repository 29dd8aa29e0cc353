//! Models as safetensors files, with the names and shapes that PyTorch users expect.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use fl_compress::Layout;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

/// Largest file taken, in bytes.
const MAX_BYTES: u64 = 32 << 30;

/// Writes flat `weights` as `f32` tensors to `path`, replacing it whole or not at all. Shapes: `weights: [layout.len()]`.
///
/// # Errors
/// If the lengths differ or the file cannot be written.
pub fn export(path: &Path, layout: &Layout, weights: &[f32]) -> anyhow::Result<()> {
    let special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    ensure!(
        !special,
        "{} is not a regular file and will not be replaced",
        path.display()
    );
    let bytes = to_bytes(layout, weights)?;
    let folder = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut side = path.as_os_str().to_owned();
    side.push(".part");
    let side = Path::new(&side);
    let write = || {
        let mut file = std::fs::File::create(side)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(side, path)?;
        std::fs::File::open(folder)?.sync_all()
    };
    write()
        .inspect_err(|_| drop(std::fs::remove_file(side)))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a model of `layout` from the safetensors file at `path`: every tensor of the layout, and no other. `f16`
/// and `bf16` become `f32`. Returns `[layout.len()]`.
///
/// # Errors
/// If the file cannot be read, is no safetensors file, or a tensor is missing, unknown, of another shape or type, or
/// not finite; the error names it.
pub fn import(path: &Path, layout: &Layout) -> anyhow::Result<Vec<f32>> {
    let context = || format!("cannot use {} as a model", path.display());
    let len = std::fs::metadata(path).with_context(context)?.len();
    ensure!(
        len <= MAX_BYTES,
        "{}: {len} bytes are more than the {MAX_BYTES} a model may have",
        path.display()
    );
    let bytes = std::fs::read(path).with_context(context)?;
    from_bytes(&bytes, layout).with_context(context)
}

/// The layout of the tensors in the safetensors file at `path`.
///
/// # Errors
/// As [`import`].
pub fn layout_of(path: &Path) -> anyhow::Result<Layout> {
    let context = || format!("cannot use {} as a model", path.display());
    let bytes = std::fs::read(path).with_context(context)?;
    let file = SafeTensors::deserialize(&bytes).with_context(context)?;
    Ok(Layout::new(
        file.iter().map(|(name, view)| (name, view.shape().to_vec())),
    )?)
}

fn to_bytes(layout: &Layout, weights: &[f32]) -> anyhow::Result<Vec<u8>> {
    ensure!(
        weights.len() == layout.len(),
        "{} weights for a layout of {}",
        weights.len(),
        layout.len()
    );
    let little: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
    let mut views = Vec::with_capacity(layout.tensors().len());
    for tensor in layout.tensors() {
        let bytes = &little[4 * tensor.offset..4 * (tensor.offset + tensor.len)];
        views.push((
            tensor.name.as_str(),
            TensorView::new(Dtype::F32, tensor.shape.clone(), bytes)?,
        ));
    }
    Ok(safetensors::serialize(views, None)?)
}

fn from_bytes(bytes: &[u8], layout: &Layout) -> anyhow::Result<Vec<f32>> {
    let file = SafeTensors::deserialize(bytes).context("not a complete safetensors file")?;
    let mut names: Vec<&str> = file.names();
    names.sort_unstable();
    if let Some(name) = names
        .iter()
        .find(|name| layout.tensors().iter().all(|tensor| tensor.name != **name))
    {
        bail!("it has a tensor `{name}` that the model has not");
    }
    let mut weights = Vec::with_capacity(layout.len());
    for tensor in layout.tensors() {
        let view = file
            .tensor(&tensor.name)
            .ok()
            .with_context(|| format!("it has no tensor `{}`", tensor.name))?;
        let (have, want) = (view.shape(), tensor.shape.as_slice());
        ensure!(
            have == want,
            "tensor `{}` has shape {have:?}, but the model needs {want:?}",
            tensor.name
        );
        let first = weights.len();
        append(&mut weights, view.dtype(), view.data()).with_context(|| format!("tensor `{}`", tensor.name))?;
        ensure!(
            weights.len() - first == tensor.len,
            "tensor `{}` is cut short",
            tensor.name
        );
        ensure!(
            weights[first..].iter().all(|w| w.is_finite()),
            "tensor `{}` holds a value not finite",
            tensor.name
        );
    }
    Ok(weights)
}

fn append(out: &mut Vec<f32>, dtype: Dtype, data: &[u8]) -> anyhow::Result<()> {
    match dtype {
        Dtype::F32 => out.extend(data.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes))),
        Dtype::F16 => out.extend(
            data.as_chunks::<2>()
                .0
                .iter()
                .map(|&b| half::f16::from_le_bytes(b).to_f32()),
        ),
        Dtype::BF16 => out.extend(
            data.as_chunks::<2>()
                .0
                .iter()
                .map(|&b| half::bf16::from_le_bytes(b).to_f32()),
        ),
        other => bail!("has type {other:?}; expected F32, F16 or BF16"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learners::initial_weights;

    #[test]
    fn a_model_comes_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        let (layout, weights) = initial_weights("lenet", 3).unwrap();
        export(&path, &layout, &weights).unwrap();
        assert_eq!(import(&path, &layout).unwrap(), weights);
        assert_eq!(layout_of(&path).unwrap(), *layout);
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            1,
            "the side file is gone"
        );
    }

    #[test]
    fn half_precision_is_converted() {
        let layout = Layout::new([("a", vec![2]), ("b", vec![1])]).unwrap();
        let a: Vec<u8> = [1.5, -2.0]
            .iter()
            .flat_map(|&v| half::f16::from_f32(v).to_le_bytes())
            .collect();
        let b = half::bf16::from_f32(0.25).to_le_bytes();
        let views = [
            ("a", TensorView::new(Dtype::F16, vec![2], &a).unwrap()),
            ("b", TensorView::new(Dtype::BF16, vec![1], &b).unwrap()),
        ];
        let bytes = safetensors::serialize(views, None).unwrap();
        assert_eq!(from_bytes(&bytes, &layout).unwrap(), [1.5, -2.0, 0.25]);
    }

    #[test]
    fn what_does_not_suit_the_model_is_named() {
        let layout = Layout::new([("a", vec![2]), ("b", vec![1])]).unwrap();
        let file = |parts: &[(&str, Vec<usize>)], value: f32| {
            let layout = Layout::new(parts.iter().map(|(n, s)| (*n, s.clone()))).unwrap();
            to_bytes(&layout, &vec![value; layout.len()]).unwrap()
        };
        let refused = |bytes: &[u8]| format!("{:#}", from_bytes(bytes, &layout).unwrap_err());
        assert!(refused(&file(&[("a", vec![2])], 0.0)).contains("no tensor `b`"));
        assert!(refused(&file(&[("a", vec![3]), ("b", vec![1])], 0.0)).contains("shape [3]"));
        assert!(refused(&file(&[("a", vec![2]), ("b", vec![1]), ("c", vec![1])], 0.0)).contains("`c`"));
        assert!(refused(&file(&[("a", vec![2]), ("b", vec![1])], f32::NAN)).contains("not finite"));
        let whole = file(&[("a", vec![2]), ("b", vec![1])], 1.0);
        for len in 0..whole.len() {
            assert!(from_bytes(&whole[..len], &layout).is_err(), "{len} of {}", whole.len());
        }
        let mut absurd = u64::MAX.to_le_bytes().to_vec();
        absurd.extend(b"{}");
        assert!(refused(&absurd).contains("not a complete"));
    }
}
