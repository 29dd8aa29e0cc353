//! Figures of a signed report that do not agree with each other.

use crate::report::flow::Flow;

/// Statements of a report that cannot all be true.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Differences {
    /// The first 20 of them, each a sentence with both figures.
    pub found: Vec<String>,
    /// Number of further differences.
    pub more: usize,
}

/// Most differences that are named.
const NAMED: usize = 20;
/// Largest relative difference of two equal ratios.
const RATIO_ERROR: f64 = 1e-9;

impl Differences {
    /// Whether all figures agree.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn add(&mut self, difference: String) {
        if self.found.len() < NAMED {
            self.found.push(difference);
        } else {
            self.more += 1;
        }
    }

    pub(super) fn same(&mut self, who: &str, what: &str, said: u64, of: &str, sum: u64) {
        if said != sum {
            self.add(format!("{who}: {what} is {said}, that of {of} {sum}"));
        }
    }

    pub(super) fn flow(&mut self, who: &str, said: &Flow, of: &str, sum: &Flow) {
        for (name, (said, sum)) in Flow::NAMES.into_iter().zip(said.fields().into_iter().zip(sum.fields())) {
            self.same(who, name, said, of, sum);
        }
    }

    pub(super) fn sockets(&mut self, who: &str, flow: &Flow) {
        for (name, said, direction) in [
            ("socket_up", flow.socket_up, "up"),
            ("socket_down", flow.socket_down, "down"),
        ] {
            self.same(who, name, said, "its kinds together", flow.kinds_in(direction));
        }
    }

    pub(super) fn share(&mut self, who: &str, what: &str, share: Option<f64>) {
        if let Some(share) = share.filter(|share| !(0.0..=1.0).contains(share)) {
            self.add(format!("{who}: {what} is {share}, and a share is between 0 and 1"));
        }
    }

    pub(super) fn flag(&mut self, who: &str, balanced: bool, equal: bool) {
        if balanced != equal {
            let [says, is] = [balanced, equal].map(|equal| if equal { "balanced" } else { "not balanced" });
            self.add(format!("{who}: its flag says {says}, its figures say {is}"));
        }
    }

    pub(super) fn ratio(&mut self, baseline: &str, what: &str, said: f64, bytes: u64, of: u64) {
        // Without any byte there is no ratio, and any value may be given for it.
        let ratio = bytes as f64 / of as f64;
        if of > 0 && (said - ratio).abs() > RATIO_ERROR * ratio.max(1.0) {
            self.add(format!(
                "{baseline}: {what} is {said}, but its bytes over those moved are {ratio}"
            ));
        }
    }
}
