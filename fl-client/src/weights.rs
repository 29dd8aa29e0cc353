//! Models as safetensors files, with the names and shapes that PyTorch users expect.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use fl_compress::Layout;
use fl_compress::weights::{FilePlan, Notes, TensorFile, Weights};

const MAX_BYTES: u64 = 32 << 30;

/// Writes flat `weights` to `path`, each tensor in its own type, atomically. Shapes: `weights: [layout.len()]`.
///
/// # Errors
/// If the lengths differ or the file cannot be written.
pub fn export(path: &Path, layout: &Layout, weights: &[f32]) -> anyhow::Result<()> {
    export_with(path, layout, weights, &Notes::new())
}

/// As [`export`], with `notes` in the file's metadata, such as [`fl_compress::weights::SEED`]. The metadata also names the format of
/// PyTorch: loaders of `transformers` and `peft` refuse a file without it.
///
/// # Errors
/// As [`export`].
pub fn export_with(path: &Path, layout: &Layout, weights: &[f32], notes: &Notes) -> anyhow::Result<()> {
    let mut notes = notes.clone();
    notes.insert("format".to_owned(), "pt".to_owned());
    let plan = FilePlan::new(layout, &[], &notes)?;
    let mut bytes = vec![0; plan.len()];
    plan.write::<&[u8]>(weights, &[], &mut bytes)?;
    replace(path, &bytes)
}

/// Writes a file atomically.
///
/// # Errors
/// If the file cannot be written or is not a regular file.
pub fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    ensure!(
        !special,
        "{} is not a regular file and will not be replaced",
        path.display()
    );
    let folder = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut side = path.as_os_str().to_owned();
    side.push(".part");
    let side = Path::new(&side);
    let written = std::fs::File::create(side).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(side, path)?;
        std::fs::File::open(folder)?.sync_all()
    });
    written
        .inspect_err(|_| drop(std::fs::remove_file(side)))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a model of `layout` from the safetensors file at `path`: exactly the tensors of the layout. Where all of them are
/// trained and of type F32, the file may have them in any floating-point type; otherwise it has them in their own types.
/// Returns `[layout.len()]`.
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

fn from_bytes(bytes: &[u8], layout: &Layout) -> anyhow::Result<Vec<f32>> {
    if !layout
        .tensors()
        .iter()
        .all(|tensor| (tensor.dtype, tensor.role) == Default::default())
    {
        let file = TensorFile::parse(bytes)?;
        let mut values = vec![0.0; layout.len()];
        file.values(layout, &mut values)?;
        file.expect_only(layout.tensors().iter().map(|tensor| tensor.name.as_str()))?;
        return Ok(values);
    }
    let weights = Weights::parse(bytes)?;
    weights.expect_floats()?;
    weights.expect(layout)?;
    Ok(weights.values()?)
}

#[cfg(test)]
mod tests {
    use fl_compress::weights::to_safetensors;
    use fl_compress::{Dtype, Role, TensorSpec};

    use super::*;

    #[test]
    fn a_model_comes_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        let layout = Layout::new([("conv.weight", vec![2, 3]), ("fc.bias", vec![4])]).unwrap();
        let weights: Vec<f32> = (0..10).map(|i| 0.1 * i as f32).collect();
        export(&path, &layout, &weights).unwrap();
        assert_eq!(import(&path, &layout).unwrap(), weights);
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            1,
            "the side file is gone"
        );
    }

    #[test]
    fn a_file_names_the_format_of_pytorch_beside_its_notes() {
        use fl_compress::weights::{SEED, read_notes};

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        let layout = Layout::new([("w", vec![2])]).unwrap();
        let notes = || read_notes(std::fs::File::open(&path).unwrap()).unwrap();
        export(&path, &layout, &[1.0, 2.0]).unwrap();
        let format = Notes::from([("format".to_owned(), "pt".to_owned())]);
        assert_eq!(notes(), format);
        let seed = Notes::from([(SEED.to_owned(), "3".to_owned())]);
        export_with(&path, &layout, &[1.0, 2.0], &seed).unwrap();
        assert_eq!(notes(), format.into_iter().chain(seed).collect());
    }

    #[test]
    fn tensors_of_other_types_come_back_in_their_own() {
        let spec = |name: &str, dtype, role| TensorSpec::new(name, &[2], dtype, role);
        let layout = Layout::of([
            spec("bn.num_batches_tracked", Dtype::I64, Role::Counter),
            spec("bn.running_mean", Dtype::F32, Role::Buffer),
            spec("w", Dtype::F16, Role::Trained),
        ]);
        let layout = layout.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        export(&path, &layout, &[2049.0, 0.5, 0.1, 0.2, 3.0, 1e9]).unwrap();
        // F16 has no 2049, and no counter is above 2^24.
        assert_eq!(
            import(&path, &layout).unwrap(),
            [2048.0, 0.5, 0.1, 0.2, 3.0, 16_777_216.0]
        );
        let plain = Layout::new([("w", vec![2])]).unwrap();
        let why = format!("{:#}", import(&path, &plain).unwrap_err());
        assert!(why.contains("bn.num_batches_tracked"), "{why}");
    }

    #[test]
    fn what_does_not_suit_the_model_is_named() {
        let layout = Layout::new([("a", vec![2]), ("b", vec![1])]).unwrap();
        let file = |parts: &[(&str, Vec<usize>)], value: f32| {
            let layout = Layout::new(parts.iter().map(|(n, s)| (*n, s.clone()))).unwrap();
            to_safetensors(&layout, &vec![value; layout.len()]).unwrap()
        };
        let refused = |bytes: &[u8]| format!("{:#}", from_bytes(bytes, &layout).unwrap_err());
        assert!(refused(&file(&[("a", vec![2])], 0.0)).contains("tensor `b` is missing"));
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
