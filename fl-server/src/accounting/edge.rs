//! Counts what happens at the server's ports: connections by state, those that a bound or a failed check closed, calls, and
//! enrollments. For `/metrics`; no decision depends on a figure here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Both ports of a server.
#[derive(Debug, Default)]
pub(crate) struct Edge {
    /// The port of the clients.
    pub(crate) main: Arc<PortCounters>,
    /// The enrollment port.
    pub(crate) enroll: Arc<PortCounters>,
    /// Whether the enrollment port is open.
    is_open: AtomicBool,
    enrollments: [AtomicU64; Enrolling::ALL.len()],
    /// Renewals of certificates that were issued, and that were refused.
    renewals: [AtomicU64; 2],
}

/// One port.
#[derive(Debug, Default)]
pub(crate) struct PortCounters {
    accepted: AtomicU64,
    handshaking: AtomicU64,
    open: AtomicU64,
    closed: [AtomicU64; ClosedFor::ALL.len()],
    calls: AtomicU64,
    limited: [AtomicU64; CallLimit::ALL.len()],
}

/// Why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClosedFor {
    /// All places were taken.
    Full,
    /// All places of its address were taken.
    Address,
    /// A newer connection took its place.
    Evicted,
    /// No file descriptor was left.
    Files,
    /// The TLS handshake took too long.
    HandshakeTimeout,
    /// The TLS handshake failed.
    Handshake,
    /// No certificate, or one of another authority, or an expired one.
    Certificate,
    /// The certificate names no client, or an unknown role.
    Name,
    /// The client has a newer connection.
    Newer,
    /// It made no call.
    Idle,
    /// It was open for as long as the port allows.
    Lifetime,
}

impl ClosedFor {
    /// In the order of their declaration.
    pub(crate) const ALL: [Self; 11] = [
        Self::Full,
        Self::Address,
        Self::Evicted,
        Self::Files,
        Self::HandshakeTimeout,
        Self::Handshake,
        Self::Certificate,
        Self::Name,
        Self::Newer,
        Self::Idle,
        Self::Lifetime,
    ];

    /// The label `reason` of the metric.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Address => "address",
            Self::Evicted => "evicted",
            Self::Files => "files",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::Handshake => "handshake",
            Self::Certificate => "certificate",
            Self::Name => "name",
            Self::Newer => "newer",
            Self::Idle => "idle",
            Self::Lifetime => "lifetime",
        }
    }
}

/// A bound on calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallLimit {
    /// Calls in a second: the call waited.
    Rate,
    /// Calls at once: the call was refused.
    Open,
}

impl CallLimit {
    /// In the order of their declaration.
    pub(crate) const ALL: [Self; 2] = [Self::Rate, Self::Open];

    /// The label `limit` of the metric.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Open => "open",
        }
    }
}

/// How a request for a certificate ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enrolling {
    Issued,
    /// It waits for the operator.
    Held,
    Refused,
    /// Refused because no token has this secret.
    WrongSecret,
}

impl Enrolling {
    /// In the order of their declaration.
    pub(crate) const ALL: [Self; 4] = [Self::Issued, Self::Held, Self::Refused, Self::WrongSecret];

    /// The label `outcome` of the metric.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Issued => "issued",
            Self::Held => "held",
            Self::Refused => "refused",
            Self::WrongSecret => "wrong_secret",
        }
    }
}

impl Edge {
    /// Both ports, with the value of their label.
    pub(crate) fn ports(&self) -> [(&'static str, &PortCounters); 2] {
        [("main", &self.main), ("enroll", &self.enroll)]
    }

    /// Counts the end of a request for a certificate.
    pub(crate) fn enrolled(&self, outcome: Enrolling) {
        add(&self.enrollments[outcome as usize]);
    }

    /// Numbers of requests for a certificate.
    pub(crate) fn enrollments(&self) -> impl Iterator<Item = (Enrolling, u64)> {
        Enrolling::ALL.into_iter().zip(self.enrollments.iter().map(get))
    }

    /// Counts the end of a renewal.
    pub(crate) fn renewed(&self, issued: bool) {
        add(&self.renewals[usize::from(!issued)]);
    }

    /// Numbers of renewals by their end.
    pub(crate) fn renewals(&self) -> [(&'static str, u64); 2] {
        let [issued, refused] = &self.renewals;
        [("issued", get(issued)), ("refused", get(refused))]
    }

    /// Notes whether the enrollment port is open.
    pub(crate) fn enrollment_is(&self, open: bool) {
        self.is_open.store(open, Ordering::Relaxed);
    }

    /// Whether the enrollment port is open.
    pub(crate) fn enrollment_is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }
}

impl PortCounters {
    /// Counts a new connection, before a bound is applied to it.
    pub(crate) fn accepted(&self) {
        add(&self.accepted);
    }

    /// Counts a connection that the server closes.
    pub(crate) fn closed(&self, why: ClosedFor) {
        add(&self.closed[why as usize]);
    }

    /// Counts a call.
    pub(crate) fn called(&self) {
        add(&self.calls);
    }

    /// Counts a call that a bound has held up or refused.
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

    /// Connections now, by state.
    pub(crate) fn states(&self) -> [(&'static str, u64); 2] {
        [("handshaking", get(&self.handshaking)), ("open", get(&self.open))]
    }

    /// Connections that the server closed.
    pub(crate) fn closings(&self) -> impl Iterator<Item = (ClosedFor, u64)> {
        ClosedFor::ALL.into_iter().zip(self.closed.iter().map(get))
    }

    /// Calls, all of them.
    pub(crate) fn calls(&self) -> u64 {
        get(&self.calls)
    }

    /// Calls that a bound has held up or refused.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (CallLimit, u64)> {
        CallLimit::ALL.into_iter().zip(self.limited.iter().map(get))
    }
}

/// A connection in its handshake.
#[derive(Debug)]
pub(crate) struct Handshaking(Arc<PortCounters>);

/// A connection whose handshake is complete.
#[derive(Debug)]
pub(crate) struct Open(Arc<PortCounters>);

impl Handshaking {
    /// The handshake is complete.
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
