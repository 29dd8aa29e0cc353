//! Counts the bytes of every connection as they pass and says whose they are.
//!
//! The connections' meters and the endpoint's meter count independently; a sample compares them. The lock here guards
//! counters only, and is never held while waiting for anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fl_proto::{ClientId, Meter};

use crate::accounting::client_counters::{ClientCounters, UploadOutcome};
use crate::accounting::ledger::{Flow, Row};

/// All connections of an endpoint.
#[derive(Debug)]
pub(crate) struct Connections {
    total: Arc<Meter>,
    book: Mutex<Book>,
}

#[derive(Debug, Default, Clone)]
struct Book {
    open: Vec<Connection>,
    /// What connections that have ended carried since the last sample.
    ended: BTreeMap<Option<ClientId>, Flow>,
    /// Number of entries in `open` at which the ended ones are folded into `ended`.
    fold_at: usize,
    clients: BTreeMap<ClientId, Account>,
    /// What the endpoint's meter said at the last sample.
    metered: (u64, u64),
}

#[derive(Debug, Clone)]
struct Connection {
    meter: Arc<Meter>,
    client: Option<ClientId>,
    /// What its meter said at the last sample.
    sampled: (u64, u64),
    /// What it said of pings.
    pings: (u64, u64),
    /// Whether it was in a sample.
    counted: bool,
}

/// One client's counters, and what of them is booked.
#[derive(Debug, Default, Clone)]
struct Account {
    /// How many clients came before it.
    place: usize,
    counters: Arc<ClientCounters>,
    /// What was booked of its sockets, up and down.
    socket: (u64, u64),
    /// What they said at the last sample.
    sampled: Flow,
    /// Payload that was counted before the sockets carried it: it is booked when they have.
    ahead: Flow,
}

/// What was booked of a client's sockets since the server was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// Its name, or `*`: all clients that have none here.
    pub(crate) client: String,
    /// Bytes up and down.
    pub(crate) socket: (u64, u64),
}

/// What has passed since the sample before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Bytes of each client; without a name, of connections that never said who they were.
    pub(crate) flows: BTreeMap<Option<ClientId>, Flow>,
    /// What the endpoint's meter counted, up and down.
    pub(crate) meter: (u64, u64),
}

/// What has passed since the last sample, looked at without taking one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peek {
    pub(crate) sample: Sample,
    /// What the endpoint's meter says: bytes up and down since the server was started.
    pub(crate) meter: (u64, u64),
    /// The clients that are connected, each with the newest model version that its sockets have carried as a whole.
    pub(crate) connected: BTreeMap<ClientId, Option<u64>>,
}

impl Connections {
    pub(crate) fn new() -> Self {
        Self {
            total: Arc::default(),
            book: Mutex::default(),
        }
    }

    /// The meter of the whole endpoint.
    pub(crate) fn total(&self) -> &Arc<Meter> {
        &self.total
    }

    /// Takes notice of a new connection, before its first byte.
    pub(crate) fn connected(&self, meter: Arc<Meter>) {
        let mut book = self.book();
        if book.open.len() >= book.fold_at.max(FOLD_AT) {
            book.fold();
        }
        book.open.push(Connection {
            meter,
            client: None,
            sampled: (0, 0),
            pings: (0, 0),
            counted: false,
        });
    }

    /// Says whose connection this is, and returns the client's counters.
    pub(crate) fn identified(&self, meter: &Arc<Meter>, client: &ClientId) -> Arc<ClientCounters> {
        let mut book = self.book();
        let known = book.open.iter_mut().find(|open| Arc::ptr_eq(&open.meter, meter));
        if let Some(connection) = known.filter(|connection| connection.client.is_none()) {
            connection.client = Some(client.clone());
        }
        let place = book.clients.len();
        let account = book.clients.entry(client.clone()).or_insert_with(|| Account {
            place,
            ..Account::default()
        });
        Arc::clone(&account.counters)
    }

    /// Clients that have a name in [`Connections::clients`]: those that came first, so that what is said of one only grows.
    pub(crate) const NAMED: usize = 200;

