//! Where connections wait that have not shown a certificate: who comes in, and who must leave for it. Pure: the time is an
//! argument.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

/// What is asked of somebody who waits.
pub(super) trait Waiting {
    /// Whether a byte has come from it.
    fn has_spoken(&self) -> bool;
}

/// Those who wait, by their number: the oldest first.
#[derive(Debug)]
pub(super) struct Lobby<W> {
    /// How many may wait in all, and of one address.
    places: usize,
    per_address: usize,
    next: u64,
    waiting: BTreeMap<u64, (IpAddr, Instant, W)>,
}

/// Whether a newcomer comes in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry<W> {
    /// There is room.
    Room,
    /// This one had to leave.
    Instead(W),
    /// Everybody inside has come too recently to be sent away.
    Full,
}

/// Time in which the first byte is there: a client sends it with the end of TCP's handshake.
const SILENT: Duration = Duration::from_millis(100);
/// Time in which a handshake that goes on is not broken off for another, however many come.
const SPEAKING: Duration = Duration::from_secs(1);

impl<W: Waiting> Lobby<W> {
    pub(super) fn new(places: usize, per_address: usize) -> Self {
        Self {
            places,
            per_address,
            next: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Asks for a place for somebody of `address`. If there is none, one leaves who has had the time that its handshake
    /// takes: of this address if that has as many as it may have, otherwise of the address that has the most; one who has
    /// said nothing before one who has, the oldest first.
    pub(super) fn enter(&mut self, now: Instant, address: IpAddr) -> Entry<W> {
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
            None => Entry::Full,
        }
    }

    /// The number that the next one gets.
    pub(super) fn next_number(&self) -> u64 {
        self.next
    }

    /// Somebody waits from now on.
    pub(super) fn waits(&mut self, now: Instant, address: IpAddr, who: W) {
        self.waiting.insert(self.next, (network(address), now, who));
        self.next += 1;
    }

    /// Somebody is through, or gone.
    pub(super) fn leave(&mut self, number: u64) -> Option<W> {
        self.waiting.remove(&number).map(|(.., who)| who)
    }

    /// Sends the one away who has waited longest.
    pub(super) fn oldest(&mut self) -> Option<W> {
        self.waiting.pop_first().map(|(_, (.., who))| who)
    }
}

/// What counts as one address: a host of IPv6 has a whole network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
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
        if entry != Entry::Full {
            let number = lobby.next_number();
            lobby.waits(now, address(from), One(number, spoken));
        }
        entry
    }

    #[test]
    fn a_silent_one_leaves_before_one_who_speaks_and_the_oldest_first() {
        let (mut lobby, start) = (Lobby::new(4, 4), Instant::now());
        for spoken in [true, false, true, false] {
            assert_eq!(come(&mut lobby, start, 1, spoken), Entry::Room);
        }
        assert_eq!(
            come(&mut lobby, start, 1, false),
            Entry::Full,
            "nobody has had its time"
        );
        let later = start + SILENT;
        assert_eq!(come(&mut lobby, later, 1, true), Entry::Instead(One(1, false)));
        assert_eq!(come(&mut lobby, later, 1, true), Entry::Instead(One(3, false)));
        assert_eq!(come(&mut lobby, later, 1, true), Entry::Full);
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
