//! When to warn that frames exceed the target of their budget.

use std::fmt;

use crate::pending::Pending;

// A frame of this many times the target is reported.
const MATERIAL: f64 = 1.05;
// A later frame is reported again once the ratio changes by this factor.
const CHANGED: f64 = 1.5;

/// Reports frames that exceed the target of their budget: once, and again only when the excess changes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BudgetWatch {
    said: Option<f64>,
}

/// A frame exceeds the target of its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    /// Target in bytes.
    pub asked: u64,
    /// Bytes of the frame.
    pub used: u64,
}

impl BudgetWatch {
    /// The warning about `pending`, if it is due.
    pub fn look(&mut self, pending: &Pending) -> Option<OverBudget> {
        let used = pending.frame.len() as u64;
        let asked = pending.asked?;
        let quotient = used as f64 / asked.max(1) as f64;
        let before = self.said.unwrap_or(1.0);
        let is_news = match self.said {
            None => quotient > MATERIAL,
            Some(_) => !(before / CHANGED..=before * CHANGED).contains(&quotient),
        };
        if !is_news {
            return None;
        }
        self.said = (quotient > MATERIAL).then_some(quotient);
        self.said.map(|_| OverBudget { asked, used })
    }
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, used } = self;
        write!(f, "a frame has {used} bytes, more than its budget of {asked} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;
    use crate::frame::header::{FrameHeader, FrameKind};
    use crate::stages::Stages;

    fn pending(used: usize, asked: Option<u64>) -> Pending {
        Pending {
            header: FrameHeader {
                kind: FrameKind::Update,
                round: 1,
                seed: 0,
            },
            frame: vec![0; used],
            digest: Digest::of(&[]),
            stages: Stages::default(),
            asked,
            fidelity: Vec::new(),
        }
    }

    #[test]
    fn a_raised_rate_is_said_once_and_again_when_it_changes() {
        let mut watch = BudgetWatch::default();
        let mut said = |used| watch.look(&pending(used, Some(1000))).map(|over| over.used);
        assert_eq!(said(990), None);
        assert_eq!(said(1040), None);
        assert_eq!(said(1300), Some(1300));
        assert_eq!((said(1400), said(1250)), (None, None));
        assert_eq!(said(2500), Some(2500));
        assert_eq!(said(1000), None, "within the budget again");
        assert_eq!(said(1300), Some(1300));
        assert_eq!(watch.look(&pending(10_000, None)), None);
    }
}
