//! The updates of a round, read one at a time from where they are stored. An update that was encoded against the last model
//! update is the sum of that and of what its frame decodes to (CAFe, arXiv 2512.22623).

use std::fmt;
use std::sync::{Arc, mpsc};

use fl_compress::{Digest, Frame, FrameKind, Layout, Role};
use fl_proto::ClientId;

use super::error::ModelError;
use super::sections::Sections;
use crate::config::limits::Part;
use crate::state_machine::Contribution;

/// Replaces a buffer by the bytes of a frame, or says why it cannot.
pub(super) type Read<'a> = dyn FnMut(&Digest, &mut Vec<u8>) -> Result<(), String> + 'a;

/// The updates of a round in the order of their clients' names, and what each of them counts for. In memory is the frame of
/// one update, or of a few on two threads; while norms are measured, also the values of one update and of the predictor.
pub struct Updates<'a> {
    layout: &'a Layout,
    round: u64,
    /// By client name.
    sorted: Vec<&'a Contribution>,
    /// The model update that made the version before `round`: the only predictor that a frame may name.
    predictor: Option<Digest>,
    read: &'a mut Read<'a>,
    parts: Vec<Part>,
    bytes: Vec<u8>,
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
pub(super) struct Work {
    /// Whether to measure their norms.
    pub(super) norms: bool,
    /// At most so many threads.
    pub(super) threads: usize,
}

/// L2 norms of an update's trained values and of its buffers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct UpdateNorms {
    pub(super) trained: f64,
    pub(super) buffers: f64,
}

/// L2 norms, measured while updates are read anyway.
struct Norms {
    wanted: bool,
    /// Length: that of the updates.
    found: Vec<Option<UpdateNorms>>,
    /// Values of the update that is measured.
    update: Vec<f32>,
    predictor: Option<Arc<Vec<f32>>>,
}

