//! The shape of a model: names, shapes, types, roles and offsets of its tensors in one flat `f32` vector.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::digest::Digest;
use crate::error::Error;

/// Largest number of values a layout may hold: what a `u32` index can address.
pub const MAX_VALUES: usize = u32::MAX as usize;
/// Largest number of tensors a layout may hold.
pub const MAX_TENSORS: usize = 65_535;
/// Largest number of dimensions of one tensor.
pub const MAX_DIMS: usize = 8;
/// Longest tensor name in bytes.
pub const MAX_NAME: usize = 255;

/// Each row is a type: its name in the header of a safetensors file, which the `safetensors` crate has for it too, and its bytes
/// per value. Their order is that of their numbers in stored and sent layouts.
macro_rules! dtypes {
    ($($(#[$doc:meta])* $dtype:ident = $name:ident, $width:literal;)*) => {
        /// Type of a tensor's values where the model is used. In a layout's flat vector, every value is `f32`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
        pub enum Dtype {
            $($(#[$doc])* $dtype,)*
        }

        impl Dtype {
            /// Every type, in the order of their numbers in stored and sent layouts.
            pub const ALL: [Self; [$($width),*].len()] = [$(Self::$dtype),*];

            /// Name, as in the header of a safetensors file.
            pub fn name(self) -> &'static str {
                [$(stringify!($name)),*][self as usize]
            }

            /// Bytes per value.
            pub fn width(self) -> usize {
                [$($width),*][self as usize]
            }

            /// The type of the `safetensors` crate.
            pub(crate) fn stored(self) -> safetensors::Dtype {
                [$(safetensors::Dtype::$name),*][self as usize]
            }
        }
    };
}

dtypes! {
    /// IEEE 754 single precision.
    #[default]
    F32 = F32, 4;
    /// IEEE 754 half precision.
    F16 = F16, 2;
    /// bfloat16: the upper half of an `f32`.
    Bf16 = BF16, 2;
    /// IEEE 754 double precision.
    F64 = F64, 8;
    /// 64-bit signed integer.
    I64 = I64, 8;
    /// 32-bit signed integer.
    I32 = I32, 4;
    /// 8-bit unsigned integer.
    U8 = U8, 1;
    /// One byte, 0 or 1.
    Bool = BOOL, 1;
    /// 8-bit signed integer.
    I8 = I8, 1;
    /// 16-bit signed integer.
    I16 = I16, 2;
    /// 16-bit unsigned integer.
    U16 = U16, 2;
    /// 32-bit unsigned integer.
    U32 = U32, 4;
    /// 64-bit unsigned integer.
    U64 = U64, 8;
}

impl Dtype {
    /// The type with this [`Dtype::name`].
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Whether the type is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16 | Self::F64)
    }
}

/// What a federation does with a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Trained by clients and compressed.
    #[default]
    Trained,
    /// Running statistics: averaged; sent exactly or in half precision, never sparse and never part of a residual.
    Buffer,
    /// Integers of which the largest counts, such as PyTorch's `num_batches_tracked`. At most 2^24 in magnitude.
    Counter,
    /// Personal: never leaves the client.
    Local,
    /// A base model that nobody changes: named by its digest, never sent in a round.
    Frozen,
}

impl Role {
    /// Every role, in the order of their numbers in stored and sent layouts.
    pub const ALL: [Self; 5] = [Self::Trained, Self::Buffer, Self::Counter, Self::Local, Self::Frozen];

    /// Name, as in run.toml.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trained => "trained",
            Self::Buffer => "buffer",
            Self::Counter => "counter",
            Self::Local => "local",
            Self::Frozen => "frozen",
        }
    }

    /// Whether tensors of this role are part of updates and model updates, and so of a [`Layout`].
    pub fn travels(self) -> bool {
        matches!(self, Self::Trained | Self::Buffer | Self::Counter)
    }
}

/// A tensor without its place in a layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TensorSpec {
    /// Name, as in the model's safetensors file.
    pub name: String,
    /// Extent of each dimension, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// Type of the values.
    pub dtype: Dtype,
    /// Role in the federation.
    pub role: Role,
}

