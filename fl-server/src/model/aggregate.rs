//! The aggregate of a round's updates under the plan's limits.

use fl_compress::{Digest, Layout};

use super::aggregator::Aggregator;
use super::decoded_updates::{DecodedUpdates, UpdateNorms};
use super::error::ModelError;
use super::sections::Sections;
use super::updates::{Read, Updates, Work};
use crate::config::limits::{Limits, Norms, Part, reference};
use crate::state_machine::Contribution;
use crate::storage::record::{Claim, Limited};

/// What a round is aggregated from.
pub(super) struct Round<'a> {
    pub(super) layout: &'a Layout,
    pub(super) round: u64,
    pub(super) updates: &'a [Contribution],
    /// The model update that made the version before the round: the only predictor that a frame may name.
    pub(super) predictor: Option<Digest>,
    pub(super) limits: &'a Limits,
    /// The reference norms of the round before.
    pub(super) references: References,
    pub(super) threads: usize,
    /// Updates that are decoded already.
    pub(super) decoded: &'a DecodedUpdates,
}

/// The norms that the limits compared with in the last round; `None` where no update was nonzero.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct References {
    /// Of the trained values.
    pub(super) trained: Option<f64>,
    /// Of the buffers.
    pub(super) buffers: Option<f64>,
}

/// What a round's updates are aggregated to.
#[derive(Debug)]
pub(super) struct Aggregate {
    /// Means of trained values and buffers, and the largest change of each counter. Shapes: `[layout.len()]`.
    pub(super) values: Vec<f32>,
    /// Where the bytes of the frames went.
    pub(super) sections: Sections,
    /// Updates that count for less than claimed.
    pub(super) limited: Vec<Limited>,
    /// The reference norms, for the next round.
    pub(super) references: References,
}

/// Aggregates the updates in the order of the clients' names, so the bits do not depend on the order of arrival. The
/// norms for the limits are measured while the updates are aggregated by their examples alone; only if a norm exceeds
/// the limits are they aggregated a second time.
///
/// `memory` is overwritten and becomes the values.
///
/// The limits on norms apply to the trained values and, by themselves, to the buffers: buffers may be scaled down or left
/// out where the update counts. An update that does not count takes its buffers and counters with it.
///
/// # Errors
/// `Empty`; `Frame`, which names the client; `Predictor` if the predictor cannot be used.
pub(super) fn aggregate(
    aggregator: &dyn Aggregator,
    from: &Round<'_>,
    read: &mut Read<'_>,
    memory: Vec<f32>,
) -> Result<Aggregate, ModelError> {
    let mut sorted: Vec<_> = from.updates.iter().collect();
    sorted.sort_by(|a, b| a.client.cmp(&b.client));
    let examples: Vec<u64> = sorted.iter().map(|update| update.examples).collect();
    let total: f64 = examples.iter().map(|n| *n as f64).sum();
    if total <= 0.0 {
        return Err(ModelError::Empty { round: from.round });
    }
    let limits = from.limits;
    let mut parts = limits.parts(&examples, None);
    let before = from.references;
    let mut references = before;
    let mut compared = [0.0; 2];
    let mut norms = vec![UpdateNorms::default(); sorted.len()];
    let mut buffers: Vec<Part> = Vec::new();
    let by_norm = limits.use_norms();
    let mut updates = Updates::new(
        from.layout,
        from.round,
        sorted.clone(),
        from.predictor,
        parts.clone(),
        Work {
            norms: by_norm,
            threads: from.threads,
            decoded: from.decoded,
        },
        &mut *read,
    );
    let mut values = memory;
    values.clear();
    values.resize(from.layout.len(), 0.0);
    aggregator.aggregate(&mut updates, &mut values)?;
    if by_norm {
        norms = updates.norms()?;
        let of = |part: fn(&UpdateNorms) -> f64, before| {
            let values: Vec<f64> = norms.iter().map(part).collect();
            let reference = reference(&values, before);
            Norms { values, reference }
        };
        let trained = of(|norms| norms.trained, before.trained);
        let of_buffers = of(|norms| norms.buffers, before.buffers);
        (references.trained, references.buffers) = (trained.reference, of_buffers.reference);
        compared = [trained.limit(), of_buffers.limit()];
        let with_norms = limits.parts(&examples, Some(&trained));
        let counted: Vec<u64> = examples
            .iter()
            .zip(&with_norms)
            .map(|(examples, part)| if part.examples > 0.0 { *examples } else { 0 })
            .collect();
        if !from.layout.buffers().is_empty() {
            buffers = limits.parts(&counted, Some(&of_buffers));
        }
        let scales = relative(&buffers, &with_norms);
        if with_norms != parts || scales.iter().any(|scale| *scale != 1.0) {
            parts = with_norms;
            updates.count(parts.clone(), scales);
            values.fill(0.0);
            aggregator.aggregate(&mut updates, &mut values)?;
        }
    }
    let counters = &mut values[from.layout.counters()];
    match updates.largest_counters() {
        Some(largest) => counters.copy_from_slice(largest),
        None => counters.fill(0.0),
    }
    let limited = |at: usize, part: &Part, norm: f64, reference: f64| Limited {
        client: sorted[at].client.clone(),
        claimed: examples[at],
        counted: part.examples,
        norm,
        reference,
        scale: part.scale,
        of: Claim::Update,
    };
    let mut less = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        if part.examples < examples[at] as f64 || part.scale < 1.0 {
            less.push(limited(at, part, norms[at].trained, compared[0]));
        }
        let scale = buffers.get(at).map_or(1.0, buffer_scale);
        if scale < 1.0 && part.examples > 0.0 {
            less.push(Limited {
                scale,
                of: Claim::Buffers,
                ..limited(at, part, norms[at].buffers, compared[1])
            });
        }
    }
    Ok(Aggregate {
        values,
        limited: less,
        sections: updates.into_sections(),
        references,
    })
}

/// The factors of the updates' buffers, besides what the updates count for. `buffers`: what the limits leave of each, or
/// nothing if the model has none.
fn relative(buffers: &[Part], updates: &[Part]) -> Vec<f32> {
    updates
        .iter()
        .enumerate()
        .map(|(at, update)| match buffers.get(at) {
            Some(buffers) if update.examples > 0.0 && update.scale > 0.0 => {
                (buffer_scale(buffers) / update.scale) as f32
            }
            _ => 1.0,
        })
        .collect()
}

/// The factor of an update's buffers, 0 if they do not count.
fn buffer_scale(part: &Part) -> f64 {
    if part.examples > 0.0 { part.scale } else { 0.0 }
}
