//! Integer and Boolean tensors (counters and masks), which are transmitted unchanged.

use std::borrow::Cow;

use safetensors::tensor::{Dtype, TensorInfo};

use crate::error::Error;
use crate::layout::{MAX_DIMS, check_name_and_shape, product};
use crate::wire::{Reader, Writer};

// The supported types, in the order of their numbers in an archive.
const DTYPES: [Dtype; 9] = [
    Dtype::BOOL,
    Dtype::U8,
    Dtype::I8,
    Dtype::I16,
    Dtype::U16,
    Dtype::I32,
    Dtype::U32,
    Dtype::I64,
    Dtype::U64,
];

/// An integer or Boolean tensor, such as `num_batches_tracked` of PyTorch's batch normalization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntegerTensor<'a> {
    /// Name, as in the safetensors file.
    pub name: String,
    /// Extent of each dimension, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) bytes: Cow<'a, [u8]>,
}

impl<'a> IntegerTensor<'a> {
    /// The tensor described by `info` with these `bytes`; `None` if its type is not supported.
    pub(crate) fn of(name: &str, info: &TensorInfo, bytes: &'a [u8]) -> Option<Self> {
        DTYPES.contains(&info.dtype).then(|| Self {
            name: name.to_owned(),
            shape: info.shape.clone(),
            dtype: info.dtype,
            bytes: Cow::Borrowed(bytes),
        })
    }

    /// Name of the type, as in a safetensors header.
    pub fn dtype(&self) -> String {
        self.dtype.to_string()
    }

    /// The values, little-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The difference `self - old` of each value, modulo 2^(bits of the type); exclusive or for Boolean values.
    ///
    /// # Errors
    /// `Mismatch` if type or shape differ.
    pub fn minus(&self, old: &Self) -> Result<IntegerTensor<'static>, Error> {
        self.combine(old, u64::wrapping_sub)
    }

    /// The sum `self + delta`: the inverse of [`IntegerTensor::minus`].
    ///
    /// # Errors
    /// As [`IntegerTensor::minus`].
    pub fn plus(&self, delta: &Self) -> Result<IntegerTensor<'static>, Error> {
        self.combine(delta, u64::wrapping_add)
    }

    fn combine(&self, other: &Self, number: impl Fn(u64, u64) -> u64) -> Result<IntegerTensor<'static>, Error> {
        if (self.dtype, &self.shape) != (other.dtype, &other.shape) {
            return Err(Error::Mismatch(format!(
                "tensor `{}` is {} {:?}; {} {:?} is expected",
                other.name, other.dtype, other.shape, self.dtype, self.shape
            )));
        }
        let width = width(self.dtype);
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..width].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for (one, two) in self.bytes.chunks_exact(width).zip(other.bytes.chunks_exact(width)) {
            let one = word(one);
            let two = word(two);
            let result = match self.dtype {
                Dtype::BOOL => one ^ two,
                _ => number(one, two),
            };
            bytes.extend_from_slice(&result.to_le_bytes()[..width]);
        }
        Ok(IntegerTensor {
            name: self.name.clone(),
            shape: self.shape.clone(),
            dtype: self.dtype,
            bytes: Cow::Owned(bytes),
        })
    }

    /// Appends name, type, shape and values in the form of an archive.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        let dtype = DTYPES.iter().position(|dtype| *dtype == self.dtype).unwrap_or_default();
        out.u8(self.name.len() as u8);
        out.bytes(self.name.as_bytes());
        out.u8(dtype as u8);
        out.u8(self.shape.len() as u8);
        self.shape.iter().for_each(|&extent| out.varint(extent as u64));
        out.bytes(&self.bytes);
    }

    /// Reads the output of [`IntegerTensor::write`]. Allocates only for name and shape.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let len = usize::from(reader.u8("name length")?);
        let name = std::str::from_utf8(reader.take(len, "name")?).map_err(|_| reader.corrupt("name"))?;
        let dtype = DTYPES.get(usize::from(reader.u8("type of a tensor")?)).copied();
        let dtype = dtype.ok_or_else(|| reader.corrupt("type of a tensor"))?;
        let dims = usize::from(reader.u8("number of dimensions")?);
        if dims > MAX_DIMS {
            return Err(reader.corrupt("number of dimensions"));
        }
        let mut shape = Vec::with_capacity(dims);
        for _ in 0..dims {
            let extent = reader.varint("dimension")?;
            shape.push(usize::try_from(extent).map_err(|_| reader.corrupt("dimension"))?);
        }
        let size = size(&shape, dtype).ok_or_else(|| reader.corrupt("dimension"))?;
        let tensor = Self {
            name: name.to_owned(),
            shape,
            dtype,
            bytes: Cow::Borrowed(reader.take(size, "integers")?),
        };
        tensor.check().map_err(|why| reader.corrupt(&why.to_string()))?;
        Ok(tensor)
    }

    /// Succeeds if name and shape are valid for a [`crate::Layout`].
    ///
    /// # Errors
    /// `Usage`.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name_and_shape(&self.name, &self.shape)
    }
}

fn width(dtype: Dtype) -> usize {
    dtype.bitsize() / 8
}

fn size(shape: &[usize], dtype: Dtype) -> Option<usize> {
    product(shape)?.checked_mul(width(dtype))
}
