//! The average of a round's updates, weighted by examples, under the plan's limits. An update that was encoded against the
//! last step stands for that step and what its frame decodes to (CAFe, arXiv 2512.22623).

use std::fmt::Display;

use fl_compress::{Digest, Frame, FrameKind, Layout};

use super::error::ModelError;
use super::limited::Limited;
use super::sections::Sections;
use crate::config::limits::{Limits, Norms, Part, reference};
use crate::state_machine::Contribution;

/// What a round's updates come to.
#[derive(Debug)]
pub(super) struct Average {
    /// Shapes: `[layout.len()]`.
    pub(super) values: Vec<f32>,
    /// Where the frames' bytes went.
    pub(super) sections: Sections,
    /// Updates that count for less than claimed.
    pub(super) limited: Vec<Limited>,
    /// What the norms of the next round may be compared with.
    pub(super) reference: Option<f64>,
}

/// `sum_i w_i * decode(frame_i)`, absorbed in the order of the clients' names, and after them
/// `(sum of w_i with a predictor) * decode(step)`, once: the same updates, the same bits, whatever the order in which they
/// came. `w_i` is `n_i / sum n`, less what `limits` take; with them stands the reference norm of the round before. `step`:
/// digest of the frame that made the version before `round`, the only predictor that a frame may name.
///
/// One frame is in memory at a time, and under limits the values of one update. Frames are read once, unless a norm is
/// beyond the limits.
///
/// # Errors
/// `Empty`; `Frame`, which names the client; `Predictor` if the frame of the step cannot be used.
pub(super) fn average<E: Display>(
    layout: &Layout,
    round: u64,
    updates: &[Contribution],
    step: Option<&Digest>,
    limits: Option<(&Limits, Option<f64>)>,
    read: impl FnMut(&Digest, &mut Vec<u8>) -> Result<(), E>,
) -> Result<Average, ModelError> {
    let mut sorted: Vec<_> = updates.iter().collect();
    sorted.sort_by(|a, b| a.client.cmp(&b.client));
    let examples: Vec<u64> = sorted.iter().map(|update| update.examples).collect();
    let total: f64 = examples.iter().map(|n| *n as f64).sum();
    if total <= 0.0 {
        return Err(ModelError::Empty { round });
    }
    let before = limits.and_then(|(_, before)| before);
    let claimed = |n: &u64| Part {
        examples: *n as f64,
        scale: 1.0,
        weight: *n as f64 / total,
    };
    let mut parts = match limits {
        Some((limits, _)) => limits.parts(&examples, None),
        None => examples.iter().map(claimed).collect(),
    };
    let mut sum = Sum {
        layout,
        round,
        updates: &sorted,
        step,
        read,
        bytes: Vec::new(),
    };
    let mut norms = Norms {
        values: vec![0.0; sorted.len()],
        reference: before,
    };
    let by_norm = limits.map(|(limits, _)| limits).filter(|limits| limits.use_norms());
    let (mut values, mut sections) = sum.weighted(&parts, by_norm.map(|_| &mut norms.values))?;
    if let Some(limits) = by_norm {
        norms.reference = reference(&norms.values, before);
        let with_norms = limits.parts(&examples, Some(&norms));
        if with_norms != parts {
            (values, sections) = sum.weighted(&with_norms, None)?;
            parts = with_norms;
        }
    }
    let limited = |(at, part): (usize, &Part)| Limited {
        client: sorted[at].client.clone(),
        claimed: examples[at],
        counted: part.examples,
        norm: norms.values[at],
        reference: norms.reference.unwrap_or(0.0),
        scale: part.scale,
    };
    let less = |(at, part): &(usize, &Part)| part.examples < examples[*at] as f64 || part.scale < 1.0;
    Ok(Average {
        values,
        sections,
        limited: parts.iter().enumerate().filter(less).map(limited).collect(),
        reference: norms.reference,
    })
}