impl TensorSpec {
    /// A tensor of this name, shape, type and role.
    pub fn new(name: impl Into<String>, shape: &[usize], dtype: Dtype, role: Role) -> Self {
        Self {
            name: name.into(),
            shape: shape.to_vec(),
            dtype,
            role,
        }
    }

    /// Number of values: the product of `shape`; `None` if it exceeds [`MAX_VALUES`].
    pub fn values(&self) -> Option<usize> {
        product(&self.shape).filter(|&len| len <= MAX_VALUES)
    }

    /// Succeeds if name and shape are within the limits of a layout, also where the role does not travel.
    ///
    /// # Errors
    /// `Usage`, naming the tensor.
    pub fn check(&self) -> Result<(), Error> {
        let Self { name, shape, .. } = self;
        check_name_and_shape(name, shape)?;
        if name == "__metadata__" {
            let why = "tensor `__metadata__`: a safetensors file has its notes under this name; choose another";
            return Err(Error::Usage(why.to_owned()));
        }
        if self.values().is_none() {
            return Err(Error::Usage(format!(
                "tensor `{name}` makes the model larger than {MAX_VALUES} values"
            )));
        }
        Ok(())
    }
}

impl From<&Tensor> for TensorSpec {
    fn from(tensor: &Tensor) -> Self {
        Self::new(&tensor.name, &tensor.shape, tensor.dtype, tensor.role)
    }
}

/// Succeeds if a layout may hold a tensor of this name and shape.
///
/// # Errors
/// `Usage`, naming the tensor.
pub(crate) fn check_name_and_shape(name: &str, shape: &[usize]) -> Result<(), Error> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Error::Usage(format!(
            "tensor name `{name}` must have 1 to {MAX_NAME} bytes"
        )));
    }
    if shape.len() > MAX_DIMS {
        return Err(Error::Usage(format!(
            "tensor `{name}` has shape {shape:?}; at most {MAX_DIMS} dimensions"
        )));
    }
    Ok(())
}

/// Number of values of a tensor, whatever the order of its dimensions; `None` if it exceeds a `usize`.
pub(crate) fn product(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        Some(0)
    } else {
        shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
    }
}

/// One tensor of a [`Layout`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name, as in the model's safetensors file.
    pub name: String,
    /// Extent of each dimension, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// Type of the values outside the flat vector.
    pub dtype: Dtype,
    /// [`Role::Trained`], [`Role::Buffer`] or [`Role::Counter`].
    pub role: Role,
    /// Index of the tensor's first value in the flat vector.
    pub offset: usize,
    /// Number of values: the product of `shape`. A tensor without values has a place in the layout, and no section in a frame.
    pub len: usize,
}

/// A tensor as a matrix: the first dimension by the product of the others; a vector is one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

impl Shape {
    /// One row of `len` values.
    pub(crate) fn row(len: usize) -> Self {
        Self { rows: 1, cols: len }
    }

    pub(crate) fn len(self) -> usize {
        self.rows * self.cols
    }
}

impl Tensor {
    pub(crate) fn matrix(&self) -> Shape {
        match self.shape.as_slice() {
            [rows, _, ..] if self.len > 0 => Shape {
                rows: *rows,
                cols: self.len / rows,
            },
            _ => Shape::row(self.len),
        }
    }

    /// Values for each pair of an output and an input of a convolution: the product of the dimensions after the second; 1 if
    /// there are none. Of a tensor with values.
    pub(crate) fn places(&self) -> usize {
        self.shape.iter().skip(2).product()
    }
}

/// The tensors of a model that travel: trained tensors first, then buffers, then counters, each sorted by name, without
/// gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    tensors: Vec<Tensor>,
    len: usize,
    /// Number of values of trained tensors, and of trained tensors and buffers.
    ends: [usize; 2],
    fingerprint: u64,
}

