//! The sending side: what is asked, what was left unsent, and the frame that is on its way.

use std::borrow::Cow;
use std::sync::Arc;

use crate::budget::estimate::check;
use crate::digest::Digest;
use crate::encoder::fit::{encode_all, encode_within};
use crate::encoder::group::UnitState;
use crate::encoder::task::{Job, Room};
use crate::error::Error;
use crate::frame::header::{Extras, FrameHeader, MINOR_AT, OVERHEAD};
use crate::frame::view::Frame;
use crate::layout::Layout;
use crate::memory::carried::Carried;
use crate::pending::{Pending, Verdict};
use crate::rng::Draws;
use crate::rules::tracked::Tracked;
use crate::section::input::Input;
use crate::spec::budget::Budget;
use crate::spec::memory::Memory;
use crate::spec::{Method, Spec};
use crate::stages::Stages;
use crate::threads;
use crate::wire::{CHECKSUM_BYTES, seal};

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

impl Encoder {
    /// An encoder with empty memory, which works on one thread.
    ///
    /// # Errors
    /// `Usage` if the spec cannot be met by the layout.
    pub fn new(layout: Arc<Layout>, spec: &Spec) -> Result<Self, Error> {
        let (below, units) = UnitState::of(&layout, spec);
        spec.budget
            .map_or(Ok(()), |budget| check(budget, units.iter().map(UnitState::codec)))?;
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
            drop(parsed);
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
            None => encode_all(jobs, threads)?,
            Some(budget) => {
                let most = budget.bytes(self.layout.len());
                let room = Room {
                    bytes: most.saturating_sub((frame.len() + CHECKSUM_BYTES) as u64),
                    is_firm: matches!(budget, Budget::Bytes(_)),
                    error: budget.error(),
                };
                encode_within(room, jobs, threads)?
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
