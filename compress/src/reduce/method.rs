//! What a reducer is: for the encoder, for the budget, and in the table.

use std::fmt;
use std::sync::Arc;

use crate::code::method::Code;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::quantize::QuantizeSpec;
use crate::quantize::known::KnownValues;
use crate::quantize::recipe::Quantize;
use crate::reduce::form::{CodedPlane, Form, Part, Reduction};
use crate::rng::KeyedRng;
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::wire::Reader;

/// One way to choose what is sent, with the numbers that a user chose.
pub(crate) trait Reducer {
    /// The numbers of the name alone, if it may stand alone.
    fn without_numbers() -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Chooses the numbers for a tensor. The result encodes it, or the same tensor with another quantizer.
    fn choose(&self, tensor: &TensorValues<'_>, context: RoundContext, rule_state: &mut RuleState) -> ReducerChoice;

    /// What is sent of every tensor, as far as a budget must know.
    fn sends(&self) -> Sends {
        Sends::Other
    }

    /// Whether the user gave a density that a budget replaces: no budget is then assumed.
    fn names_density(&self) -> bool {
        false
    }

    /// Whether squared gradients change what is sent.
    fn wants_squared_gradients(&self) -> bool {
        false
    }

    /// Whether the bandwidth of the client's link changes what is sent.
    fn wants_bandwidth(&self) -> bool {
        false
    }

    /// Succeeds if a rule can go on from a state that was loaded.
    ///
    /// # Errors
    /// `Mismatch` for a state that began with another seed, or does not fit the rule.
    fn accepts(&self, _rule_state: &RuleState) -> Result<(), Error> {
        Ok(())
    }

    /// Whether a rule chooses by earlier frames.
    fn remembers(&self) -> bool {
        false
    }

    /// Whether the values of some rows show nothing of what it makes of all.
    fn needs_all_rows(&self) -> bool {
        false
    }

    /// Whether what waits in a residual changes what is sent.
    fn wants_residual(&self) -> bool {
        false
    }

    /// The parts of the largest section of a tensor of `shape` with any values; `places` as in [`TensorValues`]. `None` if
    /// every value may be sent with its place.
    fn most_parts(&self, _shape: Shape, _places: usize) -> Option<Vec<Part>> {
        None
    }
}

/// What is sent of a tensor, as far as the encoder and the budget must know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Sends {
    /// Every value: a budget may choose the step of the quantizer.
    All,
    /// Every value: a budget may choose the step, and the encoder may split singular components off.
    Components,
    /// The largest values, indexed and clipped: a budget may choose how many.
    Largest { clip: Option<f32> },
    /// What nobody may change.
    Other,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TensorValues<'a> {
    /// Finite, not empty.
    pub(crate) values: &'a [f32],
    /// Mean squared gradients, if the trainer has given any: finite, not negative, as many as `values`.
    pub(crate) squared_gradients: Option<&'a [f32]>,
    /// What waited in the residual of error feedback and is now a part of `values`, for reducers that want it.
    pub(crate) residual: Option<&'a [f32]>,
    pub(crate) shape: Shape,
    /// Values for each pair of an output and an input of a convolution ([`crate::layout::Tensor::places`]).
    pub(crate) places: usize,
    pub(crate) quantize: QuantizeSpec,
    pub(crate) rng: KeyedRng,
    /// Without memory, what is not sent is lost: the method must be unbiased.
    pub(crate) unbiased: bool,
    pub(crate) threads: usize,
}

impl TensorValues<'_> {
    /// What the receiver will decode of part `at`, whose values are `values`.
    pub(crate) fn received(&self, values: &[f32], shape: Shape, at: u64) -> Result<Vec<f32>, Error> {
        let rng = self.rng.part(at);
        // The levels depend on the coder only if it chooses them.
        let code = match self.quantize {
            QuantizeSpec::DeadZone(zone) if zone.is_optimized() => Code::Context,
            _ => Code::Pack,
        };
        let mut bytes = Vec::new();
        let mut out = vec![0.0; values.len()];
        self.quantize.method().encode(values, shape, code, rng, &mut bytes);
        let plane = Quantize::of(&self.quantize).plane(&mut Reader::new(&bytes), shape, code, rng)?;
        plane.open()?.read(&mut out)?;
        Ok(out)
    }
}

impl TensorValues<'_> {
    /// Encodes part `at`, whose values are `values`, with `code`; returns what the receiver will decode, and the plane if it is
    /// the one to send.
    pub(crate) fn coded(
        &self,
        values: &[f32],
        shape: Shape,
        at: u64,
        code: Code,
    ) -> Result<(Vec<f32>, Option<CodedPlane>), Error> {
        let mut bytes = Vec::new();
        let coded = self
            .quantize
            .method()
            .encode_and_decode(values, shape, code, self.rng.part(at), &mut bytes);
        match coded {
            Some((size, values)) => {
                let known = Arc::new(KnownValues(values.clone()));
                let plane = CodedPlane {
                    code,
                    bytes,
                    size,
                    known,
                };
                Ok((values, Some(plane)))
            }
            None => Ok((self.received(values, shape, at)?, None)),
        }
    }
}

/// Takes a tensor and its warm start, which becomes that of the next frame.
type ReduceFn = dyn for<'v> Fn(&TensorValues<'v>, &mut Option<Vec<f32>>) -> Result<Reduction<'v>, Error> + Send + Sync;

/// A reducer with the numbers that it chose for one tensor.
#[derive(Clone)]
pub(crate) struct ReducerChoice {
    pub(crate) sends: Sends,
    reduction: Arc<ReduceFn>,
}

impl ReducerChoice {
    pub(crate) fn new<F>(sends: Sends, reduction: F) -> Self
    where
        F: for<'v> Fn(&TensorValues<'v>, &mut Option<Vec<f32>>) -> Result<Reduction<'v>, Error> + Send + Sync + 'static,
    {
        Self {
            sends,
            reduction: Arc::new(reduction),
        }
    }

    /// The planes of `tensor`, before they are quantized. `warm` is the second factor of the previous frame, and becomes that
    /// of this.
    pub(crate) fn reduce<'v>(
        &self,
        tensor: &TensorValues<'v>,
        warm: &mut Option<Vec<f32>>,
    ) -> Result<Reduction<'v>, Error> {
        (self.reduction)(tensor, warm)
    }
}

impl fmt::Debug for ReducerChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReducerChoice({:?})", self.sends)
    }
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) info: MethodInfo,
    /// What is on the wire. Several methods may share a form.
    pub(crate) form: &'static Form,
    /// Which random numbers the reducer draws (see [`crate::reduce::keyed`]), part of the format: 0 for none, else its own.
    pub(crate) stream: usize,
}