    /// What the clients' sockets have carried, by name: what was booked, and what `pending` adds.
    pub(crate) fn clients(&self, pending: &Sample) -> Vec<Named> {
        let (mut out, mut others) = (Vec::new(), (0, 0));
        let book = self.book();
        for (client, account) in &book.clients {
            let pending = pending.flows.get(&Some(client.clone())).copied().unwrap_or_default();
            let socket = add(account.socket, (pending.socket_up, pending.socket_down));
            if account.place < Self::NAMED {
                out.push(Named {
                    client: client.to_string(),
                    socket,
                });
            } else {
                others = add(others, socket);
            }
        }
        if book.clients.len() > Self::NAMED {
            out.push(Named {
                client: "*".to_owned(),
                socket: others,
            });
        }
        out
    }

    /// What has passed since the last sample. `arriving`: what is taken to become of frames that are still arriving, which
    /// is another at a round's end than at the server's.
    pub(crate) fn sample(&self, arriving: UploadOutcome) -> Sample {
        let mut book = self.book();
        let (readings, total) = self.steady(&mut book);
        let meter = less(total, book.metered);
        book.metered = total;
        Sample {
            flows: book.settle(&readings, |counters| counters.flow(arriving)),
            meter,
        }
    }

    /// What a sample would be now. The last sample stays the last, and a frame that is still arriving counts as an update.
    pub(crate) fn peek(&self) -> Peek {
        let mut book = self.book();
        let (readings, total) = self.steady(&mut book);
        let meter = less(total, book.metered);
        // Nobody sees the copies of the connections' meters, by whose number one that is gone is known: the lock is held.
        let mut copy = book.clone();
        let flows = copy.settle(&readings, ClientCounters::peek);
        let version = |client: &ClientId| {
            let account = copy.clients.get(client)?;
            account.counters.version().filter(|_| account.ahead.frames_down() == 0)
        };
        let connected = copy.open.iter().filter_map(|open| open.client.clone());
        let connected = connected.map(|client| (client.clone(), version(&client))).collect();
        Peek {
            sample: Sample { flows, meter },
            meter: total,
            connected,
        }
    }

    /// What the endpoint's meter has counted since the last sample.
    pub(crate) fn passed(&self) -> (u64, u64) {
        less(reading(&self.total), self.book().metered)
    }

