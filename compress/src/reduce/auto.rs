//! Every value; and of a matrix with a dead zone, as many singular components apart from the rest as pay for themselves
//! ([`super::components`]). Whether they do depends on the step, so the encoder decides that, not the reducer.

use crate::code::method::Code;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::reduce::components::{LeadingComponents, normalize};
use crate::reduce::form::{Form, Numbers, Part, ReducedPart, Reduction};
use crate::reduce::keep;
use crate::reduce::low_rank::RANK;
use crate::reduce::method::{Entry, Reducer, ReducerChoice, Sends, TensorValues};
use crate::reduce::planes::{BLOCK, Planes, check};
use crate::reduce::products::multiply;
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::sink::Sink;

/// Every value, singular components apart if they pay.
#[derive(Debug)]
pub(crate) struct Auto;

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "auto",
        about: "Every value; of a matrix with a dead zone, as many singular components apart from the rest as pay for themselves.",
        examples: &["'auto'"],
        leaves_out: false,
    },
    // Components, each half with the singular value in it, and the values that they leave.
    form: &Form {
        tag: 3,
        second: Some(3),
        numbers: &[RANK],
        words: |[rank, ..], _| format!("{rank} components and the remainder"),
        parts: |[rank, ..], Shape { rows, cols }| {
            let rank = rank as usize;
            vec![
                Part::plain(rows, rank),
                Part::plain(rank, cols),
                Part::plain(rows, cols),
            ]
        },
        decode,
    },
    stream: 0,
};

fn decode([rank, ..]: Numbers, planes: &Planes<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
    let rank = rank as usize;
    let cols = planes.shape.cols;
    let p = planes.part(0)?.whole()?;
    let mut q = planes.part(1)?.whole()?;
    normalize(&mut q, cols);
    let mut product = vec![0.0; BLOCK.min(planes.shape.len())];
    planes.part(2)?.blocks(|start, block| {
        let product = &mut product[..block.len()];
        multiply(&p, &q, rank, cols, start, product);
        product.iter_mut().zip(block).for_each(|(sum, value)| *sum += value);
        check(product)?;
        sink.dense(start, product);
        Ok(())
    })
}

/// `tensor` with `leading` split off, and the remainder of their decoded product. `code` codes the planes.
pub(crate) fn split<'v>(
    tensor: &TensorValues<'v>,
    leading: &LeadingComponents,
    code: Code,
) -> Result<Reduction<'v>, Error> {
    let rank = leading.rank;
    let Shape { rows, cols } = tensor.shape;
    // The remainder, which is coded last, makes up for all planes.
    let whole = tensor;
    let tensor = &TensorValues {
        quantize: whole.quantize.with_zone(|zone| zone.within(None)),
        ..*whole
    };
    let mut parts = vec![
        ReducedPart::plain(leading.p.clone(), rows, rank),
        ReducedPart::plain(leading.q.clone(), rank, cols),
    ];
    let (p, plane) = tensor.coded(&leading.p, parts[0].shape, 0, code)?;
    parts[0].plane = plane;
    let (q, plane) = tensor.coded(&leading.q, parts[1].shape, 1, code)?;
    parts[1].plane = plane;
    let left = LeadingComponents { rank, p, q }.left(tensor.values, tensor.shape);
    parts.push(ReducedPart::plain(left, rows, cols));
    Ok(Reduction {
        form: METHOD.form,
        numbers: [rank as u32, 0, 0, 0],
        parts,
    })
}

impl Reducer for Auto {
    fn choose(&self, _: &TensorValues<'_>, _: RoundContext, _: &mut RuleState) -> ReducerChoice {
        ReducerChoice::new(Sends::Components, |tensor, _| Ok(keep::reduced(tensor)))
    }

    fn sends(&self) -> Sends {
        Sends::Components
    }

    fn most_parts(&self, shape: Shape, _: usize) -> Option<Vec<Part>> {
        Some(vec![Part::plain(shape.rows, shape.cols)])
    }
}
