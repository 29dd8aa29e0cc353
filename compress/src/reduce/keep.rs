//! Every value, in order.

use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::reduce::form::{Form, Part, Reduction};
use crate::reduce::method::{Entry, Reducer, ReducerChoice, Sends, TensorValues};
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;

#[derive(Debug)]
pub(crate) struct Keep;

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "keep",
        about: "Every value, in order.",
        examples: &["'keep'"],
        leaves_out: false,
    },
    form: &Form {
        tag: 0,
        second: None,
        numbers: &[],
        words: |_, _| "keep".to_owned(),
        parts: |_, shape| vec![Part::plain(shape.rows, shape.cols)],
        decode: |_, planes, sink| {
            planes.part(0)?.blocks(|start, block| {
                sink.dense(start, block);
                Ok(())
            })
        },
    },
    stream: 0,
};

pub(crate) fn reduced<'v>(tensor: &TensorValues<'v>) -> Reduction<'v> {
    Reduction::plain(METHOD.form, [0; 4], tensor.values, tensor.shape)
}

pub(crate) fn all() -> ReducerChoice {
    ReducerChoice::new(Sends::All, |tensor, _| Ok(reduced(tensor)))
}

impl Reducer for Keep {
    fn choose(&self, _: &TensorValues<'_>, _: RoundContext, _: &mut RuleState) -> ReducerChoice {
        all()
    }

    fn sends(&self) -> Sends {
        Sends::All
    }

    fn most_parts(&self, shape: Shape, _: usize) -> Option<Vec<Part>> {
        Some(vec![Part::plain(shape.rows, shape.cols)])
    }
}
