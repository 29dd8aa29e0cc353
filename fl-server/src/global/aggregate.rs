//! The average of a round's updates, weighted by examples.

use std::fmt::Display;

use fl_compress::{Digest, Frame, FrameKind, Layout};

use super::GlobalError;
use crate::engine::Contribution;

/// `sum_i (n_i / sum n) * decode(frame_i)`, absorbed in the order of the clients' names: the same updates, the same
/// bits, whatever the order in which they came. One frame is in memory at a time. Shapes: returns `[layout.len()]`.
///
/// # Errors
/// `Empty`, `Unreadable`, `Frame`; each names the client.
pub(super) fn average<E: Display>(
    layout: &Layout,
    round: u64,
    updates: &[Contribution],
    mut read: impl FnMut(&Digest, &mut Vec<u8>) -> Result<(), E>,
) -> Result<Vec<f32>, GlobalError> {
    let mut sorted: Vec<_> = updates.iter().collect();
    sorted.sort_by(|a, b| a.client.cmp(&b.client));
    let total: f64 = sorted.iter().map(|update| update.examples as f64).sum();
    if total <= 0.0 {
        return Err(GlobalError::Empty { round });
    }
    let (mut average, mut bytes) = (vec![0.0; layout.len()], Vec::new());
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
        let weight = (update.examples as f64 / total) as f32;
        frame.accumulate(weight, &mut average).map_err(|e| of(e.to_string()))?;
    }
    Ok(average)
}
