//! The updates of a round, read one at a time from where they are stored. An update that was encoded against the last model
//! update is the sum of that and of what its frame decodes to (CAFe, arXiv 2512.22623).

use std::fmt;
use std::sync::Arc;

use fl_compress::{Digest, Frame, Layout};
use fl_proto::ClientId;

use super::decoded_ahead::{DecodedAhead, parse};
use super::decoded_updates::{DecodedUpdate, DecodedUpdates, UpdateNorms, is_long};
use super::error::ModelError;
use super::sections::{Sections, sections};
use crate::config::limits::Part;
use crate::state_machine::Contribution;

/// Replaces a buffer by the bytes of a frame, or says why it cannot.
pub(super) type Read<'a> = dyn FnMut(&Digest, &mut Vec<u8>) -> Result<(), String> + 'a;

/// The updates of a round in the order of their clients' names, and what each of them counts for. In memory are the frame and
/// the values of one update, or of as many as there are threads; while norms are measured, also the values of the predictor.
pub struct Updates<'a> {
    layout: &'a Layout,
    round: u64,
    /// By client name.
    sorted: Vec<&'a Contribution>,
    /// The model update that made the version before `round`: the only predictor that a frame may name.
    predictor: Option<Digest>,
    read: &'a mut Read<'a>,
    parts: Vec<Part>,
    /// Those that are decoded already.
    known: &'a DecodedUpdates,
    ahead: DecodedAhead,
    bytes: Vec<u8>,
    /// The update whose frame is in `bytes`, if it is known.
    holds: Option<usize>,
    sections: Sections,
    /// The updates whose sections have been added up. Length: that of `sorted`.
    noted: Vec<bool>,
    norms: Norms,
    /// For each update, the factor of its buffers besides the weight of the update.
    buffer_scales: Vec<f32>,
    /// The largest counters of the updates read so far that count. Shapes: `[layout.counters().len()]`.
    counters: Option<Vec<f32>>,
    scratch: Vec<f32>,
    threads: usize,
}

/// What is done with updates besides aggregating them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work<'a> {
    /// Whether to measure their norms.
    pub(super) norms: bool,
    /// At most so many threads.
    pub(super) threads: usize,
    /// Updates that are decoded already.
    pub(super) decoded: &'a DecodedUpdates,
}

/// L2 norms, measured while updates are read anyway.
struct Norms {
    wanted: bool,
    /// Length: that of the updates.
    found: Vec<Option<UpdateNorms>>,
    /// Shapes: `[layout.len()]`.
    predictor: Option<Vec<f32>>,
}

/// Frames with at least so many coded values are decoded on several threads: below, starting them takes longer.
const PARALLEL_FROM: usize = 1 << 16;
/// Values of updates that several threads decode at once: 64 MiB. Two updates are, however many values they have.
const PARALLEL_VALUES: usize = 1 << 24;

impl<'a> Updates<'a> {
    /// `parts`: for each of `sorted`.
    pub(super) fn new(
        layout: &'a Layout,
        round: u64,
        sorted: Vec<&'a Contribution>,
        predictor: Option<Digest>,
        parts: Vec<Part>,
        work: Work<'a>,
        read: &'a mut Read<'a>,
    ) -> Self {
        let norms = Norms {
            wanted: work.norms,
            found: vec![None; sorted.len()],
            predictor: None,
        };
        let threads = work.threads.min((PARALLEL_VALUES / layout.len().max(1)).max(2));
        Self {
            layout,
            round,
            noted: vec![false; sorted.len()],
            buffer_scales: vec![1.0; sorted.len()],
            counters: None,
            scratch: Vec::new(),
            threads,
            sorted,
            predictor,
            read,
            parts,
            known: work.decoded,
            ahead: DecodedAhead::default(),
            bytes: Vec::new(),
            holds: None,
            sections: Sections::default(),
            norms,
        }
    }

    /// Number of updates.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there is no update.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Names of the clients, rising.
    pub fn clients(&self) -> impl ExactSizeIterator<Item = &ClientId> {
        self.sorted.iter().map(|update| &update.client)
    }

