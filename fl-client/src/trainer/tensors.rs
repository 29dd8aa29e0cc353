//! The tensors of a run as files in the work folder.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read as _, Seek as _, Write as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use fl_compress::weights::{FilePlan, Notes, TensorFile, expect_squares};
use fl_compress::{Dtype, Layout, Role, TensorSpec};
use fl_proto::open_regular;

use super::message::Hello;

/// Bytes that are written at once: as many as [`FilePlan::write_to`] passes at once of `F32`, which are then not copied again.
const BLOCK: usize = 64 * 1024;
const MAX_HEADER: u64 = 16 << 20;
const NONE: &[Vec<u8>] = &[];

#[derive(Debug)]
pub(super) struct Tensors {
    layout: Arc<Layout>,
    plan: FilePlan,
    /// The tensors that stay with the client, and their file.
    local: Vec<TensorSpec>,
    local_plan: FilePlan,
    /// The trained tensors as `F32`, at the same places as in `layout`.
    squared: Layout,
}

impl Tensors {
    pub(super) fn new(layout: Arc<Layout>, aside: &[TensorSpec]) -> anyhow::Result<Self> {
        let local: Vec<TensorSpec> = aside
            .iter()
            .filter(|tensor| tensor.role == Role::Local)
            .cloned()
            .collect();
        let nothing = Layout::of([])?;
        let trained = layout.tensors().iter().filter(|tensor| tensor.role == Role::Trained);
        let squared = trained.map(|tensor| TensorSpec {
            dtype: Dtype::F32,
            ..TensorSpec::from(tensor)
        });
        Ok(Self {
            squared: Layout::of(squared)?,
            plan: FilePlan::new(&layout, &[], &Notes::new())?,
            local_plan: FilePlan::new(&nothing, &local, &Notes::new())?,
            layout,
            local,
        })
    }

    pub(super) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout)
    }

    /// Longest result: the tensors, and as much again for a header with other spaces.
    pub(super) fn max_file(&self) -> u64 {
        const SLACK: u64 = 1024 * 1024;
        // Squared gradients are `F32`, whatever the types of the tensors.
        let longest = self.plan.len().max(4 * self.squared.len());
        SLACK + 2 * (longest + self.local_plan.len()) as u64
    }

    /// Writes `values` over the file at `path`, whose pages are reused. Shapes: `values: [layout.len()]`.
    pub(super) fn write(&self, path: &Path, values: &[f32]) -> anyhow::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let written = open_regular(&mut options, path).and_then(|file| {
            let mut out = BufWriter::with_capacity(BLOCK, file);
            self.plan.write_to(values, NONE, &mut out)?;
            out.flush()?;
            let len = out.stream_position()?;
            out.get_ref().set_len(len)
        });
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads the tensors that travel. Shapes: `out: [layout.len()]`.
    pub(super) fn read(&self, bytes: &[u8], out: &mut [f32]) -> anyhow::Result<()> {
        Ok(TensorFile::parse(bytes)?.values(&self.layout, out)?)
    }

    /// Checks that a result has the tensors of the run and no others, and returns the bytes of a safetensors file with the local
    /// ones, if the run has any.
    pub(super) fn local_of(&self, bytes: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        let file = TensorFile::parse(bytes)?;
        let travelling = self.layout.tensors().iter().map(|tensor| tensor.name.as_str());
        file.expect_only(travelling.chain(self.local.iter().map(|tensor| tensor.name.as_str())))?;
        if self.local.is_empty() {
            return Ok(None);
        }
        let raw = self
            .local
            .iter()
            .map(|tensor| file.raw_or_infinite(tensor))
            .collect::<Result<Vec<_>, _>>()?;
        let mut bytes = Vec::with_capacity(self.local_plan.len());
        self.local_plan.write_to(&[], &raw, &mut bytes)?;
        Ok(Some(bytes))
    }

    pub(super) fn check(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let file = TensorFile::parse(bytes)?;
        for tensor in self.layout.tensors() {
            file.raw_finite(&TensorSpec::from(tensor))?;
        }
        Ok(())
    }

    /// Reads a file of squared gradients: the trained tensors and no others, as `F32`. Returns `[layout.trained().len()]`.
    pub(super) fn squared_gradients(&self, bytes: &[u8]) -> anyhow::Result<Vec<f32>> {
        let file = TensorFile::parse(bytes)?;
        file.expect_only(self.squared.tensors().iter().map(|tensor| tensor.name.as_str()))?;
        let mut values = vec![0.0; self.squared.len()];
        file.values(&self.squared, &mut values)?;
        for tensor in self.squared.tensors() {
            expect_squares(tensor, &values[tensor.offset..tensor.offset + tensor.len])?;
        }
        Ok(values)
    }

    /// Whether a floating-point tensor differs between two files of local tensors, or is in one alone.
    pub(super) fn differ(&self, before: &[u8], after: &[u8]) -> bool {
        let files = [before, after].map(|bytes| TensorFile::parse(bytes).ok());
        let mut floats = self.local.iter().filter(|tensor| tensor.dtype.is_float());
        floats.any(|tensor| {
            let [before, after] = files.each_ref().map(|file| file.as_ref()?.raw_finite(tensor).ok());
            before != after
        })
    }

    pub(super) fn check_local(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let file = TensorFile::parse(bytes)?;
        file.expect_only(self.local.iter().map(|tensor| tensor.name.as_str()))?;
        self.local
            .iter()
            .try_for_each(|tensor| file.raw_or_infinite(tensor).map(drop))?;
        Ok(())
    }
}

