//! The sending side: what is asked, what was left unsent, and the frame that is on its way.

use std::borrow::Cow;
use std::sync::Arc;

use crate::budget::{self, BudgetEstimate, Job, Room};
use crate::frame::{Extras, MINOR_AT, OVERHEAD, Unit, units};
use crate::memory::Carried;
use crate::rng::Draws;
use crate::rules::Tracked;
use crate::section::Input;
use crate::spec::Method;
use crate::wire::{CHECKSUM_BYTES, seal};
use crate::{Budget, Digest, Error, Fidelity, Frame, FrameHeader, Layout, Memory, Spec, threads};

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Taken by the receiver: what it decoded is no longer owed.
    Accepted,
    /// Not taken (late, lost, round closed): its content is added back to the residual. Without memory it is lost.
    Refused,
    /// Not taken and not wanted later: its content is forgotten. The residual keeps what the frame did not carry.
    Dropped,
}

/// Bytes of one update after each stage.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stages {
    /// Four bytes a value.
    pub fp32: u64,
    /// After reduce: four bytes a kept value and four an index.
    pub reduced: u64,
    /// After quantize, packed at its plain width, scales included; four bytes an index.
    pub quantized: u64,
    /// After entropy coding: the sum of the sections.
    pub coded: u64,
    /// The whole frame.
    pub framed: u64,
    /// Bytes that coding could not go below: order-0 entropy of each entropy-coded plane, the logarithm of the number of
    /// supports of the same size for indices, the size itself of planes that are packed as asked.
    pub bound: f64,
}

impl Stages {
    fn add(&mut self, section: &Self) {
        self.fp32 += section.fp32;
        self.reduced += section.reduced;
        self.quantized += section.quantized;
        self.coded += section.coded;
        self.bound += section.bound;
    }
}

/// A frame that was encoded and whose fate is not known yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// Fixed part of the frame.
    pub header: FrameHeader,
    /// The encoded update.
    pub frame: Vec<u8>,
    /// Digest of `frame`.
    pub digest: Digest,
    /// Bytes after each stage.
    pub stages: Stages,
    /// Bytes that the budget asks for, if there is one. The frame has more if the budget bounds the error too and fewer
    /// bytes would pass that bound, or if what has no step or density to choose takes more.
    pub asked: Option<u64>,
    /// How much of the update each section carries, in the order of [`Frame::sections`]. Empty if the frame was read from a
    /// state of an older version, which did not have it.
    pub fidelity: Vec<Fidelity>,
}

/// Encodes updates of one layout, one after another, and remembers what compression left unsent.
#[derive(Debug)]
pub struct Encoder {
    layout: Arc<Layout>,
    below: u32,
    units: Vec<UnitState>,
    /// No memory makes good for what is not sent.
    unbiased: bool,
    carried: Carried,
    budget: Option<Budget>,
    pending: Option<Digest>,
    threads: usize,
}

/// What is asked for one section of every frame, and what was learned of it.
#[derive(Debug)]
pub(crate) struct UnitState {
    pub(crate) unit: Unit,
    pub(crate) method: Method,
    pub(crate) tracked: Tracked,
    /// The second factor of the last time.
    pub(crate) warm: Option<Vec<f32>>,
    /// Bits that coding took for each one foretold, the last time.
    pub(crate) ratio: f64,
    /// Frames since the receiver last took one with a value of this section that was not zero.
    pub(crate) silent: u32,
}

impl Spec {
    /// What the budget leaves for the tensors of `layout`, if there is one.
    pub fn budget_estimate(&self, layout: &Layout) -> Option<BudgetEstimate> {
        let units = || UnitState::of(layout, self).1;
        self.budget.map(|budget| BudgetEstimate::new(budget, &units()))
    }
}

impl UnitState {
    /// The sections of a frame under `spec`, and below how many values tensors are encoded as one.
    fn of(layout: &Layout, spec: &Spec) -> (u32, Vec<Self>) {
        let small = layout.tensors().iter().filter(|tensor| spec.is_small(tensor)).count();
        // One small tensor has nothing to be encoded together with, and keeps its place in the layout.
        let below = spec.small.as_ref().filter(|_| small > 1).map_or(0, |small| small.below);
        let method = |unit: &Unit| {
            let first = unit.tensors.first();
            first.map_or(&spec.default, |&at| spec.method(&layout.tensors()[at]))
        };
        let units = units(layout, below as usize).into_iter().map(|unit| UnitState {
            method: method(&unit).clone(),
            unit,
            tracked: Tracked::default(),
            warm: None,
            ratio: 1.0,
            silent: 0,
        });
        (below, units.collect())
    }
}

