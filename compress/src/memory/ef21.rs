//! EF21 (Richtarik et al. 2021, algorithm 2): the frame carries `C(delta - shadow)`. The shadow is the sum of all
//! accepted frames, which the receiver has too.

use std::ops::Range;

use crate::error::Error;
use crate::fidelity::{Products, Relation};
use crate::finite::{OVERFLOW_LIMIT, all_finite, update_not_finite};
use crate::frame::view::Frame;
use crate::memory::method::{CodedFrame, Encodes, Entry, MemoryInfo, State};
use crate::pending::Ack;
use crate::sink::Sink;

pub(crate) const METHOD: Entry = Entry {
    info: MemoryInfo {
        name: "ef21",
        about: "Sends the difference from the sum of everything sent before, which the receiver keeps too.",
        examples: &["'ef21'"],
        encodes: Encodes::FromSum,
        has_residual: false,
    },
    parameters: None,
    kind: Some(1),
    vectors: 1,
};

pub(crate) fn state(len: usize) -> Box<dyn State> {
    Box::new(Shadow(vec![0.0; len]))
}

#[derive(Debug)]
struct Shadow(Vec<f32>);

impl State for Shadow {
    fn entry(&self) -> &'static Entry {
        &METHOD
    }

    fn absorb(&mut self, delta: &mut [f32], _trained: Range<usize>, _threads: usize) -> Result<(), Error> {
        let pairs = delta.iter_mut().zip(&self.0);
        pairs.for_each(|(delta, shadow)| *delta -= *shadow);
        all_finite(delta).then_some(()).ok_or_else(update_not_finite)
    }

    fn encoded(&mut self, coded: CodedFrame<'_>, delta: &mut [f32]) -> Result<(Relation, Vec<Products>), Error> {
        let products = coded.frame.measure(coded.threads, true, delta, Some(&self.0))?;
        // Smaller magnitudes cannot overflow: next to a magnitude that could, they vanish in rounding.
        if !self.0.iter().all(|value| value.abs() <= OVERFLOW_LIMIT) {
            let mut sum = Sum {
                shadow: &self.0,
                finite: true,
            };
            coded.frame.decode_into(&mut sum)?;
            if !sum.finite {
                return Err(update_not_finite());
            }
        }
        Ok((Relation::new(1.0, 1.0, 1.0), products))
    }

    fn settled(&mut self, frame: &Frame<'_>, ack: Ack) -> Result<(), Error> {
        match ack {
            Ack::Accepted => frame.accumulate(1.0, &mut self.0),
            Ack::Rejected | Ack::Dropped => Ok(()),
        }
    }

    fn vectors(&self) -> Vec<&[f32]> {
        vec![&self.0]
    }

    fn vectors_mut(&mut self) -> Vec<&mut [f32]> {
        vec![&mut self.0]
    }
}

/// Checks that the sum of a shadow and a frame is finite.
struct Sum<'a> {
    shadow: &'a [f32],
    finite: bool,
}

impl Sink for Sum<'_> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        let mut pairs = self.shadow[start..].iter().zip(values);
        self.finite &= pairs.all(|(shadow, value)| (shadow + value).is_finite());
    }
}
