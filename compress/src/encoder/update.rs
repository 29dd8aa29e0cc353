//! The encoder of a sequence of updates: absorbs each into the memory, encodes the result, and settles the frame.

use std::sync::Arc;

use crate::budget::estimate::{aside_bytes, check};
use crate::digest::Digest;
use crate::encoder::budget_agent::BudgetAgent;
use crate::encoder::fit::encode_limited;
use crate::encoder::learned::{LearnedState, SectionOutcome};
use crate::encoder::options::EncodeOptions;
use crate::encoder::plan::{FrameContext, SectionPlan, Sources};
use crate::encoder::section::SectionCodec;
use crate::error::Error;
use crate::fidelity::Products;
use crate::frame::header::{Extras, FrameHeader, OVERHEAD};
use crate::frame::view::Frame;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::memory::method::{CodedFrame, State, clear_aside};
use crate::pending::{Ack, Pending};
use crate::quantize::method::KnownPlane;
use crate::rounded::round_changes;
use crate::rules::round_context::RoundContext;
use crate::spec::budget::Budget;
use crate::spec::{BufferPrecision, Spec};
use crate::stages::Stages;
use crate::threads;
use crate::wire::{CHECKSUM_BYTES, seal};

/// Encodes a sequence of updates of one layout, and remembers what compression left unsent.
#[derive(Debug)]
pub struct Encoder {
    layout: Arc<Layout>,
    merge_below: u32,
    codecs: Vec<SectionCodec>,
    pub(super) learned: LearnedState,
    /// Without memory, what a frame does not carry is lost: methods must be unbiased.
    unbiased: bool,
    pub(super) memory: Box<dyn State>,
    budget: Option<Budget>,
    buffers: BufferPrecision,
    pub(super) pending: Option<Digest>,
    threads: usize,
}

/// A frame as its encoder knows it.
struct EncodedFrame {
    bytes: Vec<u8>,
    stages: Stages,
    sizes: Vec<usize>,
    /// What the parts of each section decode to, where that is known.
    known: Vec<Vec<Option<Arc<dyn KnownPlane>>>>,
}

impl Encoder {
    /// An encoder with empty memory that uses one thread.
    ///
    /// # Errors
    /// `Usage` if the spec cannot be met by the layout.
    pub fn new(layout: Arc<Layout>, spec: &Spec) -> Result<Self, Error> {
        spec.check_choices()?;
        let (merge_below, codecs) = SectionCodec::of(&layout, spec);
        if let Some(budget) = spec.budget {
            check(budget, codecs.iter().map(SectionCodec::codec))?;
        }
        Ok(Self {
            merge_below,
            learned: LearnedState::new(&codecs, spec.budget)?,
            codecs,
            unbiased: spec.memory == Memory::None,
            memory: spec.memory.state(layout.len()),
            budget: spec.budget,
            buffers: spec.buffers,
            pending: None,
            threads: 1,
            layout,
        })
    }

    /// Sets the maximum number of threads. Frames do not depend on it.
    pub fn set_threads(&mut self, threads: usize) {
        self.threads = threads.max(1);
    }

    /// Encodes `delta` plus the residual; the residual becomes the part that the frame does not carry. Buffers and
    /// counters are sent whole and have no residual. Deterministic in (spec, memory, delta, header). Shapes: `delta: [layout.len()]`; overwritten. If [`Encoder::residual`] is `None`,
    /// `delta` then has the part that the frame does not carry.
    ///
    /// # Errors
    /// `NotFinite` if `delta` (or its sum with the residual) has NaN or infinity; `Usage` if another frame is pending,
    /// `delta` has another length, the header is of a snapshot, or codecs without a step or density exceed a budget in
    /// bytes. The memory is then unchanged (with DGC up to rounding).
    pub fn encode(&mut self, delta: &mut [f32], header: FrameHeader) -> Result<Pending, Error> {
        self.encode_against(None, delta, header)
    }

    /// As [`Encoder::encode`], but encodes the difference of trained values from the decoded `predictor`, if it is given.
    /// The decoder must add the trained values of the predictor, which the frame names (see [`Frame::predictor`]).
    ///
    /// # Errors
    /// Those of [`Encoder::encode`], and of [`Frame::verify`] for the predictor.
    pub fn encode_against(
        &mut self,
        predictor: Option<&Frame<'_>>,
        delta: &mut [f32],
        header: FrameHeader,
    ) -> Result<Pending, Error> {
        let options = EncodeOptions {
            predictor,
            ..EncodeOptions::default()
        };
        self.encode_with(options, delta, header)
    }