    /// What every open connection's meter and the endpoint's say. Bytes may pass meanwhile: the meters are read again until
    /// the endpoint's stands still around it, a few times at most.
    fn steady(&self, book: &mut Book) -> (Vec<Reading>, (u64, u64)) {
        let mut readings = book.readings();
        let mut total = reading(&self.total);
        for _ in 0..ATTEMPTS {
            let passed = readings
                .iter()
                .zip(&book.open)
                .fold(sockets(&book.ended), |sum, ((now, _), c)| {
                    add(sum, less(*now, c.sampled))
                });
            if passed == less(total, book.metered) {
                break;
            }
            std::thread::yield_now();
            total = reading(&self.total);
            readings = book.readings();
        }
        (readings, total)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a connection's meter says, read and written, and whether the connection has ended.
type Reading = ((u64, u64), bool);

/// How often a sample is taken again while bytes pass.
const ATTEMPTS: usize = 1000;
/// Entries of connections from which on the ended ones are looked for: their number stays below this, or below twice that of
/// the connections that are open, and looking costs a constant time for each new connection.
const FOLD_AT: usize = 64;

impl Connection {
    /// Whether the connection has ended: its meter is held only here then.
    fn is_gone(&mut self) -> bool {
        Arc::get_mut(&mut self.meter).is_some()
    }

    /// Adds what its meter, which says `now`, has counted since the connection was last booked.
    fn book(&mut self, now: (u64, u64), flows: &mut BTreeMap<Option<ClientId>, Flow>) {
        let (up, down) = less(now, self.sampled);
        let pings = (self.meter.pings_read(), self.meter.pings_written());
        let (pings_up, pings_down) = less(pings, self.pings);
        let flow = flows.entry(self.client.clone()).or_default();
        flow.socket_up += up;
        flow.socket_down += down;
        // A ping may pass between the two readings.
        flow.heartbeat_up += pings_up.min(up);
        flow.heartbeat_down += pings_down.min(down);
        flow.connections += u64::from(!std::mem::replace(&mut self.counted, true));
        (self.sampled, self.pings) = (now, pings);
    }
}

impl Book {
    /// What each open connection's meter says, and whether the connection is gone: its meter is held only here then.
    fn readings(&mut self) -> Vec<Reading> {
        let read = |connection: &mut Connection| {
            let gone = connection.is_gone();
            (reading(&connection.meter), gone)
        };
        self.open.iter_mut().map(read).collect()
    }

    /// Adds what ended connections have carried to the sums, and forgets those connections.
    fn fold(&mut self) {
        let ended = &mut self.ended;
        self.open.retain_mut(|connection| {
            let gone = connection.is_gone();
            if gone {
                connection.book(reading(&connection.meter), ended);
            }
            !gone
        });
        self.fold_at = 2 * self.open.len();
    }

    /// Turns readings into increments by client and forgets the connections that are gone. `counted` reads a client's
    /// counters.
    fn settle(
        &mut self,
        readings: &[((u64, u64), bool)],
        counted: impl Fn(&ClientCounters) -> Flow,
    ) -> BTreeMap<Option<ClientId>, Flow> {
        let mut out = std::mem::take(&mut self.ended);
        let mut readings = readings.iter();
        self.open.retain_mut(|connection| {
            let Some((now, gone)) = readings.next() else {
                return true;
            };
            connection.book(*now, &mut out);
            !gone
        });
        let connected: BTreeSet<_> = self.open.iter().filter_map(|open| open.client.as_ref()).collect();
        for (client, account) in &mut self.clients {
            let now = counted(&account.counters);
            let flow = out.entry(Some(client.clone())).or_default();
            flow.add(&now.since(&account.sampled));
            flow.add(&account.ahead);
            account.sampled = now;
            account.ahead = beyond(flow);
            account.socket = add(account.socket, (flow.socket_up, flow.socket_down));
            if !connected.contains(client) {
                // What no connection carries any more was never sent.
                account.ahead = Flow::default();
            }
        }
        out.values_mut().for_each(Flow::settle_transport);
        out.retain(|_, flow| *flow != Flow::default());
        out
    }
}

/// Takes out of `flow` the payload that its sockets have not carried yet, and returns it.
fn beyond(flow: &mut Flow) -> Flow {
    fn take(over: &mut u64, kind: &mut u64) -> u64 {
        let taken = (*over).min(*kind);
        (*over, *kind) = (*over - taken, *kind - taken);
        taken
    }
    let mut ahead = Flow::default();
    let known = flow.frames_up() + flow.evaluation + flow.control_up + flow.heartbeat_up;
    let mut over = known.saturating_sub(flow.socket_up);
    ahead.update = take(&mut over, &mut flow.update);
    ahead.refused = take(&mut over, &mut flow.refused);
    ahead.aborted = take(&mut over, &mut flow.aborted);
    ahead.control_up = take(&mut over, &mut flow.control_up);
    ahead.evaluation = take(&mut over, &mut flow.evaluation);
    let known = flow.frames_down() + flow.control_down + flow.heartbeat_down;
    let mut over = known.saturating_sub(flow.socket_down);
    ahead.steps = take(&mut over, &mut flow.steps);
    ahead.snapshot = take(&mut over, &mut flow.snapshot);
    ahead.control_down = take(&mut over, &mut flow.control_down);
    ahead
}

fn reading(meter: &Meter) -> (u64, u64) {
    (meter.read(), meter.written())
}

fn less(now: (u64, u64), before: (u64, u64)) -> (u64, u64) {
    (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1))
}

fn add(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0 + b.0, a.1 + b.1)
}

fn sockets(flows: &BTreeMap<Option<ClientId>, Flow>) -> (u64, u64) {
    flows.values().fold((0, 0), |(up, down), flow| {
        (up + flow.socket_up, down + flow.socket_down)
    })
}

impl Sample {
    /// Whether the connections' meters and the endpoint's agree.
    pub(crate) fn is_balanced(&self) -> bool {
        sockets(&self.flows) == self.meter
    }

