//! Counts what happens at the server's ports: connections by state, those that a bound or a failed check closed, calls, and
//! enrollments. For `/metrics`; no decision depends on a figure here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::accounting::labels::labels;

#[derive(Debug, Default)]
pub(crate) struct Edge {
    /// The port of the clients.
    pub(crate) main: Arc<PortCounters>,
    pub(crate) enroll: Arc<PortCounters>,
    is_open: AtomicBool,
    enrollments: [AtomicU64; Enrolling::ALL.len()],
    /// Renewals of certificates that were issued, and that were refused.
    renewals: [AtomicU64; 2],
}

#[derive(Debug, Default)]
pub(crate) struct PortCounters {
    accepted: AtomicU64,
    handshaking: AtomicU64,
    open: AtomicU64,
    closed: [AtomicU64; ClosedFor::ALL.len()],
    calls: AtomicU64,
    limited: [AtomicU64; CallLimit::ALL.len()],
}

labels! {
    /// Why the server closed a connection: the label `reason`.
    ClosedFor {
        /// All places were taken.
        Full = "full",
        /// All places of its address were taken.
        Address = "address",
        /// A newer connection took its place.
        Evicted = "evicted",
        /// No file descriptor was left.
        Files = "files",
        HandshakeTimeout = "handshake_timeout",
        Handshake = "handshake",
        /// No certificate, or one of another authority, or an expired one.
        Certificate = "certificate",
        /// The certificate names no client, or an unknown role.
        Name = "name",
        /// The client has a newer connection.
        Newer = "newer",
        /// It made no call.
        Idle = "idle",
        /// It was open for as long as the port allows.
        Lifetime = "lifetime",
    }
}

labels! {
    /// A bound on calls: the label `limit`.
    CallLimit {
        /// Calls in a second: the call waited.
        Rate = "rate",
        /// Calls at once: the call was refused.
        Open = "open",
    }
}

labels! {
    /// How a request for a certificate ended: the label `outcome`.
    Enrolling {
        Issued = "issued",
        /// It waits for the operator.
        Held = "held",
        Refused = "refused",
        /// Refused because no token has this secret.
        WrongSecret = "wrong_secret",
    }
}

impl Edge {
    pub(crate) fn ports(&self) -> [(&'static str, &PortCounters); 2] {
        [("main", &self.main), ("enroll", &self.enroll)]
    }

    pub(crate) fn enrolled(&self, outcome: Enrolling) {
        add(&self.enrollments[outcome as usize]);
    }

    pub(crate) fn enrollments(&self) -> impl Iterator<Item = (Enrolling, u64)> {
        Enrolling::ALL.into_iter().zip(self.enrollments.iter().map(get))
    }

    pub(crate) fn renewed(&self, issued: bool) {
        add(&self.renewals[usize::from(!issued)]);
    }

    pub(crate) fn renewals(&self) -> [(&'static str, u64); 2] {
        let [issued, refused] = &self.renewals;
        [("issued", get(issued)), ("refused", get(refused))]
    }

    pub(crate) fn enrollment_is(&self, open: bool) {
        self.is_open.store(open, Ordering::Relaxed);
    }

    pub(crate) fn enrollment_is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }
}

impl PortCounters {
    /// Counts a new connection, before a bound is applied to it.
    pub(crate) fn accepted(&self) {
        add(&self.accepted);
    }

    pub(crate) fn closed(&self, why: ClosedFor) {
        add(&self.closed[why as usize]);
    }

    pub(crate) fn called(&self) {
        add(&self.calls);
    }

    pub(crate) fn limited(&self, by: CallLimit) {
        add(&self.limited[by as usize]);
    }

    /// A connection in its handshake, until the value is dropped.
    pub(crate) fn handshaking(self: &Arc<Self>) -> Handshaking {
        add(&self.handshaking);
        Handshaking(Arc::clone(self))
    }

    /// Connections accepted.
    pub(crate) fn total(&self) -> u64 {
        get(&self.accepted)
    }

    pub(crate) fn states(&self) -> [(&'static str, u64); 2] {
        [("handshaking", get(&self.handshaking)), ("open", get(&self.open))]
    }

    pub(crate) fn closings(&self) -> impl Iterator<Item = (ClosedFor, u64)> {
        ClosedFor::ALL.into_iter().zip(self.closed.iter().map(get))
    }

    pub(crate) fn calls(&self) -> u64 {
        get(&self.calls)
    }

    pub(crate) fn limits(&self) -> impl Iterator<Item = (CallLimit, u64)> {
        CallLimit::ALL.into_iter().zip(self.limited.iter().map(get))
    }
}

#[derive(Debug)]
pub(crate) struct Handshaking(Arc<PortCounters>);

/// A connection whose handshake is complete.
#[derive(Debug)]
pub(crate) struct Open(Arc<PortCounters>);

impl Handshaking {
    pub(crate) fn done(self) -> Open {
        add(&self.0.open);
        Open(Arc::clone(&self.0))
    }
}

impl Drop for Handshaking {
    fn drop(&mut self) {
        self.0.handshaking.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_in_one_state_until_it_ends() {
        let port = Arc::<PortCounters>::default();
        let (first, second) = (port.handshaking(), port.handshaking());
        assert_eq!(port.states(), [("handshaking", 2), ("open", 0)]);
        let open = first.done();
        assert_eq!(port.states(), [("handshaking", 1), ("open", 1)]);
        drop((open, second));
        assert_eq!(port.states(), [("handshaking", 0), ("open", 0)]);
    }

    #[test]
    fn every_reason_has_its_own_counter_and_label() {
        let edge = Edge::default();
        for (at, why) in ClosedFor::ALL.into_iter().enumerate() {
            (0..=at).for_each(|_| edge.enroll.closed(why));
        }
        let counts: Vec<u64> = edge.enroll.closings().map(|(_, count)| count).collect();
        assert_eq!(counts, (1..=ClosedFor::ALL.len() as u64).collect::<Vec<_>>());
        let mut labels: Vec<_> = ClosedFor::ALL.into_iter().map(ClosedFor::label).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), ClosedFor::ALL.len());
        assert_eq!(edge.main.closings().map(|(_, count)| count).sum::<u64>(), 0);
        edge.enrolled(Enrolling::WrongSecret);
        let outcomes: Vec<u64> = edge.enrollments().map(|(_, count)| count).collect();
        assert_eq!(outcomes, [0, 0, 0, 1]);
    }
}
