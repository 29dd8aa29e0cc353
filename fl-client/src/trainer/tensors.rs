//! The tensors of a run as files in the work folder.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufWriter, Seek as _, Write as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use fl_compress::weights::{Envelope, Notes, Weights};
use fl_compress::{Dtype, Layout};

use super::message::Hello;

/// Bytes that are written at once.
const BLOCK: usize = 256 * 1024;

/// Reads and writes the tensors of one layout.
#[derive(Debug)]
pub(super) struct Tensors {
    layout: Arc<Layout>,
    head: Vec<u8>,
}

impl Tensors {
    /// Prepares the header of the files.
    ///
    /// # Errors
    /// If the layout is too large for a safetensors file.
    pub(super) fn new(layout: Arc<Layout>) -> anyhow::Result<Self> {
        let head = Envelope::new(&layout, &[], &Notes::new())?.head;
        Ok(Self { layout, head })
    }

    pub(super) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout)
    }

    /// Longest result: the tensors, and a header twice as long as the client's own.
    pub(super) fn max_file(&self) -> u64 {
        const SLACK: u64 = 64 * 1024;
        SLACK + 2 * self.head.len() as u64 + 4 * self.layout.len() as u64
    }

    /// Writes `values` over the file at `path`, whose pages are reused. Shapes: `values: [layout.len()]`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn write(&self, path: &Path, values: &[f32]) -> anyhow::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let write = || {
            let file = options.open(path)?;
            let mut out = BufWriter::with_capacity(BLOCK, file);
            out.write_all(&self.head)?;
            for values in values.chunks(BLOCK / 4) {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                out.write_all(&bytes)?;
            }
            out.flush()?;
            let len = out.stream_position()?;
            out.get_ref().set_len(len)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads a result. Shapes: `out: [layout.len()]`.
    ///
    /// # Errors
    /// If tensors, types or shapes differ from the layout's, a part is missing, or a value is not finite; the error names the
    /// tensor.
    pub(super) fn read(&self, bytes: &[u8], out: &mut [f32]) -> anyhow::Result<()> {
        let weights = Weights::parse(bytes)?;
        weights.expect_floats()?;
        weights.expect(&self.layout)?;
        out.copy_from_slice(&weights.values()?);
        Ok(())
    }
}

/// Checks that a file has exactly the tensors that the trainer has named, and returns the number of their values.
///
/// # Errors
/// If a tensor is missing, unknown, of another shape or not finite; the error names it.
pub(crate) fn check_weights(bytes: &[u8], hello: &Hello) -> anyhow::Result<usize> {
    let weights = Weights::parse(bytes)?;
    let floats = hello.tensors.iter().filter(|tensor| tensor.dtype.is_float());
    let named = Layout::new(floats.map(|tensor| (tensor.name.clone(), tensor.shape.clone())))?;
    weights.expect(&named)?;
    Ok(weights.values()?.len())
}

/// Where the first values of floating-point tensors are in a result. Before the next round they are overwritten with bytes
/// that are not a number, so that a tensor which the trainer does not write again is noticed; the file and its pages stay.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<(String, Range<usize>)>);

impl Marks {
    /// The marks of a valid safetensors file.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let marks = || {
            let len = u64::from_le_bytes(*bytes.first_chunk()?);
            let data = 8 + usize::try_from(len).ok()?;
            let header: BTreeMap<String, serde_json::Value> = serde_json::from_slice(bytes.get(8..data)?).ok()?;
            let mark = |(name, tensor): (String, serde_json::Value)| {
                let dtype = Dtype::find(tensor["dtype"].as_str()?).filter(|dtype| dtype.is_float())?;
                let begin = data + usize::try_from(tensor["data_offsets"][0].as_u64()?).ok()?;
                let place = begin..begin.checked_add(dtype.width())?;
                // A partial file must not grow by its marks.
                (place.end <= bytes.len()).then_some((name, place))
            };
            Some(header.into_iter().filter_map(mark).collect())
        };
        Self(marks().unwrap_or_default())
    }

    /// Overwrites the marked values.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let write = || {
            let file = OpenOptions::new().write(true).open(path)?;
            let mut marks = self.0.iter();
            marks.try_for_each(|(_, place)| file.write_all_at(&vec![0xff; place.len()], place.start as u64))
        };
        match write() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            written => written.with_context(|| format!("cannot write {}", path.display())),
        }
    }

    /// A tensor that still has its mark.
    pub(super) fn untouched(&self, bytes: &[u8]) -> Option<&str> {
        let marked = |place: &Range<usize>| bytes.get(place.clone()).is_some_and(|b| b.iter().all(|b| *b == 0xff));
        self.0
            .iter()
            .find(|(_, place)| marked(place))
            .map(|(name, _)| name.as_str())
    }
}
