//! The aggregate of a round's updates under the plan's limits.

use fl_compress::{Digest, Layout};

use super::aggregator::Aggregator;
use super::error::ModelError;
use super::limited::Limited;
use super::sections::Sections;
use super::updates::{Read, Updates};
use crate::config::limits::{Limits, Norms, Part, reference};
use crate::state_machine::Contribution;

/// What a round is aggregated from.
pub(super) struct Round<'a> {
    pub(super) layout: &'a Layout,
    pub(super) round: u64,
    pub(super) updates: &'a [Contribution],
    /// The model update that made the version before the round: the only predictor that a frame may name.
    pub(super) predictor: Option<Digest>,
    /// The limits, if they apply, and the reference norm of the round before.
    pub(super) limits: Option<(&'a Limits, Option<f64>)>,
}

/// What a round's updates are aggregated to.
#[derive(Debug)]
pub(super) struct Aggregate {
    /// Shapes: `[layout.len()]`.
    pub(super) values: Vec<f32>,
    /// Where the bytes of the frames went.
    pub(super) sections: Sections,
    /// Updates that count for less than claimed.
    pub(super) limited: Vec<Limited>,
    /// The reference norm, for the next round.
    pub(super) reference: Option<f64>,
}

/// Aggregates the updates in the order of the clients' names, so the bits do not depend on the order of arrival. The
/// norms for the limits are measured while the updates are aggregated by their examples alone; only if a norm exceeds
/// the limits are they aggregated a second time.
///
/// # Errors
/// `Empty`; `Frame`, which names the client; `Predictor` if the predictor cannot be used.
pub(super) fn aggregate(
    aggregator: &dyn Aggregator,
    from: &Round<'_>,
    read: &mut Read<'_>,
) -> Result<Aggregate, ModelError> {
    let mut sorted: Vec<_> = from.updates.iter().collect();
    sorted.sort_by(|a, b| a.client.cmp(&b.client));
    let examples: Vec<u64> = sorted.iter().map(|update| update.examples).collect();
    let total: f64 = examples.iter().map(|n| *n as f64).sum();
    if total <= 0.0 {
        return Err(ModelError::Empty { round: from.round });
    }
    let claimed = |n: &u64| Part {
        examples: *n as f64,
        scale: 1.0,
        weight: *n as f64 / total,
    };
    let mut parts = match from.limits {
        Some((limits, _)) => limits.parts(&examples, None),
        None => examples.iter().map(claimed).collect(),
    };
    let before = from.limits.and_then(|(_, before)| before);
    let mut norms = Norms {
        values: vec![0.0; sorted.len()],
        reference: before,
    };
    let by_norm = from
        .limits
        .map(|(limits, _)| limits)
        .filter(|limits| limits.use_norms());
    let mut updates = Updates::new(
        from.layout,
        from.round,
        sorted.clone(),
        from.predictor,
        parts.clone(),
        by_norm.is_some(),
        &mut *read,
    );
    let mut values = vec![0.0; from.layout.len()];
    aggregator.aggregate(&mut updates, &mut values)?;
    if let Some(limits) = by_norm {
        norms.values = updates.norms()?;
        norms.reference = reference(&norms.values, before);
        let with_norms = limits.parts(&examples, Some(&norms));
        if with_norms != parts {
            parts = with_norms;
            updates.count(parts.clone());
            values.fill(0.0);
            aggregator.aggregate(&mut updates, &mut values)?;
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
    Ok(Aggregate {
        values,
        limited: parts.iter().enumerate().filter(less).map(limited).collect(),
        sections: updates.into_sections(),
        reference: norms.reference,
    })
}