    /// What to tell if they do not.
    pub(crate) fn alert(&self, round: u64) -> Option<String> {
        let differs = || format!("the ledger of round {round} differs from what the sockets carried: {self:?}");
        (!self.is_balanced()).then(differs)
    }

    /// Bytes of all clients.
    pub(crate) fn total(&self) -> Flow {
        let mut total = Flow::default();
        self.flows.values().for_each(|flow| total.add(flow));
        total
    }

    /// The sample as rows of `round`.
    pub(crate) fn rows(&self, round: u64) -> Vec<Row> {
        let row = |(client, flow): (&Option<ClientId>, &Flow)| Row::Client {
            round,
            client: client.clone(),
            flow: *flow,
        };
        let (read, written) = self.meter;
        self.flows
            .iter()
            .map(row)
            .chain([Row::Meter { round, read, written }])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::accounting::client_counters::Sent;

    async fn pass(traffic: &Connections, client: Option<&str>, bytes: usize) {
        let meter = Arc::new(Meter::within(Arc::clone(traffic.total())));
        traffic.connected(Arc::clone(&meter));
        if let Some(name) = client {
            traffic.identified(&meter, &name.parse().unwrap());
        }
        let (a, mut b) = tokio::io::duplex(1 << 16);
        let mut io = fl_proto::Metered::new(a, meter);
        b.write_all(&vec![1; bytes]).await.unwrap();
        io.read_exact(&mut vec![0; bytes]).await.unwrap();
        io.write_all(b"ok").await.unwrap();
    }

    #[tokio::test]
    async fn samples_are_increments_and_balance_with_the_meter() {
        let traffic = Connections::new();
        pass(&traffic, Some("a"), 100).await;
        pass(&traffic, None, 7).await;
        let first = traffic.sample(UploadOutcome::Refused);
        assert!(first.is_balanced());
        assert_eq!(first.meter, (107, 4));
        assert_eq!(first.flows[&None].socket_up, 7);
        pass(&traffic, Some("a"), 30).await;
        let second = traffic.sample(UploadOutcome::Refused);
        assert!(second.is_balanced());
        assert_eq!(second.flows.len(), 1);
        assert_eq!(second.flows[&Some("a".parse().unwrap())].socket_up, 30);
        assert!(traffic.book().open.is_empty(), "ended connections are folded away");
    }

    #[test]
    fn bytes_sampled_before_a_client_said_who_it_is_stay_where_they_were() {
        let traffic = Connections::new();
        let meter = Arc::new(Meter::within(Arc::clone(traffic.total())));
        traffic.connected(Arc::clone(&meter));
        assert_eq!(traffic.sample(UploadOutcome::Refused).flows[&None].connections, 1);
        traffic.identified(&meter, &"a".parse().unwrap()).retried();
        let sample = traffic.sample(UploadOutcome::Refused);
        let flow = sample.flows[&Some("a".parse().unwrap())];
        assert_eq!((flow.retries, flow.connections), (1, 0), "it was counted as nobody's");
        assert!(sample.is_balanced());
        assert_eq!(sample.rows(3).len(), 2);
    }

    #[tokio::test]
    async fn connections_that_come_and_go_leave_a_constant_number_of_entries_and_exact_sums() {
        const COMING: usize = 10_000;
        let traffic = Connections::new();
        let stays = Arc::new(Meter::within(Arc::clone(traffic.total())));
        traffic.connected(Arc::clone(&stays));
        let mut most = 0;
        for n in 0..COMING {
            let client = ["a", "b"].get(n % 3).copied();
            pass(&traffic, client, n % 7).await;
            most = most.max(traffic.book().open.len());
        }
        assert!(most <= FOLD_AT, "{most} entries for one connection that is open");
        let sample = traffic.sample(UploadOutcome::Refused);
        assert!(sample.is_balanced());
        let flow = |client: Option<&str>| sample.flows[&client.map(|name| name.parse().unwrap())];
        for (at, client) in [Some("a"), Some("b"), None].into_iter().enumerate() {
            let came = (0..COMING).filter(|n| n % 3 == at);
            let (bytes, count) = (came.clone().map(|n| n % 7).sum::<usize>(), came.count());
            let flow = flow(client);
            assert_eq!(flow.socket_up, bytes as u64, "{client:?}");
            assert_eq!(flow.socket_down, 2 * count as u64, "{client:?}");
            let still_open = usize::from(client.is_none());
            assert_eq!(flow.connections, (count + still_open) as u64, "{client:?}");
        }
        assert!(
            traffic.sample(UploadOutcome::Refused).flows.is_empty(),
            "nothing is booked twice"
        );
    }

    #[tokio::test]
    async fn payload_is_booked_when_the_sockets_have_carried_it() {
        let traffic = Connections::new();
        let client = || Some("a".parse().unwrap());
        let meter = Arc::new(Meter::within(Arc::clone(traffic.total())));
        traffic.connected(Arc::clone(&meter));
        let counters = traffic.identified(&meter, &"a".parse().unwrap());
        let (a, _b) = tokio::io::duplex(1 << 16);
        let mut io = fl_proto::Metered::new(a, meter);
        counters.sent(Sent::Steps, 1_000);
        io.write_all(&[0; 300]).await.unwrap();
        let first = traffic.sample(UploadOutcome::Refused).flows[&client()];
        assert_eq!((first.steps, first.transport_down, first.socket_down), (300, 0, 300));
        io.write_all(&[0; 750]).await.unwrap();
        let second = traffic.sample(UploadOutcome::Refused).flows[&client()];
        assert_eq!(
            (second.steps, second.transport_down, second.socket_down),
            (700, 50, 750)
        );
        counters.sent(Sent::Snapshot, 500);
        drop(io);
        let last = traffic.sample(UploadOutcome::Refused);
        assert!(last.flows.is_empty(), "what was never sent is not booked: {last:?}");
    }

    #[tokio::test]
    async fn a_frame_that_is_still_arriving_when_a_round_ends_came_too_late() {
        let traffic = Connections::new();
        let meter = Arc::new(Meter::within(Arc::clone(traffic.total())));
        traffic.connected(Arc::clone(&meter));
        let counters = traffic.identified(&meter, &"a".parse().unwrap());
        let (a, mut b) = tokio::io::duplex(1 << 16);
        let mut io = fl_proto::Metered::new(a, meter);
        b.write_all(&[0; 500]).await.unwrap();
        io.read_exact(&mut [0; 500]).await.unwrap();
        counters.arrived(400);
        counters.settled(UploadOutcome::Accepted);
        counters.arrived(60);
        let flow = traffic.sample(UploadOutcome::Refused).flows[&Some("a".parse().unwrap())];
        assert_eq!((flow.update, flow.refused, flow.transport_up), (400, 60, 40));
    }

    #[tokio::test]
    async fn clients_are_told_apart_up_to_a_number_and_what_is_told_of_one_only_grows() {
        let traffic = Connections::new();
        for round in 1..=2 {
            for n in (0..Connections::NAMED + 2).rev() {
                pass(&traffic, Some(&format!("c{n}")), 10).await;
            }
            traffic.sample(UploadOutcome::Refused);
            let clients = traffic.clients(&traffic.peek().sample);
            assert_eq!(clients.len(), Connections::NAMED + 1);
            assert!(clients.iter().all(|named| named.client != "c0" && named.client != "c1"));
            let [first, .., last] = clients.as_slice() else {
                unreachable!()
            };
            assert_eq!((first.client.as_str(), first.socket), ("c10", (10 * round, 2 * round)));
            assert_eq!((last.client.as_str(), last.socket), ("*", (20 * round, 4 * round)));
        }
    }

    #[test]
    fn a_sample_that_does_not_balance_says_so() {
        let flows = BTreeMap::from([(
            None,
            Flow {
                socket_up: 3,
                ..Flow::default()
            },
        )]);
        let mut sample = Sample { flows, meter: (4, 0) };
        assert!(!sample.is_balanced());
        assert!(sample.alert(7).is_some_and(|text| text.contains("round 7 differs")));
        sample.meter = (3, 0);
        assert_eq!(sample.alert(7), None);
    }
}