/// Checks that a file has exactly the tensors that the trainer has named. Returns the number of their values, and the names of
/// those with infinite ones, which no run can train.
pub(crate) fn check_weights<'a>(bytes: &[u8], hello: &'a Hello) -> anyhow::Result<(usize, Vec<&'a str>)> {
    let file = TensorFile::parse(bytes)?;
    file.expect_only(hello.tensors.iter().map(|tensor| tensor.name.as_str()))?;
    let mut infinite = Vec::new();
    for tensor in &hello.tensors {
        file.raw_or_infinite(tensor)?;
        if file.raw_finite(tensor).is_err() {
            infinite.push(tensor.name.as_str());
        }
    }
    let values = hello.tensors.iter().filter_map(TensorSpec::values).sum();
    ensure!(values > 0, "it has no tensor");
    Ok((values, infinite))
}

/// Where the first values of floating-point tensors are in a result. Before the next round they are overwritten with bytes
/// that are not a number, so that a tensor which the trainer does not write again is noticed; the file and its pages stay.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<(String, Range<u64>)>);

impl Marks {
    /// Marks the file at `path`: a result of an earlier round, also of one whose answer was never read.
    pub(super) fn new(path: &Path) -> anyhow::Result<Self> {
        let marks = Self::of(path).unwrap_or_default();
        marks.write(path)?;
        Ok(marks)
    }