    /// What each update counts for. Length: [`Updates::len`].
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Overwrites `out` with the values of an update, its predictor included. They are not scaled by what the update counts
    /// for, except buffers where the limits take more of them than of the update. Shapes: `out: [len]`, the length of the model.
    ///
    /// # Errors
    /// `Frame`, `Predictor`; `out` is unspecified then.
    pub fn values(&mut self, at: usize, out: &mut [f32]) -> Result<(), ModelError> {
        out.fill(0.0);
        if self.add_frame(at, 1.0, out)? {
            let predictor = self.predictor()?;
            let pairs = out.iter_mut().zip(predictor.into_iter().flatten());
            pairs.for_each(|(sum, value)| *sum += value);
        }
        Ok(())
    }

    /// Adds `weight` times what the frame of an update decodes to. Returns whether the update is the sum of that and of the
    /// predictor, which is left to [`Updates::add_predictor`]. Shapes: `acc: [len]`, the length of the model, without a
    /// negative zero.
    ///
    /// # Errors
    /// `Frame`, and `Predictor` while norms are measured; `acc` is unspecified then.
    pub fn add_frame(&mut self, at: usize, weight: f32, acc: &mut [f32]) -> Result<bool, ModelError> {
        if let Some(is_predicted) = self.add_long(at, weight, acc)? {
            return Ok(is_predicted);
        }
        let update = self.decoded(at)?;
        let is_predicted = update.predictor.is_some();
        let buffers = self.layout.buffers();
        let scale = self.buffer_scales[at];
        let before = (scale != 1.0).then(|| acc[buffers.clone()].to_vec());
        update.values.add(weight, acc);
        if let Some(before) = before {
            // Added anew: the values to be taken back may be so large that nothing else is left beside them.
            self.scratch.resize(buffers.len(), 0.0);
            update.values.read(buffers.clone(), &mut self.scratch);
            let sums = before
                .iter()
                .zip(&self.scratch)
                .map(|(sum, value)| sum + weight * scale * value);
            acc[buffers].iter_mut().zip(sums).for_each(|(acc, sum)| *acc = sum);
        }
        let counters = self.layout.counters();
        if !counters.is_empty() && self.parts[at].examples > 0.0 {
            self.scratch.resize(counters.len(), 0.0);
            update.values.read(counters.clone(), &mut self.scratch);
            let largest = self
                .counters
                .get_or_insert_with(|| vec![f32::NEG_INFINITY; counters.len()]);
            let pairs = largest.iter_mut().zip(&self.scratch);
            pairs.for_each(|(largest, value)| *largest = largest.max(*value));
        }
        if !std::mem::replace(&mut self.noted[at], true) {
            self.sections.add(&update.sections);
        }
        if self.norms.wanted && self.norms.found[at].is_none() {
            self.norms.found[at] = Some(self.measure(&update)?);
        }
        Ok(is_predicted)
    }

    /// Adds `weight` times the predictor of the round's updates. Shapes: `acc: [len]`, the length of the model, without a negative
    /// zero.
    ///
    /// # Errors
    /// `Predictor`; `acc` is unspecified then.
    pub fn add_predictor(&mut self, weight: f32, acc: &mut [f32]) -> Result<(), ModelError> {
        let Some(digest) = self.predictor else { return Ok(()) };
        if let Some(known) = self.known.model_update(&digest).filter(|known| known.is_whole()) {
            known.add_range(self.layout.trained(), weight, acc);
            return Ok(());
        }
        let round = self.round;
        let unusable = |why: String| ModelError::Predictor { round, why };
        self.holds = None;
        (self.read)(&digest, &mut self.bytes).map_err(unusable)?;
        let frame = Frame::parse(&self.bytes, self.layout).map_err(|e| unusable(e.to_string()))?;
        frame
            .accumulate_trained(weight, acc)
            .map_err(|e| unusable(e.to_string()))
    }

    /// Changes what the updates count for. Length of both: [`Updates::len`].
    pub(super) fn count(&mut self, parts: Vec<Part>, buffer_scales: Vec<f32>) {
        (self.parts, self.buffer_scales) = (parts, buffer_scales);
        self.counters = None;
    }