impl<'a> Updates<'a> {
    /// `parts`: for each of `sorted`.
    pub(super) fn new(
        layout: &'a Layout,
        round: u64,
        sorted: Vec<&'a Contribution>,
        predictor: Option<Digest>,
        parts: Vec<Part>,
        work: Work,
        read: &'a mut Read<'a>,
    ) -> Self {
        let norms = Norms {
            wanted: work.norms,
            found: vec![None; sorted.len()],
            update: Vec::new(),
            predictor: None,
        };
        Self {
            layout,
            round,
            noted: vec![false; sorted.len()],
            buffer_scales: vec![1.0; sorted.len()],
            counters: None,
            scratch: Vec::new(),
            threads: work.threads,
            sorted,
            predictor,
            read,
            parts,
            bytes: Vec::new(),
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
        if self.add(at, 1.0, out)? {
            self.load_predictor()?;
            add(self.norms.predictor.as_deref().map(Vec::as_slice), out);
        }
        if self.norms.wanted && self.norms.found[at].is_none() {
            self.norms.found[at] = Some(norms(self.layout, out));
        }
        Ok(())
    }

    /// Adds `weight` times what the frame of an update decodes to. Returns whether the update is the sum of that and of the
    /// predictor, which is left to [`Updates::add_predictor`]. Shapes: `acc: [len]`, the length of the model.
    ///
    /// # Errors
    /// `Frame`, and `Predictor` while norms are measured; `acc` is unspecified then.
    pub fn add_frame(&mut self, at: usize, weight: f32, acc: &mut [f32]) -> Result<bool, ModelError> {
        let predicted = self.add(at, weight, acc)?;
        if self.norms.wanted && self.norms.found[at].is_none() {
            if predicted {
                self.load_predictor()?;
            }
            let predictor = self.norms.predictor.as_deref().map(Vec::as_slice).filter(|_| predicted);
            // The frame is in `bytes`, whose checks it has passed.
            let measured = measure(self.layout, &self.bytes, predictor, &mut self.norms.update);
            self.norms.found[at] = Some(measured.map_err(|e| self.broken(at, &e))?);
        }
        Ok(predicted)
    }

    /// As [`Updates::add_frame`] for all updates in turn; returns for each whether it is the sum with the predictor. Norms are
    /// measured on another thread meanwhile, with frames of a few updates in memory. Lengths of `weights` and of what is returned:
    /// [`Updates::len`]. Shapes: `acc: [len]`, the length of the model.
    ///
    /// # Errors
    /// As of [`Updates::add_frame`].
    pub fn add_frames(&mut self, weights: &[f32], acc: &mut [f32]) -> Result<Vec<bool>, ModelError> {
        let in_turn = weights.iter().enumerate();
        if self.threads < 2 || !self.norms.wanted {
            return in_turn.map(|(at, weight)| self.add_frame(at, *weight, acc)).collect();
        }
        let layout = self.layout;
        let mut scratch = std::mem::take(&mut self.norms.update);
        std::thread::scope(|scope| {
            let (jobs, todo) = mpsc::sync_channel::<Job>(1);
            let (done, measured) = mpsc::channel();
            scope.spawn(move || {
                for Job { at, bytes, predictor } in todo {
                    let found = measure(layout, &bytes, predictor.as_deref().map(Vec::as_slice), &mut scratch);
                    if done.send((at, found, bytes)).is_err() {
                        return;
                    }
                }
            });
            let mut predicted = Vec::with_capacity(weights.len());
            for (at, weight) in in_turn {
                let is_predicted = self.add(at, *weight, acc)?;
                predicted.push(is_predicted);
                if self.norms.found[at].is_some() {
                    continue;
                }
                if is_predicted {
                    self.load_predictor()?;
                }
                let predictor = self.norms.predictor.clone().filter(|_| is_predicted);
                let bytes = std::mem::take(&mut self.bytes);
                // The thread ends after this loop.
                let _ = jobs.send(Job { at, bytes, predictor });
                for measured in measured.try_iter() {
                    self.bytes = self.note(measured)?;
                }
            }
            drop(jobs);
            for measured in measured {
                self.note(measured)?;
            }
            Ok(predicted)
        })
    }

    /// Notes the norms of an update, and returns the buffer of its frame.
    fn note(&mut self, (at, found, bytes): Measured) -> Result<Vec<u8>, ModelError> {
        self.norms.found[at] = Some(found.map_err(|e| self.broken(at, &e))?);
        Ok(bytes)
    }

    /// Adds `weight` times the predictor of the round's updates. Shapes: `acc: [len]`, the length of the model.
    ///
    /// # Errors
    /// `Predictor`; `acc` is unspecified then.
    pub fn add_predictor(&mut self, weight: f32, acc: &mut [f32]) -> Result<(), ModelError> {
        let Some(digest) = self.predictor else { return Ok(()) };
        let round = self.round;
        let unusable = |why: String| ModelError::Predictor { round, why };
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

    /// Reads the frame of an update into `bytes`, checks it and adds `weight` times what it decodes to. Returns whether it names
    /// the predictor.
    fn add(&mut self, at: usize, weight: f32, acc: &mut [f32]) -> Result<bool, ModelError> {
        let read = (self.read)(&self.sorted[at].frame, &mut self.bytes);
        read.map_err(|why| self.broken(at, &why))?;
        let frame = Frame::parse(&self.bytes, self.layout).map_err(|e| self.broken(at, &e))?;
        let header = frame.header();
        if header.kind != FrameKind::Update || header.round != self.round {
            let why = format!("the frame is a {:?} of round {}", header.kind, header.round);
            return Err(self.broken(at, &why));
        }
        let named = frame.predictor();
        if named.is_some() && named != self.predictor.as_ref().map(Digest::short) {
            let why = "the frame was encoded against another model update than that of the version trained from";
            return Err(self.broken(at, &why));
        }
        let (buffers, scale) = (self.layout.buffers(), self.buffer_scales[at]);
        let before = (scale != 1.0).then(|| acc[buffers.clone()].to_vec());
        let added = if self.noted[at] {
            frame.accumulate(weight, acc)
        } else {
            self.sections.accumulate(&frame, weight, acc)
        };
        added.map_err(|e| self.broken(at, &e))?;
        if let Some(before) = before {
            // Added anew: the values to be taken back may be so large that nothing else is left beside them.
            self.scratch.resize(buffers.len(), 0.0);
            let decoded = frame.decode_role(Role::Buffer, &mut self.scratch);
            decoded.map_err(|e| self.broken(at, &e))?;
            let sums = before
                .iter()
                .zip(&self.scratch)
                .map(|(sum, value)| sum + weight * scale * value);
            acc[buffers].iter_mut().zip(sums).for_each(|(acc, sum)| *acc = sum);
        }
        let counters = self.layout.counters();
        if !counters.is_empty() && self.parts[at].examples > 0.0 {
            self.scratch.resize(counters.len(), 0.0);
            let decoded = frame.decode_role(Role::Counter, &mut self.scratch);
            decoded.map_err(|e| self.broken(at, &e))?;
            let largest = self
                .counters
                .get_or_insert_with(|| vec![f32::NEG_INFINITY; counters.len()]);
            let pairs = largest.iter_mut().zip(&self.scratch);
            pairs.for_each(|(largest, value)| *largest = largest.max(*value));
        }
        self.noted[at] = true;
        Ok(named.is_some())
    }

    /// Decodes the predictor, once. The frame in `bytes` stays.
    fn load_predictor(&mut self) -> Result<(), ModelError> {
        if self.norms.predictor.is_none() {
            let mut values = vec![0.0; self.layout.len()];
            // Which is read into the same buffer.
            let frame = std::mem::take(&mut self.bytes);
            self.add_predictor(1.0, &mut values)?;
            self.bytes = frame;
            self.norms.predictor = Some(Arc::new(values));
        }
        Ok(())
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

/// An update whose norms are to be measured.
struct Job {
    at: usize,
    /// Its frame.
    bytes: Vec<u8>,
    predictor: Option<Arc<Vec<f32>>>,
}

/// The norms of an update by its place, and its frame.
type Measured = (usize, Result<UpdateNorms, fl_compress::Error>, Vec<u8>);

/// The norms of an update. `scratch` is overwritten and becomes as long as the model. Shapes: `predictor: [layout.len()]`.
fn measure(
    layout: &Layout,
    bytes: &[u8],
    predictor: Option<&[f32]>,
    scratch: &mut Vec<f32>,
) -> Result<UpdateNorms, fl_compress::Error> {
    scratch.clear();
    scratch.resize(layout.len(), 0.0);
    Frame::parse(bytes, layout)?.accumulate(1.0, scratch)?;
    add(predictor, scratch);
    Ok(norms(layout, scratch))
}

/// Shapes: `values: [layout.len()]`.
fn norms(layout: &Layout, values: &[f32]) -> UpdateNorms {
    UpdateNorms {
        trained: norm(&values[layout.trained()]),
        buffers: norm(&values[layout.buffers()]),
    }
}

fn add(values: Option<&[f32]>, acc: &mut [f32]) {
    acc.iter_mut()
        .zip(values.into_iter().flatten())
        .for_each(|(sum, value)| *sum += value);
}

/// The L2 norm, with eight sums: one sum would wait for each addition.
fn norm(values: &[f32]) -> f64 {
    let (eights, rest) = values.as_chunks::<8>();
    let mut sums = [0.0f64; 8];
    for eight in eights {
        for (sum, value) in sums.iter_mut().zip(eight) {
            *sum += f64::from(*value) * f64::from(*value);
        }
    }
    let rest: f64 = rest.iter().map(|value| f64::from(*value) * f64::from(*value)).sum();
    (sums.iter().sum::<f64>() + rest).sqrt()
}