    /// As [`Encoder::encode_against`], with everything that may accompany an update.
    ///
    /// # Errors
    /// Those of [`Encoder::encode_against`]; `Usage` if there are more or fewer squared gradients than trained values or buffers than
    /// the layout has, or a squared gradient is NaN, infinite or negative, naming the tensor.
    pub fn encode_with(
        &mut self,
        options: EncodeOptions<'_>,
        delta: &mut [f32],
        header: FrameHeader,
    ) -> Result<Pending, Error> {
        self.expect_settled()?;
        options.check(&self.layout, delta, header)?;
        if let (BufferPrecision::Rounded, Some(before)) = (self.buffers, options.buffers) {
            let changes = &mut delta[self.layout.buffers()];
            if before.len() != changes.len() {
                let what = format!("{} buffers before for {} of the layout", before.len(), changes.len());
                return Err(Error::Usage(what));
            }
            round_changes(before, changes);
        }
        let predicted = options
            .predictor
            .map(|predictor| predictor.measure_by_tensor(true, delta));
        let predicted = predicted.transpose()?;
        self.memory.predicted(options.predictor)?;
        self.memory.absorb(delta, self.layout.trained(), self.threads)?;
        let before = self.learned.clone();
        let pending = self.encode_absorbed(options, predicted.as_deref(), delta, header);
        match &pending {
            Ok(pending) => self.pending = Some(pending.digest),
            Err(_) => {
                self.memory.undo(delta);
                self.learned = before;
            }
        }
        pending
    }

    /// Encodes what the memory absorbed: plans, frame, memory, and what is learned. After an error, the memory and what was learned
    /// must be taken back. `predicted`: products of the predictor and the raw update, by tensor.
    fn encode_absorbed(
        &mut self,
        mut options: EncodeOptions<'_>,
        predicted: Option<&[Products]>,
        delta: &mut [f32],
        header: FrameHeader,
    ) -> Result<Pending, Error> {
        let trained = self.layout.trained();
        if let Some(agent) = &mut self.learned.budget {
            // A frame of zeros is not chosen for.
            if self.memory.input(delta)[trained.clone()]
                .iter()
                .any(|value| *value != 0.0)
            {
                agent.choose();
            }
            let chosen = self.asked();
            options.budget = options
                .budget
                .filter(|budget| chosen.is_none_or(|chosen| *budget < chosen));
        }
        let EncodedFrame {
            bytes: frame,
            stages,
            sizes,
            known,
        } = self.encode_sections(options, delta, header)?;
        let parsed = Frame::parse(&frame, &self.layout)?.knowing(known);
        let coded = CodedFrame {
            frame: &parsed,
            predicted: options.predictor.zip(predicted),
            threads: self.threads,
        };
        let (relation, products) = self.memory.encoded(coded, delta)?;
        drop(parsed);
        clear_aside(self.memory.as_mut(), trained);
        let results = products.into_iter().zip(sizes).zip(&self.learned.sections);
        let results = results.map(|((products, bytes), state)| SectionOutcome {
            fidelity: products.fidelity(relation, state.silent.saturating_add(1)),
            bytes,
            products,
        });
        let results: Vec<SectionOutcome> = results.collect();
        self.learned.after(&self.codecs, &results);
        Ok(Pending {
            header,
            digest: Digest::of(&frame),
            frame,
            stages,
            asked: options.asked(self.asked()),
            fidelity: results.into_iter().map(|section| section.fidelity).collect(),
        })
    }