    /// The largest counters of the updates that were read and count; `None` if there is none. Shapes:
    /// `[layout.counters().len()]`.
    pub(super) fn largest_counters(&self) -> Option<&[f32]> {
        self.counters.as_deref()
    }

    /// The L2 norms of each update. Reads those that have not been measured yet.
    ///
    /// # Errors
    /// As [`Updates::values`].
    pub(super) fn norms(&mut self) -> Result<Vec<UpdateNorms>, ModelError> {
        self.norms.wanted = true;
        let mut values = Vec::new();
        for at in 0..self.len() {
            if self.norms.found[at].is_none() {
                values.resize(self.layout.len(), 0.0);
                self.values(at, &mut values)?;
            }
        }
        Ok(self.norms.found.iter().map(|norm| norm.unwrap_or_default()).collect())
    }

    /// Where the bytes of the frames that have been read went.
    pub(super) fn into_sections(self) -> Sections {
        self.sections
    }

    /// As [`Updates::add_frame`] for an update that is best decoded where it is added: its frame is hardly shorter than its values.
    /// `None` for others, which are not added.
    fn add_long(&mut self, at: usize, weight: f32, acc: &mut [f32]) -> Result<Option<bool>, ModelError> {
        let digest = &self.sorted[at].frame;
        let is_plain = self.buffer_scales[at] == 1.0 && self.layout.counters().is_empty();
        if !is_plain || self.ahead.get(at).is_some() || self.known.get(digest).is_some() {
            return Ok(None);
        }
        (self.read)(digest, &mut self.bytes).map_err(|why| self.broken(at, &why))?;
        self.holds = Some(at);
        let measure = self.norms.wanted && self.norms.found[at].is_none();
        let frame = parse(&self.bytes, self.layout, self.round).map_err(|why| self.broken(at, &why))?;
        if !is_long(&frame) || measure && frame.predictor().is_some() {
            return Ok(None);
        }
        self.check_predictor(at, frame.predictor())?;
        let ranges = [self.layout.trained(), self.layout.buffers()];
        let added = frame.accumulate_measured(weight, acc, ranges);
        let (nonzeros, norms) = added.map_err(|e| self.broken(at, &e))?;
        if !std::mem::replace(&mut self.noted[at], true) {
            self.sections.add(&sections(&frame, &nonzeros));
        }
        let is_predicted = frame.predictor().is_some();
        match norms {
            _ if !measure => {}
            Some([trained, buffers]) => self.norms.found[at] = Some(UpdateNorms { trained, buffers }),
            None => {
                let update = self.decoded(at)?;
                self.norms.found[at] = Some(self.measure(&update)?);
            }
        }
        Ok(Some(is_predicted))
    }

    fn measure(&mut self, update: &DecodedUpdate) -> Result<UpdateNorms, ModelError> {
        if let Some(norms) = update.norms {
            return Ok(norms);
        }
        let layout = self.layout;
        let mut scratch = std::mem::take(&mut self.scratch);
        let norms = update.measure(layout, self.predictor()?, &mut scratch);
        self.scratch = scratch;
        Ok(norms)
    }

    /// What the frame of an update decodes to.
    ///
    /// # Errors
    /// `Frame`.
    fn decoded(&mut self, at: usize) -> Result<Arc<DecodedUpdate>, ModelError> {
        let frame = &self.sorted[at].frame;
        let update = match self.known.get(frame) {
            Some(known) => known,
            None => self.decode(at)?,
        };
        self.check_predictor(at, update.predictor)?;
        Ok(update)
    }

    fn check_predictor(&self, at: usize, named: Option<u64>) -> Result<(), ModelError> {
        if named.is_some() && named != self.predictor.as_ref().map(Digest::short) {
            let why = "the frame was encoded against another model update than that of the version trained from";
            return Err(self.broken(at, &why));
        }
        Ok(())
    }