impl Layout {
    /// A layout of trained `f32` tensors from names and shapes, in any order.
    ///
    /// # Errors
    /// As [`Layout::of`].
    pub fn new<N: Into<String>>(tensors: impl IntoIterator<Item = (N, Vec<usize>)>) -> Result<Self, Error> {
        Self::of(tensors.into_iter().map(|(name, shape)| TensorSpec {
            name: name.into(),
            shape,
            ..TensorSpec::default()
        }))
    }

    /// Builds a layout from tensors, in any order.
    ///
    /// # Errors
    /// `Usage` if a name is empty, too long or given twice, a limit is exceeded, the role does not
    /// travel, or the type does not suit the role: trained tensors and buffers are floating-point, counters are integers.
    pub fn of(tensors: impl IntoIterator<Item = TensorSpec>) -> Result<Self, Error> {
        let mut names = BTreeSet::new();
        let mut sorted = BTreeMap::new();
        for tensor in tensors {
            check(&tensor)?;
            if sorted.len() == MAX_TENSORS {
                return Err(Error::Usage(format!("a layout holds at most {MAX_TENSORS} tensors")));
            }
            if !names.insert(tensor.name.clone()) {
                return Err(Error::Usage(format!("tensor `{}` is given twice", tensor.name)));
            }
            sorted.insert((tensor.role, tensor.name.clone()), tensor);
        }
        let mut out = Vec::with_capacity(sorted.len());
        let mut offset = 0usize;
        let mut ends = [0; 2];
        for spec in sorted.into_values() {
            let len = spec.values().filter(|&n| n <= MAX_VALUES - offset);
            let TensorSpec {
                name,
                shape,
                dtype,
                role,
            } = spec;
            let Some(len) = len else {
                return Err(Error::Usage(format!(
                    "tensor `{name}` makes the model larger than {MAX_VALUES} values"
                )));
            };
            out.push(Tensor {
                name,
                shape,
                dtype,
                role,
                offset,
                len,
            });
            offset += len;
            for (end, last) in ends.iter_mut().zip([Role::Trained, Role::Buffer]) {
                if role <= last {
                    *end = offset;
                }
            }
        }
        let fingerprint = fingerprint(&out);
        Ok(Self {
            tensors: out,
            len: offset,
            ends,
            fingerprint,
        })
    }

    /// The tensors, sorted by role and name; their ranges cover `0..len` without gaps.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Number of values in the flat vector.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the layout holds no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The values of trained tensors in the flat vector.
    pub fn trained(&self) -> Range<usize> {
        0..self.ends[0]
    }

    /// The values of buffers in the flat vector.
    pub fn buffers(&self) -> Range<usize> {
        self.ends[0]..self.ends[1]
    }

    /// The values of counters in the flat vector.
    pub fn counters(&self) -> Range<usize> {
        self.ends[1]..self.len
    }

    /// The values of the tensors of one role; empty for a role that does not travel.
    pub fn range(&self, role: Role) -> Range<usize> {
        match role {
            Role::Trained => self.trained(),
            Role::Buffer => self.buffers(),
            Role::Counter => self.counters(),
            Role::Local | Role::Frozen => self.len..self.len,
        }
    }

    /// Succeeds if `values` are as many as those of the layout.
    ///
    /// # Errors
    /// `Usage`.
    pub(crate) fn expect_len(&self, values: &[f32]) -> Result<(), Error> {
        if values.len() == self.len {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "{} values for a layout of {}",
            values.len(),
            self.len
        )))
    }

    /// Short digest of names and shapes, and of types and roles where they are not trained `f32`. A frame carries it, so
    /// that it cannot be decoded into another model.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

fn check(tensor: &TensorSpec) -> Result<(), Error> {
    tensor.check()?;
    let TensorSpec { name, dtype, role, .. } = tensor;
    let allowed = match role {
        Role::Trained | Role::Buffer => dtype.is_float(),
        Role::Counter => !dtype.is_float(),
        Role::Local | Role::Frozen => false,
    };
    if !allowed {
        return Err(Error::Usage(format!(
            "tensor `{name}` is {} and cannot have the role {}",
            dtype.name(),
            role.name()
        )));
    }
    Ok(())
}