impl Encoder {
    /// An encoder with empty memory, which works on one thread.
    ///
    /// # Errors
    /// `Usage` if the spec cannot be met by the layout.
    pub fn new(layout: Arc<Layout>, spec: &Spec) -> Result<Self, Error> {
        let (below, units) = UnitState::of(&layout, spec);
        spec.budget.map_or(Ok(()), |budget| budget::check(budget, &units))?;
        Ok(Self {
            below,
            units,
            unbiased: spec.memory == Memory::None,
            carried: Carried::new(spec.memory, layout.len()),
            budget: spec.budget,
            pending: None,
            threads: 1,
            layout,
        })
    }

    /// Lets encoding use up to `threads` threads. The frames are the same on any number.
    pub fn set_threads(&mut self, threads: usize) {
        self.threads = threads.max(1);
    }

    /// Encodes `delta` plus the residual; the residual becomes what the frame does not carry. Deterministic in
    /// (spec, memory, delta, header). Shapes: `delta: [layout.len()]`; overwritten. If [`Encoder::residual`] is `None`,
    /// `delta` then holds what the frame does not carry.
    ///
    /// # Errors
    /// `NotFinite` if `delta` (or its sum with the residual) holds NaN or infinity; `Usage` if another frame is pending,
    /// `delta` has another length, a snapshot is asked for, or what has nothing to choose passes a budget in bytes. The
    /// memory does not change then (that of DGC but for rounding).
    pub fn encode(&mut self, delta: &mut [f32], header: FrameHeader) -> Result<Pending, Error> {
        self.encode_against(None, delta, header)
    }

    /// As [`Encoder::encode`], but encodes the difference from what `predictor` decodes to, if it is given. Who decodes
    /// the frame must add the values of the predictor, which it names (see [`Frame::predictor`]).
    ///
    /// # Errors
    /// As [`Encoder::encode`], and those of [`Frame::verify`] for the predictor.
    pub fn encode_against(
        &mut self,
        predictor: Option<&Frame<'_>>,
        delta: &mut [f32],
        header: FrameHeader,
    ) -> Result<Pending, Error> {
        if self.pending.is_some() {
            return Err(Error::Usage("a frame is pending: settle it first".to_owned()));
        }
        if delta.len() != self.layout.len() {
            return Err(Error::Usage(format!(
                "{} values for a layout of {}",
                delta.len(),
                self.layout.len()
            )));
        }
        if header.kind == crate::FrameKind::Snapshot {
            return Err(Error::Usage("a snapshot is not an update".to_owned()));
        }
        let predicted = self.carried.absorb(delta, predictor, self.threads)?;
        let extras = Extras {
            below: self.below,
            predictor: predictor.map(Frame::id),
        };
        let learned = |state: &UnitState| (state.tracked, state.warm.clone(), state.ratio);
        let learned = self.units.iter().map(learned).collect();
        let made = self.frame(delta, header, extras).and_then(|(frame, stages)| {
            let parsed = Frame::parse(&frame, &self.layout)?;
            let predicted = predictor.zip(predicted.as_deref());
            let measured = self.carried.encoded(&parsed, delta, predicted, self.threads)?;
            Ok((frame, stages, measured))
        });
        let (frame, stages, (relation, products)) = made.inspect_err(|_| self.take_back(delta, learned))?;
        let ages = self.units.iter().map(|unit| unit.silent.saturating_add(1));
        let fidelity = products.iter().zip(ages);
        let fidelity = fidelity
            .map(|(products, age)| products.fidelity(relation, age))
            .collect();
        let digest = Digest::of(&frame);
        self.pending = Some(digest);
        Ok(Pending {
            header,
            frame,
            digest,
            stages,
            asked: self.asked(),
            fidelity,
        })
    }

    /// Bytes of a frame that the budget asks for.
    pub(crate) fn asked(&self) -> Option<u64> {
        self.budget.map(|budget| budget.bytes(self.layout.len()))
    }

