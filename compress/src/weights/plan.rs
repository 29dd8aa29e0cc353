//! Writes the values of a layout, each tensor in its own type, as a safetensors file.

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;

use crate::digest::Digest;
use crate::error::Error;
use crate::layout::{Dtype, Layout, Role, TensorSpec};
use crate::weights::convert;
use crate::weights::header::Entries;
use crate::weights::notes::Notes;

// Values that are converted at a time: 64 KiB of `f32`, which stay in the L2 cache.
const BLOCK: usize = 16 * 1024;

/// A safetensors file of certain tensors: header and places are computed once, values written any number of times.
/// The `safetensors` crate writes the same bytes, except for the order of several metadata texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlan {
    head: Vec<u8>,
    /// In the order of the file.
    places: Vec<Place>,
    len: usize,
    /// Length of the layout, and number of raw tensors.
    takes: (usize, usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    dtype: Dtype,
    from: Source,
    len: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// A range of the flat vector.
    Values(Range<usize>),
    /// An index into the raw tensors.
    Raw(usize),
}

impl FilePlan {
    /// A file of the tensors of `layout` and of the tensors `raw`, whose values are given as bytes.
    ///
    /// # Errors
    /// `Usage` if a name occurs twice or the header exceeds the limit of the format.
    pub fn new(layout: &Layout, raw: &[TensorSpec], notes: &Notes) -> Result<Self, Error> {
        let travelling = layout.tensors().iter().map(|tensor| {
            let from = Source::Values(tensor.offset..tensor.offset + tensor.len);
            (
                tensor.name.as_str(),
                tensor.shape.as_slice(),
                tensor.dtype,
                from,
                Some(tensor.len),
            )
        });
        let aside = raw.iter().enumerate().map(|(at, tensor)| {
            let shape = tensor.shape.as_slice();
            (
                tensor.name.as_str(),
                shape,
                tensor.dtype,
                Source::Raw(at),
                tensor.values(),
            )
        });
        let mut tensors: Vec<_> = travelling.chain(aside).collect();
        // Wide types first, as the format requires, so that every tensor is aligned.
        tensors.sort_by(|a, b| b.2.stored().cmp(&a.2.stored()).then_with(|| a.0.cmp(b.0)));
        let mut names: Vec<&str> = tensors.iter().map(|tensor| tensor.0).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::Usage(format!("tensor `{}` is given twice", twice[0])));
        }
        let mut entries = Entries::new(notes);
        let mut places = Vec::with_capacity(tensors.len());
        for (name, shape, dtype, from, values) in tensors {
            let len = values.and_then(|values| values.checked_mul(dtype.width()));
            let Some(len) = len else {
                return Err(Error::Usage(format!(
                    "tensor `{name}` has shape {shape:?}, which is too large"
                )));
            };
            entries.add(name, dtype.stored(), shape, len);
            places.push(Place { dtype, from, len });
        }
        let head = entries.head()?;
        Ok(Self {
            len: head.len() + places.iter().map(|place| place.len).sum::<usize>(),
            head,
            places,
            takes: (layout.len(), raw.len()),
        })
    }

    /// Size of the file in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the file has no tensor.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Index and bytes of each raw tensor, in the order of the file.
    pub(crate) fn raw(&self) -> impl Iterator<Item = (usize, usize)> {
        self.places.iter().filter_map(|place| match place.from {
            Source::Raw(at) => Some((at, place.len)),
            Source::Values(_) => None,
        })
    }

    /// Fills `out`, each value rounded as by [`round_to_types`]. Shapes: `values: [layout.len()]`; `raw`: the bytes of
    /// each raw tensor, in the order of [`FilePlan::new`]; `out: [self.len()]`.
    ///
    /// # Errors
    /// `Usage` if a length differs.
    pub fn write<R: AsRef<[u8]>>(&self, values: &[f32], raw: &[R], out: &mut [u8]) -> Result<(), Error> {
        if out.len() != self.len {
            return Err(Error::Usage(format!("{} bytes for a file of {}", out.len(), self.len)));
        }
        self.check(values, raw)?;
        let (head, mut rest) = out.split_at_mut(self.head.len());
        head.copy_from_slice(&self.head);
        for place in &self.places {
            let (out, after) = std::mem::take(&mut rest).split_at_mut(place.len);
            match &place.from {
                Source::Values(range) => convert::write(place.dtype, &values[range.clone()], out),
                Source::Raw(at) => out.copy_from_slice(raw[*at].as_ref()),
            }
            rest = after;
        }
        Ok(())
    }

    /// As [`FilePlan::write`], in small blocks.
    ///
    /// # Errors
    /// `InvalidInput` if a length differs; errors of `out`.
    pub fn write_to<R: AsRef<[u8]>>(&self, values: &[f32], raw: &[R], out: &mut impl Write) -> io::Result<()> {
        self.check(values, raw)
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        out.write_all(&self.head)?;
        let mut block = Vec::new();
        for Place { dtype, from, .. } in &self.places {
            match from {
                Source::Raw(at) => out.write_all(raw[*at].as_ref())?,
                Source::Values(range) => {
                    for values in values[range.clone()].chunks(BLOCK) {
                        block.resize(values.len() * dtype.width(), 0);
                        convert::write(*dtype, values, &mut block);
                        out.write_all(&block)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The digest of the file. Without metadata texts and for raw tensors only, this is the identity of a base model.
    ///
    /// # Errors
    /// As [`FilePlan::write`].
    pub fn digest<R: AsRef<[u8]>>(&self, values: &[f32], raw: &[R]) -> Result<Digest, Error> {
        let mut hasher = blake3::Hasher::new();
        let written = self.write_to(values, raw, &mut hasher);
        written.map_err(|why| Error::Usage(why.to_string()))?;
        Ok(Digest(*hasher.finalize().as_bytes()))
    }

    fn check<R: AsRef<[u8]>>(&self, values: &[f32], raw: &[R]) -> Result<(), Error> {
        if (values.len(), raw.len()) != self.takes {
            let (len, count) = self.takes;
            return Err(Error::Usage(format!(
                "{} values and {} tensors for a file of {len} values and {count} tensors",
                values.len(),
                raw.len()
            )));
        }
        for place in &self.places {
            if let Source::Raw(at) = place.from
                && raw[at].as_ref().len() != place.len
            {
                return Err(Error::Usage(format!(
                    "{} bytes for a tensor of {}",
                    raw[at].as_ref().len(),
                    place.len
                )));
            }
        }
        Ok(())
    }
}

/// Rounds values to the types of their tensors, as they are handed to a learner and exported: to the nearest value of the
/// type, ties to even; values beyond the range of the type become its largest finite ones, integers at most 2^24 in
/// magnitude. Shapes: `values: [layout.len()]`.
///
/// # Panics
/// If `values` is shorter.
pub fn round_to_types(layout: &Layout, values: &mut [f32]) {
    for tensor in layout.tensors() {
        convert::round(tensor.dtype, &mut values[tensor.offset..tensor.offset + tensor.len]);
    }
}

/// As [`round_to_types`], for the tensors of one role only.
///
/// # Panics
/// If `values` is shorter than `layout.len()`.
pub fn round_role_to_types(layout: &Layout, role: Role, values: &mut [f32]) {
    for tensor in layout.tensors().iter().filter(|tensor| tensor.role == role) {
        convert::round(tensor.dtype, &mut values[tensor.offset..tensor.offset + tensor.len]);
    }
}

/// The values as they are handed to a learner: rounded to the types of their tensors (see [`round_to_types`]). A copy only
/// where a tensor needs it. Shapes: `values: [layout.len()]`.
///
/// # Panics
/// If `values` is shorter.
pub fn handed_out<'v>(layout: &Layout, values: &'v [f32]) -> Cow<'v, [f32]> {
    let mut types = layout.tensors().iter().map(|tensor| tensor.dtype);
    if types.all(|dtype| matches!(dtype, Dtype::F32 | Dtype::F64)) {
        return Cow::Borrowed(values);
    }
    let mut values = values.to_vec();
    round_to_types(layout, &mut values);
    Cow::Owned(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::tests::batch_norm;
    use crate::weights::tensors::TensorFile;

    fn aside() -> Vec<TensorSpec> {
        let spec = |name: &str, shape: &[usize], dtype, role| TensorSpec::new(name, shape, dtype, role);
        vec![
            spec("head.bias", &[3], Dtype::F64, Role::Local),
            spec("base.mask", &[5], Dtype::Bool, Role::Frozen),
            spec("base.weight", &[2, 2], Dtype::F16, Role::Frozen),
        ]
    }

    fn raw() -> Vec<Vec<u8>> {
        let doubles = [1.5f64, -1e300, 0.0].iter().flat_map(|value| value.to_le_bytes());
        vec![doubles.collect(), vec![1, 0, 1, 1, 0], vec![0, 60, 0, 188, 0, 0, 1, 0]]
    }

    fn values(layout: &Layout) -> Vec<f32> {
        let mut values: Vec<f32> = (0..layout.len()).map(|at| (at as f32 - 50.0) / 7.0).collect();
        round_to_types(layout, &mut values);
        values
    }

    #[test]
    fn every_type_comes_back_from_both_writers() {
        let (layout, specs, raw) = (batch_norm(), aside(), raw());
        let notes = Notes::from([("fl.seed".to_owned(), "7".to_owned())]);
        let plan = FilePlan::new(&layout, &specs, &notes).unwrap();
        let values = values(&layout);
        let mut bytes = vec![0; plan.len()];
        plan.write(&values, &raw, &mut bytes).unwrap();
        let mut streamed = Vec::new();
        plan.write_to(&values, &raw, &mut streamed).unwrap();
        assert_eq!(streamed, bytes);
        assert_eq!(plan.digest(&values, &raw).unwrap(), Digest::of(&bytes));
        let file = TensorFile::parse(&bytes).unwrap();
        assert_eq!(file.notes(), &notes);
        let mut back = vec![f32::NAN; layout.len()];
        file.values(&layout, &mut back).unwrap();
        assert_eq!(back, values);
        for (spec, raw) in specs.iter().zip(&raw) {
            assert_eq!(file.raw(spec).unwrap(), raw);
        }
        let all: Vec<&str> = file.tensors().map(|(name, _)| name).collect();
        assert_eq!(all.len(), layout.tensors().len() + 3);
        file.expect_only(all.iter().copied()).unwrap();
        let why = file.expect_only(all[1..].iter().copied()).unwrap_err().to_string();
        assert!(why.contains(all[0]), "{why}");
    }

    #[test]
    fn the_safetensors_crate_writes_the_same_bytes() {
        use safetensors::tensor::TensorView;
        let (layout, specs, raw) = (batch_norm(), aside(), raw());
        let plan = FilePlan::new(&layout, &specs, &Notes::new()).unwrap();
        let mut bytes = vec![0; plan.len()];
        plan.write(&values(&layout), &raw, &mut bytes).unwrap();
        let file = TensorFile::parse(&bytes).unwrap();
        let views = file.tensors().map(|(name, tensor)| {
            let view = TensorView::new(tensor.dtype.stored(), tensor.shape().to_vec(), tensor.bytes);
            (name.to_owned(), view.unwrap())
        });
        assert_eq!(safetensors::serialize(views, None).unwrap(), bytes);
    }

    #[test]
    fn what_differs_is_named() {
        let layout = batch_norm();
        let plan = FilePlan::new(&layout, &[], &Notes::new()).unwrap();
        let none: &[Vec<u8>] = &[];
        let mut bytes = vec![0; plan.len()];
        let mut values = values(&layout);
        plan.write(&values, none, &mut bytes).unwrap();
        let file = TensorFile::parse(&bytes).unwrap();
        let refused = |change: &dyn Fn(&mut TensorSpec)| {
            let tensors = layout.tensors().iter().map(|tensor| {
                let mut spec = TensorSpec {
                    name: tensor.name.clone(),
                    shape: tensor.shape.clone(),
                    dtype: tensor.dtype,
                    role: tensor.role,
                };
                if spec.name == "fc.weight" {
                    change(&mut spec);
                }
                spec
            });
            let layout = Layout::of(tensors).unwrap();
            file.values(&layout, &mut vec![0.0; layout.len()])
                .unwrap_err()
                .to_string()
        };
        let why = refused(&|spec| spec.dtype = Dtype::F16);
        assert!(
            why.contains("`fc.weight` is F32 [2, 36]; F16 [2, 36] is expected"),
            "{why}"
        );
        let why = refused(&|spec| spec.shape = vec![36, 2]);
        assert!(why.contains("F32 [36, 2] is expected"), "{why}");
        let why = refused(&|spec| spec.name = "fc2.weight".to_owned());
        assert!(why.contains("`fc2.weight` is missing"), "{why}");
        let fc = layout
            .tensors()
            .iter()
            .find(|tensor| tensor.name == "fc.weight")
            .unwrap();
        values[fc.offset + 9] = f32::INFINITY;
        plan.write(&values, none, &mut bytes).unwrap();
        let file = TensorFile::parse(&bytes).unwrap();
        let why = file.values(&layout, &mut values).unwrap_err().to_string();
        assert_eq!(why, "not finite: tensor `fc.weight`, value 9");
        assert!(plan.write(&values[1..], none, &mut bytes).is_err());
        assert!(plan.write(&values, &[vec![0]], &mut bytes).is_err());
        assert!(plan.write(&values, none, &mut bytes[1..]).is_err());
    }

    #[test]
    fn raw_values_that_are_not_finite_are_named() {
        let (specs, mut raw) = (aside(), raw());
        raw[2][4..6].copy_from_slice(&half::f16::NAN.to_le_bytes());
        let none = Layout::of([]).unwrap();
        let plan = FilePlan::new(&none, &specs, &Notes::new()).unwrap();
        let mut bytes = vec![0; plan.len()];
        plan.write(&[], &raw, &mut bytes).unwrap();
        let file = TensorFile::parse(&bytes).unwrap();
        assert_eq!(
            file.raw_finite(&specs[0]).unwrap(),
            raw[0],
            "a double beyond the range of f32 is finite"
        );
        assert_eq!(file.raw(&specs[2]).unwrap(), raw[2]);
        let why = file.raw_finite(&specs[2]).unwrap_err().to_string();
        assert_eq!(why, "not finite: tensor `base.weight`, value 2");
    }

    #[test]
    fn a_name_in_both_lists_is_refused() {
        let layout = Layout::new([("head.bias", vec![3])]).unwrap();
        let why = FilePlan::new(&layout, &aside(), &Notes::new()).unwrap_err().to_string();
        assert!(why.contains("`head.bias` is given twice"), "{why}");
    }
}
