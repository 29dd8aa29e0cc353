//! Reads and writes safetensors files as a layout and one flat vector.

use std::collections::{BTreeMap, BTreeSet};

use safetensors::tensor::Dtype;

use crate::error::Error;
use crate::finite::all_finite;
use crate::layout::{Layout, Tensor};
use crate::weights::convert;
use crate::weights::header::{self, CheckedFile, Envelope};
use crate::weights::integers::IntegerTensor;
use crate::weights::notes::Notes;

/// A safetensors file with a checked header; its values are read by [`Weights::values`].
#[derive(Debug)]
pub struct Weights<'a> {
    file: CheckedFile<'a>,
    layout: Layout,
    integers: Vec<IntegerTensor<'a>>,
}

impl<'a> Weights<'a> {
    /// Checks the header of `bytes`: complete, no duplicate name, every tensor of a supported type, within the limits
    /// of a layout.
    ///
    /// # Errors
    /// `Corrupt` if `bytes` is not a complete safetensors file or a name occurs twice in its header; `Mismatch` if a
    /// tensor has an unsupported type; `Usage` as [`Layout::new`], and for a file of `torch.save`. The error names the
    /// tensor.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let file = CheckedFile::parse(bytes)?;
        let mut floats = Vec::new();
        let mut integers = Vec::new();
        for (name, tensor) in file.tensors() {
            if matches!(tensor.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::F64) {
                floats.push((name, tensor.shape.clone()));
            } else if let Some(tensor) = IntegerTensor::of(&name, tensor, file.bytes(tensor)) {
                tensor.check()?;
                integers.push(tensor);
            } else {
                let dtype = tensor.dtype;
                return Err(Error::Mismatch(format!(
                    "tensor `{name}` is {dtype:?}, which is not supported (F32, F16, BF16, F64, integers and BOOL are); convert \
                     it, in PyTorch with .float()"
                )));
            }
        }
        let layout = Layout::new(floats)?;
        Ok(Self { file, layout, integers })
    }

    /// The integer and Boolean tensors, sorted by name. They are not part of the layout.
    pub fn integers(&self) -> &[IntegerTensor<'a>] {
        &self.integers
    }

    /// Succeeds if all tensors are floating-point: only those can be trained.
    ///
    /// # Errors
    /// `Mismatch`, naming the first tensor (by name) that is not.
    pub fn expect_floats(&self) -> Result<(), Error> {
        self.integers.first().map_or(Ok(()), |tensor| {
            Err(Error::Mismatch(format!(
                "tensor `{}` is {}; only F32, F16, BF16 and F64 can be trained",
                tensor.name,
                tensor.dtype()
            )))
        })
    }

    /// The metadata texts.
    pub fn notes(&self) -> &Notes {
        &self.file.notes
    }

    /// Names and shapes of the tensors.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Succeeds if the file has exactly the tensors of `layout`.
    ///
    /// # Errors
    /// `Mismatch`, naming the first tensor (by name) that is missing, unknown or of another shape.
    pub fn expect(&self, layout: &Layout) -> Result<(), Error> {
        difference(&self.layout, layout, false).map_or(Ok(()), |why| Err(Error::Mismatch(why)))
    }

    /// Reads all values in the order of the layout. Returns `[self.layout().len()]`.
    ///
    /// # Errors
    /// `NotFinite`, also for a double beyond the range of `f32`, naming the tensor and the index within it.
    pub fn values(&self) -> Result<Vec<f32>, Error> {
        let mut values = Vec::with_capacity(self.layout.len());
        for tensor in self.layout.tensors() {
            let info = self.file.header.info(&tensor.name).ok_or_else(|| Error::Corrupt {
                what: format!("tensor `{}`", tensor.name),
                offset: 0,
            })?;
            let dtype = header::own_type(info.dtype).unwrap_or_default();
            values.resize(tensor.offset + tensor.len, 0.0);
            convert::read(dtype, self.file.bytes(info), &mut values[tensor.offset..]);
            expect_finite(tensor, &values[tensor.offset..])?;
        }
        Ok(values)
    }
}

