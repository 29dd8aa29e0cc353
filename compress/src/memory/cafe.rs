//! CAFe (arXiv 2512.22623): the frame carries `C(delta - predictor)`. The predictor is the last model update, which
//! both sides have, so nothing is kept.

use std::ops::Range;

use crate::error::Error;
use crate::fidelity::{Products, Relation};
use crate::finite::{all_finite, update_not_finite};
use crate::memory::method::{CodedFrame, Encodes, Entry, MemoryInfo, State};

pub(crate) const METHOD: Entry = Entry {
    info: MemoryInfo {
        name: "cafe",
        about: "Sends the difference from the last model update, which client and server both have.",
        examples: &["'cafe'"],
        encodes: Encodes::FromModelUpdate,
        has_residual: false,
    },
    parameters: None,
    kind: None,
    vectors: 0,
};

pub(crate) fn state(_len: usize) -> Box<dyn State> {
    Box::new(Stateless(&METHOD))
}

/// The state of a memory that keeps nothing. The encoder subtracts the predictor, if there is one.
#[derive(Debug)]
pub(crate) struct Stateless(pub(crate) &'static Entry);

impl State for Stateless {
    fn entry(&self) -> &'static Entry {
        self.0
    }

    fn absorb(&mut self, delta: &mut [f32], _trained: Range<usize>, _threads: usize) -> Result<(), Error> {
        all_finite(delta).then_some(()).ok_or_else(update_not_finite)
    }

    fn encoded(&mut self, coded: CodedFrame<'_>, delta: &mut [f32]) -> Result<(Relation, Vec<Products>), Error> {
        let mut products = coded.frame.measure(coded.threads, true, delta, None)?;
        let Some((predictor, before)) = coded.predicted else {
            return Ok((Relation::new(1.0, 0.0, 0.0), products));
        };
        // With predictor `p`, raw update `u = v + p` and error `e = v - d`: `before` has the products `pp` and `pu`,
        // `after` has `pe`.
        let after = predictor.measure_by_tensor(false, delta)?;
        for (products, places) in products.iter_mut().zip(coded.frame.places()) {
            for (before, after) in places.iter().map(|&at| (&before[at], &after[at])) {
                let pp = before.dd;
                let pv = before.dv - before.dd;
                products.ww += pp;
                products.vw += pv;
                products.dw += pv - after.dv;
            }
        }
        Ok((Relation::new(1.0, 1.0, 1.0), products))
    }
}
