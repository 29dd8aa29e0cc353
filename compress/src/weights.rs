//! Models and updates as safetensors files: a [`Layout`] and one flat vector of `f32`, and back.
//!
//! Works on bytes: who opens files, and how they are replaced, is the caller's affair. Values of type F32, F16 and BF16
//! are read, F32 is written. Reading allocates nothing that the file itself does not fill.

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::section::all_finite;
use crate::{Error, Layout, Tensor};

/// A safetensors file whose header has been checked and whose values have not been read.
#[derive(Debug)]
pub struct Weights<'a> {
    file: SafeTensors<'a>,
    layout: Layout,
}

impl<'a> Weights<'a> {
    /// Checks the header of `bytes`: complete, every tensor of a type that can be read, within the limits of a layout.
    ///
    /// # Errors
    /// `Corrupt` if this is no complete safetensors file, `Mismatch` if a tensor has another type, `Usage` as
    /// [`Layout::new`]; they name the tensor.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let file = SafeTensors::deserialize(bytes).map_err(|why| Error::Corrupt {
            what: format!("not a complete safetensors file: {why}"),
            offset: 0,
        })?;
        let mut tensors: Vec<(&str, TensorView<'_>)> = file.iter().collect();
        // The file's own order is that of a hash map: without this, which of two errors is told would be chance.
        tensors.sort_unstable_by_key(|&(name, _)| name);
        for (name, tensor) in &tensors {
            if !matches!(tensor.dtype(), Dtype::F32 | Dtype::F16 | Dtype::BF16) {
                let dtype = tensor.dtype();
                return Err(Error::Mismatch(format!(
                    "tensor `{name}` is {dtype:?}; only F32, F16 and BF16 can be read"
                )));
            }
        }
        let layout = Layout::new(tensors.iter().map(|(name, tensor)| (*name, tensor.shape().to_vec())))?;
        Ok(Self { file, layout })
    }

    /// Names and shapes of the tensors.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Succeeds if the file holds exactly the tensors of `layout`.
    ///
    /// # Errors
    /// `Mismatch`, naming the first tensor (by name) that is missing, unknown or of another shape.
    pub fn expect(&self, layout: &Layout) -> Result<(), Error> {
        expect_same(&self.layout, layout)
    }

    /// All values in the order of the layout. Returns `[self.layout().len()]`.
    ///
    /// # Errors
    /// `NotFinite`, naming the tensor and the index within it.
    pub fn values(&self) -> Result<Vec<f32>, Error> {
        let mut values = Vec::with_capacity(self.layout.len());
        for tensor in self.layout.tensors() {
            let view = self.file.tensor(&tensor.name).map_err(|why| Error::Corrupt {
                what: format!("tensor `{}`: {why}", tensor.name),
                offset: 0,
            })?;
            append(&view, &mut values);
            expect_finite(tensor, &values[tensor.offset..])?;
        }
        Ok(values)
    }
}

/// Succeeds if `have` holds exactly the tensors of `want`.
///
/// # Errors
/// `Mismatch`, naming the first tensor (by name) that is missing, unknown or of another shape.
pub fn expect_same(have: &Layout, want: &Layout) -> Result<(), Error> {
    difference(have, want).map_or(Ok(()), |why| Err(Error::Mismatch(why)))
}

/// Succeeds if no value of `tensor` is NaN or infinite. Shapes: `values: [tensor.len]`.
///
/// # Errors
/// `NotFinite`, naming the tensor and the index within it.
pub fn expect_finite(tensor: &Tensor, values: &[f32]) -> Result<(), Error> {
    if all_finite(values) {
        return Ok(());
    }
    let at = values.iter().take_while(|value| value.is_finite()).count();
    Err(Error::NotFinite(format!("tensor `{}`, value {at}", tensor.name)))
}

/// The bytes of a safetensors file of `values`, the same for the same layout and values. Shapes: `values: [layout.len()]`.
///
/// # Errors
/// `Usage` if `values` has another length.
pub fn to_safetensors(layout: &Layout, values: &[f32]) -> Result<Vec<u8>, Error> {
    if values.len() != layout.len() {
        return Err(Error::Usage(format!(
            "{} values for a layout of {}",
            values.len(),
            layout.len()
        )));
    }
    let unwritable = |why| Error::Usage(format!("cannot be written as safetensors: {why}"));
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut views = Vec::with_capacity(layout.tensors().len());
    for tensor in layout.tensors() {
        let data = &bytes[4 * tensor.offset..4 * (tensor.offset + tensor.len)];
        let view = TensorView::new(Dtype::F32, tensor.shape.clone(), data).map_err(unwritable)?;
        views.push((tensor.name.as_str(), view));
    }
    safetensors::serialize(views, None).map_err(unwritable)
}