    fn encode_sections(
        &mut self,
        options: EncodeOptions<'_>,
        delta: &[f32],
        header: FrameHeader,
    ) -> Result<EncodedFrame, Error> {
        let budget = self.chosen_budget();
        let sources = Sources {
            input: self.memory.input(delta),
            squared_gradients: options.squared_gradients,
            residual: self.memory.waited(delta),
        };
        let context = FrameContext {
            seed: header.seed,
            round: RoundContext::new(header.round, options.bandwidth),
            unbiased: self.unbiased,
            threads: self.threads.div_ceil(self.codecs.len().max(1)),
        };
        let mut plans = SectionPlan::all(&self.codecs, &mut self.learned.sections, sources);
        let numbered = plans.iter_mut().enumerate().collect();
        let tasks = threads::map(numbered, self.threads, |(at, plan)| plan.task(at, context));
        let mut tasks = tasks.into_iter().collect::<Result<Vec<_>, Error>>()?;
        if let Some(bits) = &mut self.learned.bits {
            bits.before(&mut tasks, self.threads)?;
        }
        let extras = Extras {
            merge_below: self.merge_below,
            predictor: options.predictor.map(Frame::id),
            rounding: options.rounding,
        };
        let mut bytes = Vec::with_capacity(OVERHEAD);
        header.write(&self.layout, tasks.len(), extras, &mut bytes);
        let values = self.layout.trained().len();
        let limits = options.limits(budget, values, bytes.len() + CHECKSUM_BYTES, header.round);
        let sections = encode_limited(limits, tasks, self.threads)?;
        if let Some(bits) = &mut self.learned.bits {
            bits.coded(&sections);
        }
        let mut stages = Stages::default();
        let mut known = Vec::with_capacity(sections.len());
        let sizes: Vec<usize> = sections.iter().map(|section| section.bytes.len()).collect();
        bytes.reserve_exact(sizes.iter().sum::<usize>() + CHECKSUM_BYTES);
        for section in sections {
            bytes.extend_from_slice(&section.bytes);
            stages.add(&section.stages);
            known.push(section.known);
        }
        seal(0, &mut bytes);
        stages.framed = bytes.len() as u64;
        Ok(EncodedFrame {
            bytes,
            stages,
            sizes,
            known,
        })
    }

    /// Whether squared gradients change the frames: if so, [`Encoder::encode_with`] should be given some.
    pub fn wants_squared_gradients(&self) -> bool {
        self.codecs.iter().any(SectionCodec::wants_squared_gradients)
    }

    /// The budget of the spec, or the last that an agent chose.
    fn chosen_budget(&self) -> Option<Budget> {
        self.learned.budget.as_ref().map(BudgetAgent::budget).or(self.budget)
    }

    /// Target size of a frame under the budget of the spec.
    pub(crate) fn asked(&self) -> Option<u64> {
        let aside = aside_bytes(self.codecs.iter().map(SectionCodec::codec));
        self.chosen_budget()
            .map(|budget| budget.frame_bytes(self.layout.trained().len(), aside))
    }

    /// Applies the acknowledgement of the pending frame to the memory.
    ///
    /// # Errors
    /// `Usage` if `pending` is not the pending frame of this encoder.
    pub fn settle(&mut self, pending: &Pending, ack: Ack) -> Result<(), Error> {
        if !self.is_pending(pending) {
            return Err(Error::Usage(format!("frame {} is not pending", pending.digest)));
        }
        self.memory.settled(&Frame::parse(&pending.frame, &self.layout)?, ack)?;
        clear_aside(self.memory.as_mut(), self.layout.trained());
        for (state, fidelity) in self.learned.sections.iter_mut().zip(&pending.fidelity) {
            state.silent = match ack {
                Ack::Accepted => fidelity.age,
                Ack::Rejected | Ack::Dropped => state.silent.saturating_add(1),
            };
        }
        self.pending = None;
        Ok(())
    }

    /// The residual by value index; `None` if the memory of the spec has none.
    pub fn residual(&self) -> Option<&[f32]> {
        let first = self.memory.vectors().into_iter().next();
        first.filter(|_| self.memory.entry().info.has_residual)
    }

    /// Adds what a rounding removed from the trained values of the model to the residual, so that later frames carry it.
    /// Without a residual it is lost. Shapes: `removed: [layout.len()]`; buffers and counters in it are ignored.
    ///
    /// # Errors
    /// `Usage` if a frame is pending or `removed` has another length.
    pub fn keep_back(&mut self, removed: &[f32]) -> Result<(), Error> {
        self.expect_settled()?;
        self.layout.expect_len(removed)?;
        let trained = self.layout.trained();
        if self.memory.entry().info.has_residual
            && let Some(residual) = self.memory.vectors_mut().into_iter().next()
        {
            let pairs = residual[trained.clone()].iter_mut().zip(&removed[trained]);
            pairs.for_each(|(residual, removed)| *residual += removed);
        }
        Ok(())
    }

    /// # Errors
    /// `Usage` if a frame is pending.
    fn expect_settled(&self) -> Result<(), Error> {
        if self.pending.is_none() {
            return Ok(());
        }
        Err(Error::Usage("a frame is pending: settle it first".to_owned()))
    }

    pub(super) fn codecs(&self) -> &[SectionCodec] {
        &self.codecs
    }

    /// The layout of the updates.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn is_pending(&self, pending: &Pending) -> bool {
        self.pending == Some(pending.digest)
    }
}
