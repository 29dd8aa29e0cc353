//! The fidelity of a round's frames by section: sums and extremes over frames, in thousandths.
//!
//! For updates, clients report these figures. No decision may depend on them.

use fl_proto::SectionFidelity;
use serde::{Deserialize, Serialize};

/// The figures of one section of a round's frames in one direction. Integers, so that sums do not depend on an order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fidelity {
    /// Index of its first tensor in the layout.
    pub first: u32,
    pub frames: u64,
    /// Sum of the cosines between decoded and raw update.
    pub cosine: i64,
    /// The least one.
    pub least_cosine: i16,
    /// Sum of the shares of energy kept.
    pub kept: i64,
    /// The least one.
    pub least_kept: i16,
    /// Sum of the residuals' ages, in updates of their sender.
    pub age: u64,
    pub oldest: u32,
}

impl Fidelity {
    pub fn of(first: u32, section: &SectionFidelity) -> Self {
        Self {
            first,
            frames: 1,
            cosine: section.cosine().into(),
            least_cosine: section.cosine(),
            kept: section.kept().into(),
            least_kept: section.kept(),
            age: section.age().into(),
            oldest: section.age(),
        }
    }

    pub fn add(&mut self, other: &Self) {
        if self.frames == 0 {
            *self = *other;
            return;
        }
        self.frames = self.frames.saturating_add(other.frames);
        self.cosine = self.cosine.saturating_add(other.cosine);
        self.least_cosine = self.least_cosine.min(other.least_cosine);
        self.kept = self.kept.saturating_add(other.kept);
        self.least_kept = self.least_kept.min(other.least_kept);
        self.age = self.age.saturating_add(other.age);
        self.oldest = self.oldest.max(other.oldest);
    }

    /// Mean cosine, -1 to 1; `None` without a frame.
    pub fn mean_cosine(&self) -> Option<f64> {
        self.mean(self.cosine as f64 / 1000.0).map(|mean| mean.clamp(-1.0, 1.0))
    }

    /// Mean share of energy kept, -1 to 1; `None` without a frame.
    pub fn mean_kept(&self) -> Option<f64> {
        self.mean(self.kept as f64 / 1000.0).map(|mean| mean.clamp(-1.0, 1.0))
    }

    pub fn mean_age(&self) -> Option<f64> {
        self.mean(self.age as f64)
    }

    fn mean(&self, sum: f64) -> Option<f64> {
        (self.frames > 0).then(|| sum / self.frames as f64)
    }
}

/// Adds `more` to `sums`; both are in the order of their first tensors.
pub(crate) fn add_all(sums: &mut Vec<Fidelity>, more: &[Fidelity]) {
    for section in more {
        match sums.binary_search_by_key(&section.first, |sum| sum.first) {
            Ok(at) => sums[at].add(section),
            Err(at) => sums.insert(at, *section),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(first: u32, cosine: i64, age: u64) -> Fidelity {
        Fidelity {
            first,
            frames: 1,
            cosine,
            least_cosine: cosine as i16,
            kept: 2 * cosine,
            least_kept: 2 * cosine as i16,
            age,
            oldest: age as u32,
        }
    }

    #[test]
    fn figures_of_frames_add_up_in_any_order() {
        let frames = [
            vec![section(0, 400, 1), section(3, 20, 5)],
            vec![section(0, -200, 3), section(3, 40, 0)],
            vec![section(1, 100, 0)],
        ];
        let (mut sums, mut reversed) = (Vec::new(), Vec::new());
        frames.iter().for_each(|frame| add_all(&mut sums, frame));
        frames.iter().rev().for_each(|frame| add_all(&mut reversed, frame));
        assert_eq!(sums, reversed);
        assert_eq!(sums.iter().map(|sum| sum.first).collect::<Vec<_>>(), [0, 1, 3]);
        let first = sums[0];
        assert_eq!(
            (first.frames, first.mean_cosine(), first.least_cosine),
            (2, Some(0.1), -200)
        );
        assert_eq!((first.mean_kept(), first.least_kept), (Some(0.2), -400));
        assert_eq!((first.mean_age(), first.oldest), (Some(2.0), 3));
        assert_eq!(Fidelity::default().mean_cosine(), None);
    }
}
