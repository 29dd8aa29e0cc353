//! What is planned for the sections of one frame: their values, their weights in the budget, and the codec of each.

use std::borrow::Cow;

use crate::encoder::choice;
use crate::encoder::section::{SectionCodec, SectionState};
use crate::encoder::task::EncodeTask;
use crate::encoder::weight::{self, WeightedSection};
use crate::error::Error;
use crate::reduce::method::TensorValues;
use crate::rng::KeyedRng;
use crate::rules::round_context::RoundContext;
use crate::section::input::Input;

/// The vectors of which each section takes its part.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    /// The update with what the memory added: `[layout.len()]`.
    pub(crate) input: &'a [f32],
    /// `[layout.trained().len()]`.
    pub(crate) squared_gradients: Option<&'a [f32]>,
    /// What waited in the residual: `[layout.len()]`.
    pub(crate) residual: Option<&'a [f32]>,
}

/// What all sections of a frame have in common.
#[derive(Clone, Copy)]
pub(crate) struct FrameContext {
    pub(crate) seed: u64,
    pub(crate) round: RoundContext,
    /// Without memory, what a frame does not carry is lost: methods must be unbiased.
    pub(crate) unbiased: bool,
    /// Threads of each section.
    pub(crate) threads: usize,
}

pub(crate) struct SectionPlan<'a> {
    codec: &'a SectionCodec,
    state: &'a mut SectionState,
    values: Cow<'a, [f32]>,
    squares: Option<Cow<'a, [f32]>>,
    residual: Option<Cow<'a, [f32]>>,
    /// Factor of the error in the budget.
    weight: f64,
}

impl<'a> SectionPlan<'a> {
    pub(crate) fn all(codecs: &'a [SectionCodec], states: &'a mut [SectionState], sources: Sources<'a>) -> Vec<Self> {
        let pairs = codecs.iter().zip(states);
        let mut plans: Vec<Self> = pairs.map(|(codec, state)| Self::new(codec, state, sources)).collect();
        let weighed: Vec<WeightedSection<'_>> = plans.iter().map(Self::weighed).collect();
        let weights = weight::factors(&weighed);
        for (plan, weight) in plans.iter_mut().zip(weights) {
            plan.weight = weight;
        }
        plans
    }

    fn new(codec: &'a SectionCodec, state: &'a mut SectionState, sources: Sources<'a>) -> Self {
        let squares = sources.squared_gradients.filter(|_| codec.wants_squared_gradients());
        let residual = sources.residual.filter(|_| codec.method.wants_residual());
        Self {
            values: codec.group.values(sources.input),
            squares: squares.map(|squares| codec.group.values(squares)),
            residual: residual.map(|residual| codec.group.values(residual)),
            weight: 1.0,
            codec,
            state,
        }
    }

    fn weighed(&self) -> WeightedSection<'_> {
        WeightedSection {
            weight: self.codec.weight,
            values: &self.values,
            squared_gradients: self.squares.as_deref(),
        }
    }

    /// The task to encode section `at`: its codec of those of the method, and what its rules choose.
    pub(crate) fn task(&mut self, at: usize, frame: FrameContext) -> Result<EncodeTask<'_>, Error> {
        let SectionCodec { group, method, .. } = self.codec;
        let mut tensor = TensorValues {
            values: &self.values,
            squared_gradients: self.squares.as_deref().filter(|_| method.wants_squared_gradients()),
            residual: self.residual.as_deref(),
            shape: group.shape,
            places: group.places,
            quantize: method.quantize,
            rng: KeyedRng::new(frame.seed, at),
            unbiased: frame.unbiased,
            threads: frame.threads,
        };
        let codec = choice::codec(method, &tensor, frame.round.round)?;
        tensor.quantize = codec.quantize;
        let chosen = codec
            .reduce
            .method()
            .choose(&tensor, frame.round, &mut self.state.rule_state);
        Ok(EncodeTask {
            input: Input {
                tensor,
                chosen,
                leading: None,
                code: codec.code,
            },
            role: group.role,
            weight: self.weight,
            warm: &mut self.state.warm,
            ratio: &mut self.state.ratio,
            components: None,
        })
    }
}