/// What is added up.
struct Sum<'a, R> {
    layout: &'a Layout,
    round: u64,
    /// By client name.
    updates: &'a [&'a Contribution],
    step: Option<&'a Digest>,
    read: R,
    bytes: Vec<u8>,
}

impl<E: Display, R: FnMut(&Digest, &mut Vec<u8>) -> Result<(), E>> Sum<'_, R> {
    /// Adds up the updates, each times its weight, and writes their L2 norms to `norms`. Shapes: one part and one norm for
    /// each update.
    fn weighted(
        &mut self,
        parts: &[Part],
        mut norms: Option<&mut Vec<f64>>,
    ) -> Result<(Vec<f32>, Sections), ModelError> {
        let (mut average, mut predicted, mut sections) = (vec![0.0; self.layout.len()], 0.0, Sections::default());
        let (mut update, mut predictor) = (Vec::new(), None);
        let total: f64 = parts.iter().map(|part| part.examples).sum();
        for (at, (update_of, part)) in self.updates.iter().zip(parts).enumerate() {
            let of = |why: String| ModelError::Frame {
                round: self.round,
                client: update_of.client.clone(),
                why,
            };
            (self.read)(&update_of.frame, &mut self.bytes).map_err(|e| of(e.to_string()))?;
            let frame = Frame::parse(&self.bytes, self.layout).map_err(|e| of(e.to_string()))?;
            let header = frame.header();
            if header.kind != FrameKind::Update || header.round != self.round {
                return Err(of(format!("it is a {:?} of round {}", header.kind, header.round)));
            }
            if let Some(named) = frame.predictor() {
                if self.step.map(Digest::short) != Some(named) {
                    return Err(of(
                        "it was encoded against another step than that of the model trained from".to_owned(),
                    ));
                }
                predicted += part.examples * part.scale;
            }
            let added = sections.accumulate(&frame, part.weight as f32, &mut average);
            added.map_err(|e| of(e.to_string()))?;
            let Some(norms) = &mut norms else { continue };
            update.clear();
            update.resize(self.layout.len(), 0.0);
            let predicts = frame.predictor().is_some();
            frame.accumulate(1.0, &mut update).map_err(|e| of(e.to_string()))?;
            if predicts {
                if predictor.is_none() {
                    let mut values = vec![0.0; self.layout.len()];
                    self.predictor(1.0, &mut values)?;
                    predictor = Some(values);
                }
                let values = predictor.iter().flatten();
                update.iter_mut().zip(values).for_each(|(value, step)| *value += step);
            }
            norms[at] = norm(&update);
        }
        if predicted > 0.0 {
            self.predictor((predicted / total) as f32, &mut average)?;
        }
        Ok((average, sections))
    }

    /// Adds `weight` times the step that updates were encoded against.
    fn predictor(&mut self, weight: f32, acc: &mut [f32]) -> Result<(), ModelError> {
        let Some(step) = self.step else { return Ok(()) };
        let of = |why: String| ModelError::Predictor { round: self.round, why };
        (self.read)(step, &mut self.bytes).map_err(|e| of(e.to_string()))?;
        let frame = Frame::parse(&self.bytes, self.layout).map_err(|e| of(e.to_string()))?;
        frame.accumulate(weight, acc).map_err(|e| of(e.to_string()))
    }
}

/// The L2 norm, with eight sums: one sum would wait for each addition.
fn norm(values: &[f32]) -> f64 {
    let (eights, rest) = values.as_chunks::<8>();
    let mut sums = [0.0f64; 8];
    for eight in eights {
        for (sum, value) in sums.iter_mut().zip(eight) {
            *sum += f64::from(*value) * f64::from(*value);
        }
    }
    let rest: f64 = rest.iter().map(|value| f64::from(*value) * f64::from(*value)).sum();
    (sums.iter().sum::<f64>() + rest).sqrt()
}
