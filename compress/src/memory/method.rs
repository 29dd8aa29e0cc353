//! The interfaces of a memory: encoder ([`State`]), users ([`MemoryInfo`]) and table entry ([`Entry`]).

use std::fmt::Debug;
use std::ops::Range;

use crate::error::Error;
use crate::fidelity::{Products, Relation};
use crate::frame::view::Frame;
use crate::pending::Ack;

/// One memory, as written in TOML, and what a run must know about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Name in TOML.
    pub name: &'static str,
    /// What the memory does, in one sentence.
    pub about: &'static str,
    /// Example values in TOML: the name, and a table if there are parameters.
    pub examples: &'static [&'static str],
    /// What its frames have.
    pub encodes: Encodes,
    /// Whether what a frame leaves out is added to the next one.
    pub has_residual: bool,
}

/// What the frames of a memory have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encodes {
    /// The update, with the residual if there is one.
    Update,
    /// The difference of the update from the last model update.
    FromModelUpdate,
    /// The difference of the update from the sum of all earlier frames, which the receiver must keep for each sender.
    FromSum,
    /// Sums of momenta of local training: only clients have these.
    Momenta,
}

/// One entry of the table of memories.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) info: MemoryInfo,
    /// The TOML table of the parameters, for error texts.
    pub(crate) parameters: Option<&'static str>,
    /// Its number in a state file, if it has vectors of its own. A state without vectors is written as 0.
    pub(crate) kind: Option<u8>,
    /// Vectors in a state file of this kind.
    pub(crate) vectors: usize,
}

/// The encoded input of a memory.
#[derive(Clone, Copy)]
pub(crate) struct CodedFrame<'a> {
    pub(crate) frame: &'a Frame<'a>,
    /// The predictor, and its products with the raw update, per tensor.
    pub(crate) predicted: Option<(&'a Frame<'a>, &'a [Products])>,
    pub(crate) threads: usize,
}

/// The accepted forms, for error texts: all names, then the tables of those with parameters.
pub(crate) fn forms(entries: &[Entry]) -> String {
    let table = |entry: &Entry| Some(format!("{{ {} = {} }}", entry.info.name, entry.parameters?));
    let names = entries.iter().map(|entry| format!("{:?}", entry.info.name));
    let forms: Vec<String> = names.chain(entries.iter().filter_map(table)).collect();
    let (last, others) = forms.split_last().expect("the table is not empty");
    format!("{} or {last}", others.join(", "))
}

/// The state of a memory, and its transitions. The defaults are those of a memory without vectors.
pub(crate) trait State: Debug + Send + Sync {
    /// The entry of the memory to which the vectors belong.
    fn entry(&self) -> &'static Entry;

    /// Receives the decoded predictor of the next frame, before [`State::absorb`].
    ///
    /// # Errors
    /// Those of [`Frame::verify`].
    fn predicted(&mut self, _predictor: Option<&Frame<'_>>) -> Result<(), Error> {
        Ok(())
    }

    /// Absorbs `delta`, from which the predictor was subtracted; [`State::input`] is then the vector to encode, which has
    /// buffers and counters as in `delta`: the vectors are zero outside of `trained` (see [`clear_aside`]).
    ///
    /// # Errors
    /// `NotFinite`; then the memory is unchanged and `delta` is unspecified.
    fn absorb(&mut self, delta: &mut [f32], trained: Range<usize>, threads: usize) -> Result<(), Error>;

    /// Reverts [`State::absorb`]; `delta` must be unchanged since.
    fn undo(&mut self, _delta: &[f32]) {}

    /// The vector to encode, after `absorb`.
    fn input<'v>(&'v self, delta: &'v [f32]) -> &'v [f32] {
        delta
    }

    /// What waited in the residual, after `absorb`; `None` for a memory without error feedback.
    fn waited<'v>(&'v self, _delta: &'v [f32]) -> Option<&'v [f32]> {
        None
    }

    /// Records that a frame encodes the input. Returns the products for the fidelity of each section. `delta` (as
    /// [`State::absorb`] left it) becomes the part that the frame does not carry, unless the memory keeps it.
    ///
    /// # Errors
    /// `NotFinite` if the memory would not be finite; [`State::undo`] then restores it.
    fn encoded(&mut self, coded: CodedFrame<'_>, delta: &mut [f32]) -> Result<(Relation, Vec<Products>), Error>;

    /// Applies the acknowledgement of `frame`.
    fn settled(&mut self, _frame: &Frame<'_>, _ack: Ack) -> Result<(), Error> {
        Ok(())
    }

    /// The vectors, in the order of the state file; the residual is the first.
    fn vectors(&self) -> Vec<&[f32]> {
        Vec::new()
    }

    /// The vectors, for loading from a state file.
    fn vectors_mut(&mut self) -> Vec<&mut [f32]> {
        Vec::new()
    }
}

/// Zeroes the vectors outside of the trained values: buffers and counters are sent whole, so nothing of them may remain.
pub(crate) fn clear_aside(state: &mut dyn State, trained: Range<usize>) {
    for vector in state.vectors_mut() {
        vector[trained.end..].fill(0.0);
    }
}
