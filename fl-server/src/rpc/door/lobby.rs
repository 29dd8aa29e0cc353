//! Connections without a verified certificate: which are admitted to the handshake, and which are evicted. Pure: the
//! time is an argument.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use fl_proto::Meter;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::accounting::edge::{ClosedFor, PortCounters};

/// What the lobby asks of a connection.
pub(crate) trait Waiting {
    /// Whether it has sent a byte.
    fn has_spoken(&self) -> bool;
}

/// Connections in the handshake, by number: the oldest first.
#[derive(Debug)]
pub(crate) struct Lobby<W> {
    /// Connections in total and of one address, at most.
    places: usize,
    per_address: usize,
    next: u64,
    waiting: BTreeMap<u64, (IpAddr, Instant, W)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry<W> {
    Room,
    /// Admitted; this one is evicted.
    Instead(W),
    /// Not admitted, because of this bound: all others are too recent to be evicted.
    Full(Bound),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Total,
    Address,
}

/// Timeout for the first byte: a client sends it right after TCP's handshake.
const SILENT: Duration = Duration::from_millis(100);
/// Time during which a handshake in progress is not evicted, whatever the number of new connections.
const SPEAKING: Duration = Duration::from_secs(1);

impl<W: Waiting> Lobby<W> {
    pub(crate) fn new(places: usize, per_address: usize) -> Self {
        Self {
            places,
            per_address,
            next: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Takes other bounds. Connections that are there stay.
    pub(crate) fn resize(&mut self, places: usize, per_address: usize) {
        (self.places, self.per_address) = (places, per_address);
    }

    /// Asks for a place for a connection from `address`. If there is none, evicts a connection that has had the time
    /// for its handshake: of this address if it has its maximum, otherwise of the address with the most connections; a
    /// silent one before one that has sent bytes, the oldest first.
    pub(crate) fn enter(&mut self, now: Instant, address: IpAddr) -> Entry<W> {
        let address = network(address);
        let mut of = BTreeMap::<IpAddr, usize>::new();
        self.waiting
            .values()
            .for_each(|(from, ..)| *of.entry(*from).or_default() += 1);
        let crowded = of.get(&address).is_some_and(|&count| count >= self.per_address);
        if !crowded && self.waiting.len() < self.places {
            return Entry::Room;
        }
        let due = self.waiting.iter().filter_map(|(&number, (from, since, who))| {
            let spoken = who.has_spoken();
            let time = if spoken { SPEAKING } else { SILENT };
            let may = (!crowded || *from == address) && now.duration_since(*since) >= time;
            may.then(|| (spoken, usize::MAX - of[from], number))
        });
        match due.min() {
            Some((.., number)) => self.leave(number).map_or(Entry::Room, Entry::Instead),
            None if crowded => Entry::Full(Bound::Address),
            None => Entry::Full(Bound::Total),
        }
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    pub(crate) fn waits(&mut self, now: Instant, address: IpAddr, who: W) {
        self.waiting.insert(self.next, (network(address), now, who));
        self.next += 1;
    }

    /// Removes a connection that finished its handshake or closed.
    pub(crate) fn leave(&mut self, number: u64) -> Option<W> {
        self.waiting.remove(&number).map(|(.., who)| who)
    }
}

/// A connection of a port, from its handshake on.
#[derive(Debug)]
pub(crate) struct Stranger {
    pub(crate) meter: Arc<Meter>,
    pub(crate) task: AbortHandle,
}

impl Waiting for Stranger {
    fn has_spoken(&self) -> bool {
        self.meter.read() > 0
    }
}

impl Lobby<Stranger> {
    /// As [`Lobby::enter`]. Ends the connection that is evicted, and counts what is closed.
    pub(crate) fn admit(&mut self, address: IpAddr, counters: &PortCounters) -> Entry<Stranger> {
        let entry = self.enter(Instant::now(), address);
        match &entry {
            Entry::Full(Bound::Total) => counters.closed(ClosedFor::Full),
            Entry::Full(Bound::Address) => counters.closed(ClosedFor::Address),
            Entry::Instead(stranger) => {
                stranger.task.abort();
                counters.closed(ClosedFor::Evicted);
            }
            Entry::Room => {}
        }
        entry
    }

    /// Ends the oldest connection, because the process has no file descriptor left.
    pub(crate) fn free_descriptor(&mut self, counters: &PortCounters) {
        if let Some((_, (.., stranger))) = self.waiting.pop_first() {
            stranger.task.abort();
            counters.closed(ClosedFor::Files);
        }
    }
}

/// The key of an address: an IPv6 host has a network of 64 bits.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Its number, and whether it has spoken.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct One(u64, bool);

    impl Waiting for One {
        fn has_spoken(&self) -> bool {
            self.1
        }
    }

    fn address(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    fn come(lobby: &mut Lobby<One>, now: Instant, from: u8, spoken: bool) -> Entry<One> {
        let entry = lobby.enter(now, address(from));
        if !matches!(entry, Entry::Full(_)) {
            let number = lobby.next_number();
            lobby.waits(now, address(from), One(number, spoken));
        }
        entry
    }

    #[test]
    fn other_bounds_hold_for_new_connections_and_evict_nobody_by_themselves() {
        let (mut lobby, start) = (Lobby::new(4, 4), Instant::now());
        (0..4).for_each(|_| assert_eq!(come(&mut lobby, start, 1, true), Entry::Room));
        lobby.resize(2, 2);
        assert_eq!(lobby.waiting.len(), 4);
        assert_eq!(come(&mut lobby, start, 2, true), Entry::Full(Bound::Total));
        assert_eq!(come(&mut lobby, start, 1, true), Entry::Full(Bound::Address));
        lobby.resize(5, 4);
        assert_eq!(come(&mut lobby, start, 2, true), Entry::Room);
    }

    #[test]
    fn a_silent_one_leaves_before_one_who_speaks_and_the_oldest_first() {
        let (mut lobby, start) = (Lobby::new(4, 4), Instant::now());
        for spoken in [true, false, true, false] {
            assert_eq!(come(&mut lobby, start, 1, spoken), Entry::Room);
        }
        assert_eq!(
            come(&mut lobby, start, 1, false),
            Entry::Full(Bound::Address),
            "no connection has reached its time limit"
        );
        let later = start + SILENT;
        assert_eq!(come(&mut lobby, later, 1, true), Entry::Instead(One(1, false)));
        assert_eq!(come(&mut lobby, later, 1, true), Entry::Instead(One(3, false)));
        assert_eq!(come(&mut lobby, later, 1, true), Entry::Full(Bound::Address));
        let later = start + SPEAKING;
        assert_eq!(come(&mut lobby, later, 1, true), Entry::Instead(One(0, true)));
    }

    #[test]
    fn an_address_at_its_bound_makes_room_itself_and_the_fullest_for_others() {
        let (mut lobby, start) = (Lobby::new(4, 3), Instant::now());
        for from in [2, 1, 1, 1] {
            assert_eq!(come(&mut lobby, start, from, false), Entry::Room);
        }
        let later = start + SILENT;
        assert_eq!(come(&mut lobby, later, 1, true), Entry::Instead(One(1, false)));
        assert_eq!(
            come(&mut lobby, later, 3, true),
            Entry::Instead(One(2, false)),
            "not that of 2"
        );
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_mapped_ipv4_is_ipv4() {
        let parse = |text: &str| network(text.parse().unwrap());
        assert_eq!(parse("2001:db8::1"), parse("2001:db8::ffff:2"));
        assert_ne!(parse("2001:db8::1"), parse("2001:db8:0:1::1"));
        assert_eq!(parse("::ffff:10.0.0.1"), parse("10.0.0.1"));
        assert_ne!(parse("10.0.0.1"), parse("10.0.0.2"));
    }

    proptest! {
        #[test]
        fn bounds_hold_whoever_comes_and_goes(
            coming in prop::collection::vec((0..4u8, any::<bool>(), 0..200u64, any::<bool>()), 0..200),
        ) {
            let (mut lobby, mut now) = (Lobby::new(8, 5), Instant::now());
            for (from, spoken, wait, leaves) in coming {
                now += Duration::from_millis(wait);
                come(&mut lobby, now, from, spoken);
                if leaves && lobby.next > 3 {
                    lobby.leave(lobby.next - 3);
                }
                prop_assert!(lobby.waiting.len() <= 8);
                for of in 0..4 {
                    prop_assert!(lobby.waiting.values().filter(|(from, ..)| *from == address(of)).count() <= 5);
                }
            }
        }
    }
}
