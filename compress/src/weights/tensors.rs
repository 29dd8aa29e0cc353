//! Reads tensors of every type, by name, from a safetensors file.

use std::collections::BTreeMap;

use safetensors::tensor::TensorInfo;

use crate::error::Error;
use crate::finite::all_finite;
use crate::layout::{Dtype, Layout, TensorSpec};
use crate::weights::convert;
use crate::weights::file::expect_finite;
use crate::weights::header::{self, CheckedFile};
use crate::weights::notes::Notes;

/// One tensor of a [`TensorFile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredTensor<'a> {
    /// Type of the values.
    pub dtype: Dtype,
    shape: &'a [usize],
    /// The values, little-endian.
    pub bytes: &'a [u8],
}

impl StoredTensor<'_> {
    /// Extent of each dimension, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        self.shape
    }
}

/// A safetensors file with a checked header, whose tensors have the types of [`Dtype`].
#[derive(Debug)]
pub struct TensorFile<'a> {
    /// By name.
    tensors: BTreeMap<String, (TensorInfo, Dtype)>,
    file: CheckedFile<'a>,
}

impl<'a> TensorFile<'a> {
    /// Checks the header of `bytes`: complete, no duplicate name, every tensor of a supported type.
    ///
    /// # Errors
    /// `Corrupt` if `bytes` is not a complete safetensors file or a name occurs twice in its header; `Mismatch` if a
    /// tensor has an unsupported type; `Usage` for a file of `torch.save`. The error names the tensor.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let file = CheckedFile::parse(bytes)?;
        let mut tensors = BTreeMap::new();
        for (name, info) in file.tensors() {
            let Some(dtype) = header::own_type(info.dtype) else {
                let supported = Dtype::ALL.map(Dtype::name).join(", ");
                return Err(Error::Mismatch(format!(
                    "tensor `{name}` is {}, which is not supported; convert it to one of {supported}",
                    info.dtype
                )));
            };
            tensors.insert(name, (info.clone(), dtype));
        }
        Ok(Self { tensors, file })
    }

    /// The tensors by name, in ascending order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = (&str, StoredTensor<'_>)> {
        self.tensors
            .iter()
            .map(|(name, entry)| (name.as_str(), self.stored(entry)))
    }

    fn stored<'s>(&'s self, (info, dtype): &'s (TensorInfo, Dtype)) -> StoredTensor<'s> {
        StoredTensor {
            dtype: *dtype,
            shape: &info.shape,
            bytes: self.file.bytes(info),
        }
    }

    /// The metadata texts.
    pub fn notes(&self) -> &Notes {
        &self.file.notes
    }

    /// Reads the values of the tensors of `layout`; the file may have more tensors. Shapes: `out: [layout.len()]`.
    ///
    /// # Errors
    /// `Mismatch` if a tensor is missing or has another type or shape; `NotFinite`; each names the tensor. `out` is
    /// unspecified then. `Usage` if `out` has another length.
    pub fn values(&self, layout: &Layout, out: &mut [f32]) -> Result<(), Error> {
        layout.expect_len(out)?;
        for tensor in layout.tensors() {
            let bytes = self.find(&tensor.name, tensor.dtype, &tensor.shape)?;
            let out = &mut out[tensor.offset..tensor.offset + tensor.len];
            convert::read(tensor.dtype, bytes, out);
            expect_finite(tensor, out)?;
        }
        Ok(())
    }

    /// The bytes of a tensor in its own type, little-endian: for tensors that are in no layout.
    ///
    /// # Errors
    /// `Mismatch` if the tensor is missing or has another type or shape.
    pub fn raw(&self, tensor: &TensorSpec) -> Result<&'a [u8], Error> {
        self.find(&tensor.name, tensor.dtype, &tensor.shape)
    }

    /// As [`TensorFile::raw`], and the values are finite.
    ///
    /// # Errors
    /// Also `NotFinite`, naming the tensor and the index within it.
    pub fn raw_finite(&self, tensor: &TensorSpec) -> Result<&'a [u8], Error> {
        let bytes = self.raw(tensor)?;
        expect_finite_bytes(&tensor.name, tensor.dtype, bytes, false)?;
        Ok(bytes)
    }

    /// As [`TensorFile::raw_finite`], but values may be infinite: those of a mask are.
    ///
    /// # Errors
    /// `NotFinite` for NaN.
    pub fn raw_or_infinite(&self, tensor: &TensorSpec) -> Result<&'a [u8], Error> {
        let bytes = self.raw(tensor)?;
        expect_finite_bytes(&tensor.name, tensor.dtype, bytes, true)?;
        Ok(bytes)
    }

    /// Succeeds if every tensor of the file has one of these names.
    ///
    /// # Errors
    /// `Mismatch`, naming the first tensor that has not.
    pub fn expect_only<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Result<(), Error> {
        let names: std::collections::BTreeSet<&str> = names.into_iter().collect();
        let other = self.tensors.keys().find(|name| !names.contains(name.as_str()));
        other.map_or(Ok(()), |name| {
            Err(Error::Mismatch(format!("tensor `{name}` is not expected")))
        })
    }

    fn find(&self, name: &str, dtype: Dtype, shape: &[usize]) -> Result<&'a [u8], Error> {
        let Some((info, stored)) = self.tensors.get(name) else {
            // Programs that write models may leave out what has no values.
            if shape.contains(&0) {
                return Ok(&[]);
            }
            return Err(Error::Mismatch(format!("tensor `{name}` is missing")));
        };
        if (*stored, info.shape.as_slice()) != (dtype, shape) {
            return Err(Error::Mismatch(format!(
                "tensor `{name}` is {} {:?}; {} {shape:?} is expected",
                stored.name(),
                info.shape,
                dtype.name()
            )));
        }
        Ok(self.file.bytes(info))
    }
}

/// Succeeds if no value is NaN, nor infinite unless the values may be `infinite`.
///
/// # Errors
/// `NotFinite`, naming the tensor and the index within it.
fn expect_finite_bytes(name: &str, dtype: Dtype, bytes: &[u8], infinite: bool) -> Result<(), Error> {
    let is_bad = |value: f64| value.is_nan() || !infinite && value.is_infinite();
    let bad = match dtype {
        // Through `f32`, a large double would become infinite.
        Dtype::F64 => {
            let values = bytes.as_chunks().0.iter();
            values.map(|value| f64::from_le_bytes(*value)).position(is_bad)
        }
        _ if dtype.is_float() => {
            let mut block = [0.0; 4096];
            let blocks = bytes.chunks(block.len() * dtype.width()).enumerate();
            blocks.into_iter().find_map(|(at, bytes)| {
                let values = &mut block[..bytes.len() / dtype.width()];
                convert::read(dtype, bytes, values);
                let bad = || values.iter().position(|value| is_bad(f64::from(*value)));
                (!all_finite(values)).then(bad).flatten().map(|bad| at * 4096 + bad)
            })
        }
        _ => None,
    };
    bad.map_or(Ok(()), |at| {
        Err(Error::NotFinite(format!("tensor `{name}`, value {at}")))
    })
}