/// Succeeds if `have` has exactly the tensors of `want`, whatever their types: values are `f32` in both.
///
/// # Errors
/// `Mismatch`, naming the first tensor (by name) that is missing, unknown or of another shape or role.
pub fn expect_same(have: &Layout, want: &Layout) -> Result<(), Error> {
    difference(have, want, true).map_or(Ok(()), |why| Err(Error::Mismatch(why)))
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

/// Succeeds if every value may be a mean squared gradient: finite and not negative. Shapes: `values: [tensor.len]`.
///
/// # Errors
/// `Usage`, naming the tensor and the index within it.
pub fn expect_squares(tensor: &Tensor, values: &[f32]) -> Result<(), Error> {
    match values.iter().position(|value| !(0.0..f32::INFINITY).contains(value)) {
        None => Ok(()),
        Some(at) => Err(Error::Usage(format!(
            "tensor `{}`, value {at}: a mean squared gradient must be finite and not negative, not {}",
            tensor.name, values[at]
        ))),
    }
}

/// The bytes of a safetensors file of `values`: deterministic in layout and values. Shapes: `values: [layout.len()]`.
///
/// # Errors
/// `Usage` if `values` has another length.
pub fn to_safetensors(layout: &Layout, values: &[f32]) -> Result<Vec<u8>, Error> {
    to_safetensors_with(layout, values, &[], &Notes::new())
}

/// As [`to_safetensors`], with integer tensors and metadata texts.
///
/// # Errors
/// As [`to_safetensors`].
pub fn to_safetensors_with(
    layout: &Layout,
    values: &[f32],
    integers: &[IntegerTensor<'_>],
    notes: &Notes,
) -> Result<Vec<u8>, Error> {
    layout.expect_len(values)?;
    let Envelope { mut head, tail } = Envelope::new(layout, integers, notes)?;
    head.reserve_exact(4 * values.len() + tail.len());
    head.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    head.extend_from_slice(&tail);
    Ok(head)
}

/// Describes the first difference (by name) of `have` from `want`; `None` if they are equal. Tensors without values are not
/// compared, and roles only `with_roles`.
fn difference(have: &Layout, want: &Layout, with_roles: bool) -> Option<String> {
    let by_name = |layout| -> BTreeMap<&str, &Tensor> {
        let tensors: &[Tensor] = Layout::tensors(layout);
        let tensors = tensors.iter().filter(|tensor| tensor.len > 0);
        tensors.map(|tensor| (tensor.name.as_str(), tensor)).collect()
    };
    let have = by_name(have);
    let want = by_name(want);
    let names: BTreeSet<&str> = have.keys().chain(want.keys()).copied().collect();
    names
        .into_iter()
        .find_map(|name| match (have.get(name), want.get(name)) {
            (None, _) => Some(format!("tensor `{name}` is missing")),
            (_, None) => Some(format!("tensor `{name}` is not expected")),
            (Some(a), Some(b)) if a.shape != b.shape => Some(format!(
                "tensor `{name}` has shape {:?}; {:?} is expected",
                a.shape, b.shape
            )),
            (Some(a), Some(b)) if with_roles && a.role != b.role => Some(format!(
                "tensor `{name}` has the role {}; {} is expected",
                a.role.name(),
                b.role.name()
            )),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::{TensorInfo, TensorView};

    use super::*;
    use crate::weights::notes::{LEARNER, SEED};

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
    fn half_and_double_precision_become_single() {
        let f16: Vec<u8> = [1.5, -2.0]
            .iter()
            .flat_map(|&v| half::f16::from_f32(v).to_le_bytes())
            .collect();
        let bf16 = half::bf16::from_f32(0.25).to_le_bytes();
        // The nearest single is above, at a tie the even one.
        let f64: Vec<u8> = [0.1, 1.0 + 2f64.powi(-24)]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        let bytes = file(&[
            ("a", Dtype::F16, &[2], &f16),
            ("b", Dtype::BF16, &[1], &bf16),
            ("c", Dtype::F64, &[2], &f64),
        ]);
        assert_eq!(
            Weights::parse(&bytes).unwrap().values().unwrap(),
            [1.5, -2.0, 0.25, 0.1, 1.0]
        );
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let refused = |bytes: &[u8]| {
            Weights::parse(bytes)
                .and_then(|weights| weights.values())
                .unwrap_err()
                .to_string()
        };
        let complex = refused(&file(&[("complex", Dtype::C64, &[1], &[0; 8])]));
        assert!(
            complex.contains("`complex` is C64") && complex.contains(".float()"),
            "{complex}"
        );
        let large = refused(&file(&[("large", Dtype::F64, &[1], &1e39f64.to_le_bytes())]));
        assert_eq!(large, "not finite: tensor `large`, value 0");
        let deep = refused(&file(&[("deep", Dtype::F32, &[1; 9], &[0; 4])]));
        assert!(deep.contains("`deep` has shape [1, 1, 1, 1, 1, 1, 1, 1, 1]"), "{deep}");
        let mut nan = vec![0; 8];
        nan[4..].copy_from_slice(&f32::NAN.to_le_bytes());
        let nan = refused(&file(&[("w", Dtype::F32, &[2], &nan)]));
        assert_eq!(nan, "not finite: tensor `w`, value 1");
    }

    /// A file of `header`, then `data`.
    fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
    }

    #[test]
    fn a_duplicate_name_is_refused() {
        let entry = |name: &str, shape: &str, offsets: &str| {
            format!("\"{name}\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":{offsets}}}")
        };
        let parse = |header: String| Weights::parse(&with_header(&header, &[0; 24])).map(drop);
        let (whole, turned) = (entry("w", "[2,3]", "[0,24]"), entry("w", "[3,2]", "[0,24]"));
        assert_eq!(parse(format!("{{{whole}}}")), Ok(()));
        // An escaped spelling is the same name.
        let spelled = turned.replace("\"w\"", "\"\\u0077\"");
        for twice in [format!("{{{whole},{turned}}}"), format!("{{{whole},{spelled}}}")] {
            let why = parse(twice).unwrap_err().to_string();
            assert!(why.contains("tensor `w` occurs twice"), "{why}");
        }
        let notes = format!("{{\"__metadata__\":{{\"a\":\"1\"}},{whole}}}");
        assert_eq!(parse(notes), Ok(()));
    }

    #[test]
    fn integers_come_back_exactly_and_are_no_part_of_the_layout() {
        let counter = 1234567890123u64.to_le_bytes();
        let bytes = file(&[
            ("bn.num_batches_tracked", Dtype::I64, &[], &counter),
            ("bn.weight", Dtype::F32, &[1], &1.5f32.to_le_bytes()),
            ("mask", Dtype::BOOL, &[3], &[1, 0, 1]),
        ]);
        let weights = Weights::parse(&bytes).unwrap();
        assert_eq!(weights.layout(), &layout(&[("bn.weight", &[1])]));
        assert_eq!(weights.values().unwrap(), [1.5]);
        let why = weights.expect_floats().unwrap_err().to_string();
        assert!(why.contains("`bn.num_batches_tracked` is I64"), "{why}");
        // The `safetensors` crate writes the same bytes.
        let again = to_safetensors_with(weights.layout(), &[1.5], weights.integers(), &Notes::new()).unwrap();
        assert_eq!(again, bytes);
    }

    #[test]
    fn integers_are_added_and_subtracted_in_their_own_width() {
        let tensor = |dtype, bytes: &'static [u8]| {
            let shape = vec![bytes.len() * 8 / Dtype::bitsize(&dtype)];
            let info = TensorInfo {
                dtype,
                shape,
                data_offsets: (0, bytes.len()),
            };
            IntegerTensor::of("n", &info, bytes).unwrap()
        };
        for (dtype, old, new) in [
            (Dtype::U8, &[250, 3][..], &[4, 1][..]),
            (Dtype::BOOL, &[0, 1, 1], &[1, 1, 0]),
            (Dtype::I16, &[0xff, 0x7f], &[0, 0x80]),
            (Dtype::U32, &[1, 0, 0, 0], &[0, 0, 0, 0]),
            (Dtype::I64, &[255, 0, 0, 0, 0, 0, 0, 0], &[0, 1, 0, 0, 0, 0, 0, 0]),
        ] {
            let (old, new) = (tensor(dtype, old), tensor(dtype, new));
            let delta = new.minus(&old).unwrap();
            assert_eq!(old.plus(&delta).unwrap(), new, "{dtype}");
        }
        let why = tensor(Dtype::I8, &[0]).minus(&tensor(Dtype::U8, &[0])).unwrap_err();
        assert!(why.to_string().contains("`n` is U8 [1]; I8 [1] is expected"), "{why}");
    }

    #[test]
    fn notes_come_back() {
        let notes: Notes = [(SEED, "42"), (LEARNER, "mlp")]
            .map(|(key, text)| (key.to_owned(), text.to_owned()))
            .into();
        let bytes = to_safetensors_with(&layout(&[("a", &[1])]), &[1.0], &[], &notes).unwrap();
        assert_eq!(Weights::parse(&bytes).unwrap().notes(), &notes);
    }

    #[test]
    fn a_file_of_pytorch_is_told_how_to_become_safetensors() {
        for start in [
            &b"PK\x03\x04\x00\x00\x08\x08archive/data.pkl"[..],
            b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.",
        ] {
            let why = Weights::parse(start).unwrap_err().to_string();
            assert!(why.contains("torch.save") && why.contains("save_file("), "{why}");
        }
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
    fn another_role_is_a_difference() {
        let own = crate::layout::tests::batch_norm();
        let plain = Layout::new(
            own.tensors()
                .iter()
                .map(|tensor| (tensor.name.clone(), tensor.shape.clone())),
        )
        .unwrap();
        assert_eq!(expect_same(&own, &own), Ok(()));
        let why = expect_same(&own, &plain).unwrap_err().to_string();
        assert!(
            why.contains("`bn.num_batches_tracked` has the role counter; trained is expected"),
            "{why}"
        );
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