    /// The places of the marks; `None` without a file that has a complete header.
    fn of(path: &Path) -> Option<Self> {
        let mut file = open_regular(File::options().read(true), path).ok()?;
        let end = file.metadata().ok()?.len();
        let mut len = [0; 8];
        file.read_exact(&mut len).ok()?;
        let len = u64::from_le_bytes(len);
        let data = len.checked_add(8).filter(|_| len <= MAX_HEADER)?;
        let mut header = Vec::new();
        file.take(len).read_to_end(&mut header).ok()?;
        let header: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&header).ok()?;
        let places = header.into_iter().filter_map(|(name, tensor)| {
            let dtype = Dtype::find(tensor["dtype"].as_str()?).filter(|dtype| dtype.is_float())?;
            let begin = data.checked_add(tensor["data_offsets"][0].as_u64()?)?;
            let place = begin..begin.checked_add(dtype.width() as u64)?;
            // A partial file must not grow by its marks.
            (place.end <= end).then_some((name, place))
        });
        Some(Self(places.collect()))
    }

    fn write(&self, path: &Path) -> anyhow::Result<()> {
        let written = open_regular(OpenOptions::new().write(true), path).and_then(|file| {
            let mut marks = self.0.iter();
            marks.try_for_each(|(_, place)| {
                file.write_all_at(&vec![0xff; (place.end - place.start) as usize], place.start)
            })
        });
        match written {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            written => written.with_context(|| format!("cannot write {}", path.display())),
        }
    }

    pub(super) fn expect_overwritten(&self, bytes: &[u8]) -> anyhow::Result<()> {
        match self.untouched(bytes) {
            None => Ok(()),
            Some(name) => bail!("tensor `{name}` was not written in this round"),
        }
    }

    fn untouched(&self, bytes: &[u8]) -> Option<&str> {
        let mut marks = self.0.iter();
        let (name, _) = marks.find(|(_, place)| {
            let found = bytes.get(place.start as usize..place.end as usize);
            found.is_some_and(|found| found.iter().all(|byte| *byte == 0xff))
        })?;
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Stored = (TensorSpec, Vec<u8>);

    fn spec(name: &str, shape: &[usize], dtype: Dtype, role: Role) -> TensorSpec {
        TensorSpec::new(name, shape, dtype, role)
    }

    /// Every role, and four types.
    fn specs() -> [TensorSpec; 5] {
        [
            spec("bn.mean", &[2], Dtype::F32, Role::Buffer),
            spec("bn.steps", &[], Dtype::I64, Role::Counter),
            spec("fc.weight", &[2, 3], Dtype::Bf16, Role::Trained),
            spec("head.weight", &[2], Dtype::F64, Role::Local),
            spec("base.weight", &[4], Dtype::F16, Role::Frozen),
        ]
    }

    fn tensors() -> Tensors {
        let (travels, aside): (Vec<_>, Vec<_>) = specs().into_iter().partition(|tensor| tensor.role.travels());
        Tensors::new(Arc::new(Layout::of(travels).unwrap()), &aside).unwrap()
    }

    /// A file of these tensors with these bytes each.
    fn file(tensors: &[Stored]) -> Vec<u8> {
        let (specs, raw): (Vec<_>, Vec<_>) = tensors.iter().cloned().unzip();
        let plan = FilePlan::new(&Layout::of([]).unwrap(), &specs, &Notes::new()).unwrap();
        let mut bytes = Vec::new();
        plan.write_to(&[], &raw, &mut bytes).unwrap();
        bytes
    }

    fn result() -> Vec<Stored> {
        let values = |spec: &TensorSpec| -> Vec<u8> {
            let values = 0..spec.values().unwrap();
            match spec.dtype {
                Dtype::F64 => values.flat_map(|at| (at as f64 + 0.1).to_le_bytes()).collect(),
                Dtype::I64 => values.flat_map(|_| 7i64.to_le_bytes()).collect(),
                Dtype::Bf16 => values.flat_map(|_| [0x80, 0x3f]).collect(),
                _ => values.flat_map(|at| (at as f32).to_le_bytes()).collect(),
            }
        };
        let needed = specs().into_iter().filter(|spec| spec.role != Role::Frozen);
        needed.map(|spec| (spec.clone(), values(&spec))).collect()
    }

    #[test]
    fn every_type_and_role_comes_back_and_local_tensors_have_a_file_of_their_own() {
        let tensors = tensors();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let values: Vec<f32> = (0..tensors.layout().len()).map(|at| at as f32).collect();
        tensors.write(&path, &values).unwrap();
        let mut back = vec![0.0; values.len()];
        tensors.read(&std::fs::read(&path).unwrap(), &mut back).unwrap();
        assert_eq!(back, values, "the longer file of before is cut");
        let bytes = file(&result());
        let local = tensors.local_of(&bytes).unwrap().unwrap();
        tensors.check_local(&local).unwrap();
        assert!(bytes.len() as u64 <= tensors.max_file());
        tensors.read(&bytes, &mut back).unwrap();
        assert_eq!(back, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 7.0]);
    }

    #[test]
    fn a_local_tensor_that_is_missing_or_not_finite_and_one_too_many_are_named() {
        let tensors = tensors();
        let refused = |change: &dyn Fn(&mut Vec<Stored>)| {
            let mut result = result();
            change(&mut result);
            tensors.local_of(&file(&result)).unwrap_err().to_string()
        };
        let of = |result: &[Stored], name: &str| result.iter().position(|(s, _)| s.name == name).unwrap();
        let why = refused(&|result| drop(result.remove(of(result, "head.weight"))));
        assert!(why.contains("`head.weight` is missing"), "{why}");
        let why = refused(&|result| {
            let at = of(result, "head.weight");
            result[at].1[..8].copy_from_slice(&f64::NAN.to_le_bytes());
        });
        assert!(why.contains("`head.weight`, value 0"), "{why}");
        let why = refused(&|result| result.push((specs()[4].clone(), vec![0; 8])));
        assert!(why.contains("`base.weight` is not expected"), "{why}");
    }

    #[test]
    fn infinite_values_are_kept_where_nobody_trains_them_and_named_in_first_weights() {
        let mut result = result();
        let head = result.iter().position(|(spec, _)| spec.name == "head.weight").unwrap();
        result[head].1[..8].copy_from_slice(&f64::NEG_INFINITY.to_le_bytes());
        let (tensors, bytes) = (tensors(), file(&result));
        let local = tensors.local_of(&bytes).unwrap().unwrap();
        tensors.check_local(&local).unwrap();
        tensors.check(&bytes).unwrap();
        let hello = Hello {
            tensors: result.iter().map(|(spec, _)| spec.clone()).collect(),
            ..Hello::default()
        };
        assert_eq!(check_weights(&bytes, &hello).unwrap(), (11, vec!["head.weight"]));
        result[head].1[..8].copy_from_slice(&f64::NAN.to_le_bytes());
        let why = check_weights(&file(&result), &hello).unwrap_err().to_string();
        assert!(why.contains("`head.weight`, value 0"), "{why}");
    }

    #[test]
    fn squared_gradients_are_of_the_trained_tensors_alone_and_single_precision() {
        let tensors = tensors();
        let squares = |name: &str, dtype, values: &[f32]| {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            (spec(name, &[2, 3], dtype, Role::Trained), bytes)
        };
        let values = [0.0, 1.0, 2.0, f32::MAX, 0.5, 1e-30];
        let good = squares("fc.weight", Dtype::F32, &values);
        assert_eq!(
            tensors.squared_gradients(&file(std::slice::from_ref(&good))).unwrap(),
            values
        );
        let refused = |stored: &[Stored]| tensors.squared_gradients(&file(stored)).unwrap_err().to_string();
        let why = refused(&[squares("fc.weight", Dtype::Bf16, &values[..3])]);
        assert!(
            why.contains("`fc.weight` is BF16 [2, 3]; F32 [2, 3] is expected"),
            "{why}"
        );
        let buffer = (spec("bn.mean", &[2], Dtype::F32, Role::Buffer), vec![0; 8]);
        let why = refused(&[good, buffer]);
        assert!(why.contains("`bn.mean` is not expected"), "{why}");
        let why = refused(&[squares("fc.weight", Dtype::F32, &[0.0, 1.0, 2.0, -0.5, 0.0, 0.0])]);
        assert!(why.contains("`fc.weight`, value 3: a mean squared gradient"), "{why}");
        let why = refused(&[squares("fc.weight", Dtype::F32, &[f32::NAN; 6])]);
        assert!(why.contains("not finite: tensor `fc.weight`, value 0"), "{why}");
    }

    #[test]
    fn a_tensor_that_was_not_written_again_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("update.safetensors");
        let mut bytes = file(&result());
        std::fs::write(&path, &bytes).unwrap();
        let marks = Marks::of(&path).unwrap();
        assert_eq!(marks.untouched(&bytes), None);
        marks.write(&path).unwrap();
        assert_eq!(marks.untouched(&std::fs::read(&path).unwrap()), Some("bn.mean"));
        // Written in place, except for one tensor.
        let (_, place) = marks.0.iter().find(|(name, _)| name == "fc.weight").unwrap();
        bytes[place.start as usize..place.end as usize].fill(0xff);
        assert_eq!(marks.untouched(&bytes), Some("fc.weight"));
        bytes.truncate(20);
        std::fs::write(&path, &bytes).unwrap();
        Marks::of(&path).unwrap_or_default().write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 20);
    }
}