    /// Decodes an update, and the next ones on other threads.
    fn decode(&mut self, at: usize) -> Result<Arc<DecodedUpdate>, ModelError> {
        if self.ahead.get(at).is_none() {
            // Others may become known, or be forgotten, at any time; this one is wanted in any case.
            let later = (at + 1..self.len()).filter(|later| self.known.get(&self.sorted[*later].frame).is_none());
            let places: Vec<usize> = std::iter::once(at).chain(later).take(self.threads).collect();
            let mut frames = Vec::with_capacity(places.len());
            for at in places {
                let mut bytes = self.ahead.spare_bytes();
                let read = if self.holds.take_if(|held| *held == at).is_some() {
                    std::mem::swap(&mut bytes, &mut self.bytes);
                    Ok(())
                } else {
                    (self.read)(&self.sorted[at].frame, &mut bytes)
                };
                let frame = Frame::parse(&bytes, self.layout);
                let takes_long = frame.is_ok_and(|frame| frame.coded_values() >= PARALLEL_FROM);
                frames.push((at, bytes, read));
                if !takes_long {
                    break;
                }
            }
            self.ahead.decode(frames, self.layout, self.round);
        }
        let update = self
            .ahead
            .get(at)
            .unwrap_or_else(|| Err("it was not decoded".to_owned()));
        update.map_err(|why| self.broken(at, &why))
    }

    /// The values of the predictor, decoded once. Shapes: `[layout.len()]`.
    fn predictor(&mut self) -> Result<Option<&[f32]>, ModelError> {
        if self.norms.predictor.is_none() {
            let mut values = vec![0.0; self.layout.len()];
            self.add_predictor(1.0, &mut values)?;
            self.norms.predictor = Some(values);
        }
        Ok(self.norms.predictor.as_deref())
    }

    fn broken(&self, at: usize, why: &dyn fmt::Display) -> ModelError {
        ModelError::Frame {
            round: self.round,
            client: self.sorted[at].client.clone(),
            why: why.to_string(),
        }
    }
}