fn fingerprint(tensors: &[Tensor]) -> u64 {
    let mut bytes = Vec::new();
    for tensor in tensors {
        bytes.push(tensor.name.len() as u8);
        bytes.extend_from_slice(tensor.name.as_bytes());
        bytes.push(tensor.shape.len() as u8);
        tensor
            .shape
            .iter()
            .for_each(|&d| bytes.extend_from_slice(&(d as u64).to_le_bytes()));
        // A name has at least one byte, so the zero cannot be the next tensor.
        if (tensor.dtype, tensor.role) != Default::default() {
            bytes.extend([0, tensor.dtype as u8, tensor.role as u8]);
        }
    }
    Digest::of(&bytes).short()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A convolution with batch normalization and a linear layer.
    pub(crate) fn batch_norm() -> Layout {
        Layout::of([
            tensor("bn.bias", &[4], Dtype::F32, Role::Trained),
            tensor("bn.num_batches_tracked", &[], Dtype::I64, Role::Counter),
            tensor("bn.running_mean", &[4], Dtype::F32, Role::Buffer),
            tensor("bn.running_var", &[4], Dtype::F16, Role::Buffer),
            tensor("bn.weight", &[4], Dtype::F32, Role::Trained),
            tensor("conv.weight", &[4, 3, 3], Dtype::Bf16, Role::Trained),
            tensor("fc.weight", &[2, 36], Dtype::F32, Role::Trained),
            tensor("seen", &[2], Dtype::I32, Role::Counter),
        ])
        .unwrap()
    }

    fn tensor(name: &str, shape: &[usize], dtype: Dtype, role: Role) -> TensorSpec {
        TensorSpec::new(name, shape, dtype, role)
    }

    #[test]
    fn trained_tensors_come_first_then_buffers_then_counters() {
        let layout = Layout::of([
            tensor("a.batches", &[], Dtype::I64, Role::Counter),
            tensor("a.mean", &[3], Dtype::F32, Role::Buffer),
            tensor("z", &[2, 2], Dtype::Bf16, Role::Trained),
            tensor("b", &[5], Dtype::F32, Role::Trained),
        ])
        .unwrap();
        let names: Vec<_> = layout.tensors().iter().map(|t| (t.name.as_str(), t.offset)).collect();
        assert_eq!(names, [("b", 0), ("z", 5), ("a.mean", 9), ("a.batches", 12)]);
        assert_eq!(
            (layout.trained(), layout.buffers(), layout.counters()),
            (0..9, 9..12, 12..13)
        );
        assert!(Layout::new([("__metadata__", vec![7])]).is_err());
        let plain = Layout::new([("w", vec![7])]).unwrap();
        assert_eq!((plain.trained(), plain.buffers(), plain.counters()), (0..7, 7..7, 7..7));
    }

    #[test]
    fn types_and_roles_change_the_fingerprint_and_plain_layouts_keep_theirs() {
        let of = |dtype, role| Layout::of([tensor("w", &[4], dtype, role)]).unwrap().fingerprint();
        let plain = of(Dtype::F32, Role::Trained);
        assert_eq!(plain, Layout::new([("w", vec![4])]).unwrap().fingerprint());
        let others = [
            of(Dtype::F16, Role::Trained),
            of(Dtype::F32, Role::Buffer),
            of(Dtype::I64, Role::Counter),
            of(Dtype::I32, Role::Counter),
        ];
        for (at, other) in others.iter().enumerate() {
            assert!(*other != plain && !others[..at].contains(other));
        }
    }

    #[test]
    fn a_type_that_does_not_suit_the_role_is_refused_by_name() {
        for (dtype, role) in [
            (Dtype::I64, Role::Trained),
            (Dtype::Bool, Role::Buffer),
            (Dtype::F32, Role::Counter),
            (Dtype::F32, Role::Local),
            (Dtype::F32, Role::Frozen),
        ] {
            let why = Layout::of([tensor("w", &[4], dtype, role)]).unwrap_err().to_string();
            assert!(why.contains("`w`") && why.contains(role.name()), "{why}");
        }
    }
}
