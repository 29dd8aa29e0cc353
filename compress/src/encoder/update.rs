//! The encoder of a sequence of updates: absorbs each into the memory, encodes the result, and settles the frame.

use std::borrow::Cow;
use std::sync::Arc;

use crate::budget::estimate::{aside_bytes, check};
use crate::digest::Digest;
use crate::encoder::bits::{self, BitsController};
use crate::encoder::budget_agent::BudgetAgent;
use crate::encoder::choice;
use crate::encoder::fit::encode_limited;
use crate::encoder::given::{Given, check_squared_gradients};
use crate::encoder::group::GroupState;
use crate::encoder::task::EncodeTask;
use crate::encoder::weight::{self, Weighed};
use crate::error::Error;
use crate::fidelity::{Fidelity, Products};
use crate::frame::header::{Extras, FrameHeader, OVERHEAD};
use crate::frame::view::Frame;
use crate::layout::{Layout, Role};
use crate::memory::Memory;
use crate::memory::method::{Coded, State, clear_aside};
use crate::pending::{Ack, Pending};
use crate::quantize::method::KnownPlane;
use crate::reduce::method::TensorValues;
use crate::rng::KeyedRng;
use crate::rounded::round_changes;
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::section::input::Input;
use crate::spec::budget::Budget;
use crate::spec::method::Method;
use crate::spec::{BufferPrecision, Spec};
use crate::stages::Stages;
use crate::threads;
use crate::wire::{CHECKSUM_BYTES, seal};

/// Encodes a sequence of updates of one layout, and remembers what compression left unsent.
#[derive(Debug)]
pub struct Encoder {
    layout: Arc<Layout>,
    merge_below: u32,
    groups: Vec<GroupState>,
    /// Without memory, what a frame does not carry is lost: methods must be unbiased.
    unbiased: bool,
    memory: Box<dyn State>,
    bits: Option<BitsController>,
    budget: Option<Budget>,
    buffers: BufferPrecision,
    /// Chooses the budget of each frame, if a rule does.
    agent: Option<BudgetAgent>,
    pending: Option<Digest>,
    threads: usize,
}

/// A frame, its stages, and what the parts of its sections decode to.
type Made = (Vec<u8>, Stages, Vec<Vec<Option<Arc<dyn KnownPlane>>>>);