/// Where `have` first differs from `want`, in words; `None` if they are the same.
fn difference(have: &Layout, want: &Layout) -> Option<String> {
    let (mut have, mut want) = (have.tensors().iter().peekable(), want.tensors().iter().peekable());
    loop {
        match (have.peek(), want.peek()) {
            (None, None) => return None,
            (Some(a), Some(b)) if a.name == b.name => {
                if a.shape != b.shape {
                    return Some(format!(
                        "tensor `{}` has shape {:?}; {:?} is expected",
                        a.name, a.shape, b.shape
                    ));
                }
                have.next();
                want.next();
            }
            (have, Some(b)) if have.is_none_or(|a| a.name > b.name) => {
                return Some(format!("tensor `{}` is missing", b.name));
            }
            (Some(a), _) => return Some(format!("tensor `{}` is not expected", a.name)),
            (None, Some(b)) => return Some(format!("tensor `{}` is missing", b.name)),
        }
    }
}

fn append(view: &TensorView<'_>, out: &mut Vec<f32>) {
    let data = view.data();
    match view.dtype() {
        Dtype::F16 => out.extend(data.as_chunks().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f32())),
        Dtype::BF16 => out.extend(
            data.as_chunks()
                .0
                .iter()
                .map(|b| half::bf16::from_le_bytes(*b).to_f32()),
        ),
        _ => out.extend(data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(tensors: &[(&str, &[usize])]) -> Layout {
        Layout::new(tensors.iter().map(|(name, shape)| (*name, shape.to_vec()))).unwrap()
    }

    fn file(tensors: &[(&str, Dtype, &[usize], &[u8])]) -> Vec<u8> {
        let views = tensors
            .iter()
            .map(|(name, dtype, shape, data)| (*name, TensorView::new(*dtype, shape.to_vec(), data).unwrap()));
        safetensors::serialize(views, None).unwrap()
    }

    #[test]
    fn values_come_back_bit_for_bit_and_bytes_are_the_same() {
        let layout = layout(&[("b", &[2, 3]), ("a", &[2]), ("scalar", &[])]);
        let values = [1.5, -0.0, f32::MIN_POSITIVE / 2.0, 3e38, -7.0, 0.0, 0.1, 1e-30, 4.0];
        let bytes = to_safetensors(&layout, &values).unwrap();
        assert_eq!(to_safetensors(&layout, &values).unwrap(), bytes);
        let weights = Weights::parse(&bytes).unwrap();
        assert_eq!(weights.layout(), &layout);
        let back = weights.values().unwrap();
        assert!(back.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits()));
        assert!(matches!(to_safetensors(&layout, &values[1..]), Err(Error::Usage(_))));
    }

    #[test]
    fn half_precision_becomes_single() {
        let f16: Vec<u8> = [1.5, -2.0]
            .iter()
            .flat_map(|&v| half::f16::from_f32(v).to_le_bytes())
            .collect();
        let bf16 = half::bf16::from_f32(0.25).to_le_bytes();
        let bytes = file(&[("a", Dtype::F16, &[2], &f16), ("b", Dtype::BF16, &[1], &bf16)]);
        assert_eq!(Weights::parse(&bytes).unwrap().values().unwrap(), [1.5, -2.0, 0.25]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let refused = |bytes: &[u8]| {
            Weights::parse(bytes)
                .and_then(|weights| weights.values())
                .unwrap_err()
                .to_string()
        };
        let ids = refused(&file(&[("ids", Dtype::I64, &[1], &[0; 8])]));
        assert!(ids.contains("`ids` is I64"), "{ids}");
        let empty = refused(&file(&[("none", Dtype::F32, &[0], &[])]));
        assert!(empty.contains("`none` has shape [0]"), "{empty}");
        let mut nan = vec![0; 8];
        nan[4..].copy_from_slice(&f32::NAN.to_le_bytes());
        let nan = refused(&file(&[("w", Dtype::F32, &[2], &nan)]));
        assert_eq!(nan, "not finite: tensor `w`, value 1");
    }

    #[test]
    fn every_truncation_and_absurd_length_is_refused() {
        let bytes = to_safetensors(&layout(&[("a", &[2]), ("b", &[1])]), &[1.0; 3]).unwrap();
        for len in 0..bytes.len() {
            assert!(
                matches!(Weights::parse(&bytes[..len]), Err(Error::Corrupt { .. })),
                "{len}"
            );
        }
        let mut absurd = u64::MAX.to_le_bytes().to_vec();
        absurd.extend(b"{}");
        assert!(matches!(Weights::parse(&absurd), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn the_first_difference_is_named() {
        let bytes = to_safetensors(&layout(&[("a", &[2]), ("c", &[1])]), &[0.0; 3]).unwrap();
        let weights = Weights::parse(&bytes).unwrap();
        let says = |tensors: &[(&str, &[usize])]| match weights.expect(&layout(tensors)) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        assert_eq!(says(&[("a", &[2]), ("c", &[1])]), "");
        assert!(says(&[("a", &[1, 2]), ("c", &[1])]).contains("`a` has shape [2]; [1, 2] is expected"));
        assert!(says(&[("a", &[2])]).contains("`c` is not expected"));
        assert!(says(&[("c", &[1])]).contains("`a` is not expected"));
        assert!(says(&[("a", &[2]), ("b", &[1]), ("c", &[1])]).contains("`b` is missing"));
        assert!(says(&[("a", &[2]), ("c", &[1]), ("d", &[1])]).contains("`d` is missing"));
    }
}