    /// Forgets an update that could not be encoded.
    fn take_back(&mut self, delta: &[f32], learned: Vec<(Tracked, Option<Vec<f32>>, f64)>) {
        self.carried.undo(delta);
        for (state, learned) in self.units.iter_mut().zip(learned) {
            (state.tracked, state.warm, state.ratio) = learned;
        }
    }

    fn frame(&mut self, delta: &[f32], header: FrameHeader, extras: Extras) -> Result<(Vec<u8>, Stages), Error> {
        let model = self.carried.input(delta);
        let (unbiased, threads) = (self.unbiased, self.threads);
        let inner = threads.div_ceil(self.units.len().max(1));
        let values = |state: &UnitState| match state.unit.only(model) {
            Some(values) => Cow::Borrowed(values),
            None => Cow::Owned(state.unit.gathered(model)),
        };
        let values: Vec<Cow<'_, [f32]>> = self.units.iter().map(values).collect();
        let units: Vec<_> = self.units.iter_mut().zip(&values).enumerate().collect();
        let jobs: Vec<Job<'_>> = threads::map(units, threads, |(at, (state, values))| {
            let shape = state.unit.shape;
            let Method { reduce, quantize, code } = &state.method;
            let (selection, clip) = reduce.select(values, shape, header.round, unbiased, &mut state.tracked);
            let input = Input {
                values,
                shape,
                selection,
                leading: None,
                clip,
                quantize: *quantize,
                code: *code,
                draws: Draws::new(header.seed, at),
                unbiased,
                threads: inner,
            };
            Job {
                input,
                warm: &mut state.warm,
                ratio: &mut state.ratio,
            }
        });
        let mut frame = Vec::with_capacity(OVERHEAD);
        header.write(&self.layout, jobs.len(), extras, &mut frame);
        let sections = match self.budget {
            None => budget::encode_all(jobs, threads)?,
            Some(budget) => {
                let most = budget.bytes(self.layout.len());
                let room = Room {
                    bytes: most.saturating_sub((frame.len() + CHECKSUM_BYTES) as u64),
                    is_firm: matches!(budget, Budget::Bytes(_)),
                    error: budget.error(),
                };
                budget::encode_within(room, jobs, threads)?
            }
        };
        let mut stages = Stages::default();
        frame.reserve_exact(sections.iter().map(|section| section.bytes.len()).sum::<usize>() + CHECKSUM_BYTES);
        for section in sections {
            frame[MINOR_AT] = frame[MINOR_AT].max(section.minor);
            frame.extend_from_slice(&section.bytes);
            stages.add(&section.stages);
        }
        seal(0, &mut frame);
        stages.framed = frame.len() as u64;
        Ok((frame, stages))
    }

    /// Tells the memory what became of the pending frame.
    ///
    /// # Errors
    /// `Usage` if `pending` is not the frame that this encoder has pending.
    pub fn settle(&mut self, pending: &Pending, verdict: Verdict) -> Result<(), Error> {
        if !self.is_pending(pending) {
            return Err(Error::Usage(format!("frame {} is not pending", pending.digest)));
        }
        self.carried
            .settled(&Frame::parse(&pending.frame, &self.layout)?, verdict)?;
        for (unit, fidelity) in self.units.iter_mut().zip(&pending.fidelity) {
            unit.silent = match verdict {
                Verdict::Accepted => fidelity.age,
                Verdict::Refused | Verdict::Dropped => unit.silent.saturating_add(1),
            };
        }
        self.pending = None;
        Ok(())
    }

    /// Residual by value index: what compression has left unsent; `None` if the spec keeps no such memory.
    pub fn residual(&self) -> Option<&[f32]> {
        self.carried.residual()
    }

    pub(crate) fn carried(&self) -> &Carried {
        &self.carried
    }

    pub(crate) fn carried_mut(&mut self) -> &mut Carried {
        &mut self.carried
    }

    pub(crate) fn units(&self) -> &[UnitState] {
        &self.units
    }

    pub(crate) fn units_mut(&mut self) -> &mut [UnitState] {
        &mut self.units
    }

    /// The layout of the updates.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn is_pending(&self, pending: &Pending) -> bool {
        self.pending == Some(pending.digest)
    }

    pub(crate) fn restore_pending(&mut self, pending: Option<&Pending>) {
        self.pending = pending.map(|pending| pending.digest);
    }
}