impl Encoder {
    /// An encoder with empty memory that uses one thread.
    ///
    /// # Errors
    /// `Usage` if the spec cannot be met by the layout.
    pub fn new(layout: Arc<Layout>, spec: &Spec) -> Result<Self, Error> {
        spec.check_choices()?;
        let (merge_below, groups) = GroupState::of(&layout, spec);
        spec.budget
            .map_or(Ok(()), |budget| check(budget, groups.iter().map(GroupState::codec)))?;
        let bits = BitsController::new(groups.iter().map(|group| &group.method.quantize))?;
        Ok(Self {
            merge_below,
            bits,
            groups,
            unbiased: spec.memory == Memory::None,
            memory: spec.memory.state(layout.len()),
            budget: spec.budget,
            buffers: spec.buffers,
            agent: BudgetAgent::new(spec.budget),
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
        let given = Given {
            predictor,
            ..Given::default()
        };
        self.encode_given(given, delta, header)
    }

    /// As [`Encoder::encode_against`], with everything that may accompany an update.
    ///
    /// # Errors
    /// Those of [`Encoder::encode_against`]; `Usage` if there are more or fewer squared gradients than trained values or buffers than
    /// the layout has, or a squared gradient is NaN, infinite or negative, naming the tensor.
    pub fn encode_given(
        &mut self,
        mut given: Given<'_>,
        delta: &mut [f32],
        header: FrameHeader,
    ) -> Result<Pending, Error> {
        let predictor = given.predictor;
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
        if given.rounding.is_some() && header.kind != crate::FrameKind::ModelUpdate {
            return Err(Error::Usage("only a model update rounds the model".to_owned()));
        }
        if let Some(squared) = given.squared_gradients {
            check_squared_gradients(&self.layout, squared)?;
        }
        if let (BufferPrecision::Rounded, Some(before)) = (self.buffers, given.buffers) {
            let changes = &mut delta[self.layout.buffers()];
            if before.len() != changes.len() {
                let what = format!("{} buffers before for {} of the layout", before.len(), changes.len());
                return Err(Error::Usage(what));
            }
            round_changes(before, changes);
        }
        let predicted = predictor.map(|predictor| predictor.measure_by_tensor(true, delta));
        let predicted = predicted.transpose()?;
        self.memory.predicted(predictor)?;
        self.memory.absorb(delta, self.layout.trained(), self.threads)?;
        let extras = Extras {
            merge_below: self.merge_below,
            predictor: predictor.map(Frame::id),
            rounding: given.rounding,
        };
        let learned = |state: &GroupState| (state.rule_state.clone(), state.warm.clone(), state.ratio);
        let learned = self.groups.iter().map(learned).collect();
        let (bits, agent) = (self.bits.clone(), self.agent.clone());
        self.choose_budget(delta, &mut given);
        let made = self
            .frame(given, delta, header, extras)
            .and_then(|(frame, stages, known)| {
                let parsed = Frame::parse(&frame, &self.layout)?.knowing(known);
                let coded = Coded {
                    frame: &parsed,
                    predicted: predictor.zip(predicted.as_deref()),
                    threads: self.threads,
                };
                let measured = self.memory.encoded(coded, delta)?;
                let sizes: Vec<usize> = parsed.sections().map(|section| section.bytes.total()).collect();
                clear_aside(self.memory.as_mut(), self.layout.trained());
                drop(parsed);
                Ok((frame, stages, measured, sizes))
            });
        let (frame, stages, (relation, products), sizes) = made.inspect_err(|_| {
            self.take_back(delta, learned);
            (self.bits, self.agent) = (bits, agent);
        })?;
        self.teach_agent(&products, &sizes);
        let ages = self.groups.iter().map(|group| group.silent.saturating_add(1));
        let fidelity = products.iter().zip(ages);
        let fidelity: Vec<Fidelity> = fidelity
            .map(|(products, age)| products.fidelity(relation, age))
            .collect();
        self.teach(&fidelity, &sizes);
        let digest = Digest::of(&frame);
        self.pending = Some(digest);
        Ok(Pending {
            header,
            frame,
            digest,
            stages,
            asked: given.asked(self.asked()),
            fidelity,
        })
    }

    /// Has the agent choose a budget, if there is one. A budget of `given` that is larger has no effect then. A frame of zeros
    /// is not chosen for.
    fn choose_budget(&mut self, delta: &[f32], given: &mut Given<'_>) {
        let trained = self.layout.trained();
        let Some(agent) = &mut self.agent else { return };
        let input = &self.memory.input(delta)[trained];
        if input.iter().any(|value| *value != 0.0) {
            agent.choose();
        }
        let chosen = self.asked();
        given.budget = given.budget.filter(|given| chosen.is_none_or(|chosen| *given < chosen));
    }

    /// Tells the agent what the frame kept, and what its sections took.
    fn teach_agent(&mut self, products: &[Products], sizes: &[usize]) {
        let Some(agent) = &mut self.agent else { return };
        let trained = |group: &GroupState| group.group.role == Role::Trained;
        let sections = self.groups.iter().zip(products).filter(|(group, _)| trained(group));
        let bytes = self.groups.iter().zip(sizes).filter(|(group, _)| trained(group));
        let bytes = bytes.map(|(_, size)| size).sum();
        agent.teach(
            sections.map(|(_, products)| products),
            bytes,
            self.layout.trained().len().max(1),
        );
    }

    /// Tells the rules that learn from it what their sections kept, and what those took. A section of zeros, for which no rule
    /// chose, does not replace an outcome that was not read yet.
    fn teach(&mut self, fidelity: &[Fidelity], sizes: &[usize]) {
        let outcomes = self.groups.iter().zip(fidelity.iter().zip(sizes));
        let outcomes = outcomes.map(|(group, (fidelity, size))| {
            let bits = 8.0 * *size as f64 / group.group.shape.len() as f64;
            (f64::from(fidelity.kept), bits)
        });
        let outcomes: Vec<(f64, f64)> = outcomes.collect();
        for (group, outcome) in self.groups.iter_mut().zip(&outcomes) {
            let state = &group.rule_state;
            let is_new = state.kind != 0 && state.outcome.is_none();
            if is_new && group.method.reduce.method().wants_outcome() {
                group.rule_state.outcome = Some(*outcome);
            }
        }
        if let Some(controller) = &mut self.bits {
            let ruled = self.groups.iter().zip(outcomes);
            let ruled = ruled.filter(|(group, _)| bits::rule(&group.method.quantize).is_some());
            controller.teach(ruled.map(|(_, outcome)| outcome));
        }
    }

    /// Whether squared gradients change the frames: if so, [`Encoder::encode_given`] should be given some.
    pub fn wants_squared_gradients(&self) -> bool {
        self.groups.iter().any(GroupState::wants_squared_gradients)
    }

    /// The budget of the spec, or the last that an agent chose.
    fn chosen_budget(&self) -> Option<Budget> {
        self.agent.as_ref().map(BudgetAgent::budget).or(self.budget)
    }

    /// Target size of a frame under the budget of the spec.
    pub(crate) fn asked(&self) -> Option<u64> {
        let aside = aside_bytes(self.groups.iter().map(GroupState::codec));
        self.chosen_budget()
            .map(|budget| budget.frame_bytes(self.layout.trained().len(), aside))
    }

    /// Rolls back an update that could not be encoded.
    fn take_back(&mut self, delta: &[f32], learned: Vec<(RuleState, Option<Vec<f32>>, f64)>) {
        self.memory.undo(delta);
        for (state, learned) in self.groups.iter_mut().zip(learned) {
            (state.rule_state, state.warm, state.ratio) = learned;
        }
    }

    fn frame(&mut self, given: Given<'_>, delta: &[f32], header: FrameHeader, extras: Extras) -> Result<Made, Error> {
        let model = self.memory.input(delta);
        let (unbiased, threads, budget) = (self.unbiased, self.threads, self.chosen_budget());
        let inner = threads.div_ceil(self.groups.len().max(1));
        let values: Vec<Cow<'_, [f32]>> = self.groups.iter().map(|state| state.group.values(model)).collect();
        let squared = |state: &GroupState| match given.squared_gradients {
            Some(squared) if state.wants_squared_gradients() => Some(state.group.values(squared)),
            _ => None,
        };
        let squared: Vec<Option<Cow<'_, [f32]>>> = self.groups.iter().map(squared).collect();
        let waited = self.memory.waited(delta);
        let residual = |state: &GroupState| match waited {
            Some(waited) if state.method.wants_residual() => Some(state.group.values(waited)),
            _ => None,
        };
        let residuals: Vec<Option<Cow<'_, [f32]>>> = self.groups.iter().map(residual).collect();
        let sections = self.groups.iter().zip(values.iter().zip(&squared));
        let weighed = sections.map(|(state, (values, squared))| Weighed {
            weight: state.weight,
            values,
            squared_gradients: squared.as_deref(),
        });
        let weights = weight::factors(&weighed.collect::<Vec<_>>());
        let bytes = given;
        let given = values.iter().zip(&squared).zip(residuals.iter().zip(weights));
        let groups = self.groups.iter_mut().zip(given);
        let groups: Vec<_> = groups.enumerate().collect();
        let tasks: Vec<Result<EncodeTask<'_>, Error>> = threads::map(
            groups,
            threads,
            |(at, (state, ((values, squared), (residual, weight))))| {
                let mut tensor = TensorValues {
                    values,
                    squared_gradients: squared.as_deref().filter(|_| state.method.wants_squared_gradients()),
                    residual: residual.as_deref(),
                    shape: state.group.shape,
                    places: state.group.places,
                    quantize: state.method.quantize,
                    rng: KeyedRng::new(header.seed, at),
                    unbiased,
                    threads: inner,
                };
                let Method {
                    reduce, quantize, code, ..
                } = choice::codec(&state.method, &tensor, header.round)?;
                tensor.quantize = *quantize;
                let context = RoundContext::new(header.round, bytes.bandwidth);
                let chosen = reduce.method().choose(&tensor, context, &mut state.rule_state);
                let input = Input {
                    tensor,
                    chosen,
                    leading: None,
                    code: *code,
                };
                Ok(EncodeTask {
                    input,
                    role: state.group.role,
                    weight,
                    warm: &mut state.warm,
                    ratio: &mut state.ratio,
                    components: None,
                })
            },
        );
        let mut tasks = tasks.into_iter().collect::<Result<Vec<_>, Error>>()?;
        let ruled = |task: &EncodeTask<'_>| {
            let tensor = &task.input.tensor;
            (bits::rule(&tensor.quantize).is_some(), tensor.values.len())
        };
        let ruled: Vec<(bool, usize)> = tasks.iter().map(ruled).collect();
        if let Some(bits) = &mut self.bits {
            bits.choose(&mut tasks, threads)?;
        }
        let mut frame = Vec::with_capacity(OVERHEAD);
        header.write(&self.layout, tasks.len(), extras, &mut frame);
        let values = self.layout.trained().len();
        let [limit, most] = bytes.limits(budget, values, frame.len() + CHECKSUM_BYTES, header.round);
        let sections = encode_limited(limit, most, tasks, threads)?;
        if let Some(bits) = &mut self.bits {
            bits.coded(&sections, ruled.into_iter());
        }
        let (mut stages, mut known) = (Stages::default(), Vec::new());
        frame.reserve_exact(sections.iter().map(|section| section.bytes.len()).sum::<usize>() + CHECKSUM_BYTES);
        for section in sections {
            frame.extend_from_slice(&section.bytes);
            stages.add(&section.stages);
            known.push(section.known);
        }
        seal(0, &mut frame);
        stages.framed = frame.len() as u64;
        Ok((frame, stages, known))
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
        for (group, fidelity) in self.groups.iter_mut().zip(&pending.fidelity) {
            group.silent = match ack {
                Ack::Accepted => fidelity.age,
                Ack::Rejected | Ack::Dropped => group.silent.saturating_add(1),
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
        if self.pending.is_some() {
            return Err(Error::Usage("a frame is pending: settle it first".to_owned()));
        }
        if removed.len() != self.layout.len() {
            return Err(Error::Usage(format!(
                "{} values for a layout of {}",
                removed.len(),
                self.layout.len()
            )));
        }
        let trained = self.layout.trained();
        if self.memory.entry().info.has_residual
            && let Some(residual) = self.memory.vectors_mut().into_iter().next()
        {
            let pairs = residual[trained.clone()].iter_mut().zip(&removed[trained]);
            pairs.for_each(|(residual, removed)| *residual += removed);
        }
        Ok(())
    }

    pub(crate) fn memory(&self) -> &dyn State {
        &*self.memory
    }

    pub(crate) fn memory_mut(&mut self) -> &mut dyn State {
        &mut *self.memory
    }

    pub(crate) fn groups(&self) -> &[GroupState] {
        &self.groups
    }

    pub(crate) fn groups_mut(&mut self) -> &mut [GroupState] {
        &mut self.groups
    }

    pub(crate) fn bits(&self) -> Option<&BitsController> {
        self.bits.as_ref()
    }

    pub(crate) fn agent(&self) -> Option<&BudgetAgent> {
        self.agent.as_ref()
    }

    pub(crate) fn agent_mut(&mut self) -> Option<&mut BudgetAgent> {
        self.agent.as_mut()
    }

    pub(crate) fn bits_mut(&mut self) -> Option<&mut BitsController> {
        self.bits.as_mut()
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