impl fmt::Debug for Updates<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            round, sorted, parts, ..
        } = self;
        f.debug_struct("Updates")
            .field("round", round)
            .field("sorted", sorted)
            .field("parts", parts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use fl_compress::{Encoder, FrameHeader, FrameKind, Spec};

    use super::*;

    fn model_update(layout: &Arc<Layout>, values: &[f32]) -> Vec<u8> {
        let header = FrameHeader {
            kind: FrameKind::ModelUpdate,
            round: 1,
            seed: 1,
        };
        let spec: Spec = toml::from_str("").unwrap();
        let mut encoder = Encoder::new(Arc::clone(layout), &spec).unwrap();
        encoder.encode(&mut values.to_vec(), header).unwrap().frame
    }

    #[test]
    fn a_predictor_that_is_kept_adds_the_bits_of_one_that_is_read() {
        let layout = Arc::new(Layout::new([("w", vec![60, 70]), ("b", vec![70])]).unwrap());
        // Two components, and what they leave.
        let value = |at: usize| {
            let (row, col) = ((at / 70) as f32, (at % 70) as f32);
            row.sin() * col.cos() + (row * 0.7).cos() * 0.3 + (at as f32 * 12.9).sin().powi(9)
        };
        let values: Vec<f32> = (0..layout.len()).map(value).collect();
        let bytes = model_update(&layout, &values);
        let (frame, digest) = (Frame::parse(&bytes, &layout).unwrap(), Digest::of(&bytes));
        let (known, mut reads) = (DecodedUpdates::default(), 0);
        let mut add = |known: &DecodedUpdates| {
            let mut read = |asked: &Digest, out: &mut Vec<u8>| {
                assert_eq!(*asked, digest);
                reads += 1;
                out.clone_from(&bytes);
                Ok(())
            };
            let work = Work {
                norms: true,
                threads: 1,
                decoded: known,
            };
            let mut updates = Updates::new(&layout, 2, Vec::new(), Some(digest), Vec::new(), work, &mut read);
            let mut acc: Vec<f32> = values.iter().map(|value| value * 3.0).collect();
            updates.add_predictor(0.3, &mut acc).unwrap();
            acc.extend(updates.predictor().unwrap().unwrap());
            acc.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let read = add(&known);
        let mut model = vec![0.5; layout.len()];
        let decoded = known.apply(&frame, true, &mut model).unwrap();
        assert!(decoded.is_whole());
        known.keep_model_update(digest, decoded);
        assert_eq!(add(&known), read);
        assert_eq!(reads, 2, "only before it was kept");
        assert_eq!(known.model_update(&digest).unwrap().largest(), frame.verify().unwrap());
        assert!(known.model_update(&Digest::of(b"another")).is_none());
        let mut applied = vec![0.5; layout.len()];
        frame.accumulate(1.0, &mut applied).unwrap();
        assert_eq!(model, applied);
    }

    /// After a restart the first update that is verified reads it.
    #[test]
    fn a_predictor_is_read_once_and_one_that_is_broken_is_named() {
        let layout = Arc::new(Layout::new([("w", vec![500])]).unwrap());
        let bytes = model_update(&layout, &vec![1.5; layout.len()]);
        let digest = Digest::of(&bytes);
        let known = DecodedUpdates::default();
        let found = known.read_model_update(&digest, &layout, || Err("no disk"));
        assert_eq!(found.unwrap_err(), "no disk");
        let found = known.read_model_update(&digest, &layout, || Ok::<_, ()>(vec![1]));
        assert!(found.unwrap().unwrap_err().contains("cannot be decoded"));
        assert!(known.model_update(&digest).is_none());
        let first = known.read_model_update(&digest, &layout, || Ok::<_, ()>(bytes.clone()));
        let again = known.read_model_update(&digest, &layout, || Err("read again"));
        assert!(Arc::ptr_eq(&first.unwrap().unwrap(), &again.unwrap().unwrap()));
        assert!(known.model_update(&digest).unwrap().is_whole());
    }

    /// While a round closes, late uploads of the same bytes are kept and forgotten.
    #[test]
    fn an_update_that_becomes_known_while_it_is_decoded_is_no_error() {
        let layout = Arc::new(Layout::new([("w", vec![2_000])]).unwrap());
        let frame = |seed: u64| {
            let header = FrameHeader {
                kind: FrameKind::Update,
                round: 1,
                seed,
            };
            let mut values: Vec<f32> = (0..2_000).map(|at| (at as f32 + seed as f32) / 64.0).collect();
            let spec: Spec = toml::from_str("").unwrap();
            Encoder::new(Arc::clone(&layout), &spec)
                .unwrap()
                .encode(&mut values, header)
                .unwrap()
                .frame
        };
        let frames = [frame(1), frame(2)];
        let contributions: Vec<Contribution> = frames
            .iter()
            .zip(["a", "b"])
            .map(|(frame, client)| Contribution {
                client: client.parse().unwrap(),
                frame: Digest::of(frame),
                examples: 1,
            })
            .collect();
        let known = DecodedUpdates::default();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let parsed = Frame::parse(&frames[0], &layout).unwrap();
                let digest = Digest::of(&frames[0]);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    known.keep(digest, known.decode(&parsed).unwrap());
                    known.forget(&digest);
                }
            });
            let mut read = |digest: &Digest, out: &mut Vec<u8>| {
                let frame = frames.iter().find(|frame| Digest::of(frame) == *digest).unwrap();
                out.clone_from(frame);
                Ok(())
            };
            let part = Part {
                examples: 1.0,
                scale: 1.0,
                weight: 0.5,
            };
            let work = Work {
                norms: false,
                threads: 1,
                decoded: &known,
            };
            let mut updates = Updates::new(
                &layout,
                1,
                contributions.iter().collect(),
                None,
                vec![part; 2],
                work,
                &mut read,
            );
            let mut out = vec![0.0; 2_000];
            let mut turns = (0..20_000).map(|_| updates.values(0, &mut out).and_then(|()| updates.values(1, &mut out)));
            let result = turns.find(Result::is_err).unwrap_or(Ok(()));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            result.unwrap();
        });
    }
}
