//! The average of a round's updates, weighted by examples. An update that was encoded against the last step stands for
//! that step and what its frame decodes to (CAFe, arXiv 2512.22623).

use std::fmt::Display;

use fl_compress::{Digest, Frame, FrameKind, Layout};

use super::GlobalError;
use super::sections::Sections;
use crate::engine::Contribution;

/// `sum_i (n_i / sum n) * decode(frame_i)`, absorbed in the order of the clients' names, and after them
/// `(sum of n_i with a predictor / sum n) * decode(step)`, once: the same updates, the same bits, whatever the order in
/// which they came. With it comes where the frames' bytes went. `step`: digest of the frame that made the version before `round`, the only predictor that a frame may
/// name. One frame is in memory at a time. Shapes: returns `[layout.len()]`.
///
/// # Errors
/// `Empty`; `Frame`, which names the client; `Predictor` if the frame of the step cannot be used.
pub(super) fn average<E: Display>(
    layout: &Layout,
    round: u64,
    updates: &[Contribution],
    step: Option<&Digest>,
    mut read: impl FnMut(&Digest, &mut Vec<u8>) -> Result<(), E>,
) -> Result<(Vec<f32>, Sections), GlobalError> {
    let mut sorted: Vec<_> = updates.iter().collect();
    sorted.sort_by(|a, b| a.client.cmp(&b.client));
    let total: f64 = sorted.iter().map(|update| update.examples as f64).sum();
    if total <= 0.0 {
        return Err(GlobalError::Empty { round });
    }
    let (mut average, mut bytes, mut predicted) = (vec![0.0; layout.len()], Vec::new(), 0.0);
    let mut sections = Sections::default();
    for update in sorted {
        let of = |why: String| GlobalError::Frame {
            round,
            client: update.client.clone(),
            why,
        };
        read(&update.frame, &mut bytes).map_err(|e| of(e.to_string()))?;
        let frame = Frame::parse(&bytes, layout).map_err(|e| of(e.to_string()))?;
        let header = frame.header();
        if header.kind != FrameKind::Update || header.round != round {
            return Err(of(format!("it is a {:?} of round {}", header.kind, header.round)));
        }
        if let Some(named) = frame.predictor() {
            if step.map(Digest::short) != Some(named) {
                return Err(of(
                    "it was encoded against another step than that of the model trained from".to_owned(),
                ));
            }
            predicted += update.examples as f64;
        }
        let weight = (update.examples as f64 / total) as f32;
        let added = sections.accumulate(&frame, weight, &mut average);
        added.map_err(|e| of(e.to_string()))?;
    }
    if let Some(step) = step.filter(|_| predicted > 0.0) {
        let of = |why: String| GlobalError::Predictor { round, why };
        read(step, &mut bytes).map_err(|e| of(e.to_string()))?;
        let frame = Frame::parse(&bytes, layout).map_err(|e| of(e.to_string()))?;
        let added = frame.accumulate((predicted / total) as f32, &mut average);
        added.map_err(|e| of(e.to_string()))?;
    }
    Ok((average, sections))
}
