//! The counters behind [`Connections`](crate::accounting::connections::Connections).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fl_proto::{ClientId, Meter};

use crate::accounting::client_counters::ClientCounters;
use crate::accounting::ledger::Flow;

/// The open connections, the clients, and the bytes since the last sample.
#[derive(Debug, Default, Clone)]
pub(super) struct ConnectionCounters {
    open: Vec<Connection>,
    ended: BTreeMap<Option<ClientId>, Flow>,
    /// Length of `open` at which ended connections are moved to `ended`.
    fold_at: usize,
    pub(super) clients: BTreeMap<ClientId, ClientTraffic>,
    pub(super) metered: (u64, u64),
}

#[derive(Debug, Clone)]
struct Connection {
    meter: Arc<Meter>,
    client: Option<ClientId>,
    /// Reading of the meter at the last sample.
    sampled: (u64, u64),
    /// Its reading of pings.
    pings: (u64, u64),
    /// Whether a sample has counted the connection.
    counted: bool,
}

/// One client's counters and what is booked of them.
#[derive(Debug, Default, Clone)]
pub(super) struct ClientTraffic {
    pub(super) place: usize,
    counters: Arc<ClientCounters>,
    /// Booked bytes of its sockets, up and down.
    pub(super) socket: (u64, u64),
    /// The counters at the last sample.
    sampled: Flow,
    /// Payload that was counted before the sockets carried it; booked once they have.
    ahead: Flow,
}

/// A connection's reading (read, written), and whether the connection has ended.
pub(super) type Reading = ((u64, u64), bool);

/// Least number of entries at which ended connections are looked for. The entries stay below this number or twice the open
/// connections, and each new connection costs constant time.
pub(super) const FOLD_AT: usize = 64;

impl Connection {
    /// Whether the connection has ended: then nothing else holds its meter.
    fn is_gone(&mut self) -> bool {
        Arc::get_mut(&mut self.meter).is_some()
    }

    /// Adds the bytes between the last reading and `now` to the flow of its client.
    fn book(&mut self, now: (u64, u64), flows: &mut BTreeMap<Option<ClientId>, Flow>) {
        let (up, down) = difference(now, self.sampled);
        let pings = (self.meter.pings_read(), self.meter.pings_written());
        let (pings_up, pings_down) = difference(pings, self.pings);
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

impl ConnectionCounters {
    pub(super) fn open(&mut self, meter: Arc<Meter>) {
        if self.open.len() >= self.fold_at.max(FOLD_AT) {
            self.fold();
        }
        self.open.push(Connection {
            meter,
            client: None,
            sampled: (0, 0),
            pings: (0, 0),
            counted: false,
        });
    }

    /// Assigns a connection to a client; returns the client's counters.
    pub(super) fn identify(&mut self, meter: &Arc<Meter>, client: &ClientId) -> Arc<ClientCounters> {
        let known = self.open.iter_mut().find(|open| Arc::ptr_eq(&open.meter, meter));
        if let Some(connection) = known.filter(|connection| connection.client.is_none()) {
            connection.client = Some(client.clone());
        }
        let place = self.clients.len();
        let account = self.clients.entry(client.clone()).or_insert_with(|| ClientTraffic {
            place,
            ..ClientTraffic::default()
        });
        Arc::clone(&account.counters)
    }

    /// The bytes between the last sample and `readings`, both ways.
    pub(super) fn passed(&self, readings: &[Reading]) -> (u64, u64) {
        let open = readings.iter().zip(&self.open);
        open.fold(sockets(&self.ended), |sum, ((now, _), connection)| {
            add(sum, difference(*now, connection.sampled))
        })
    }

    /// The connected clients, each with the newest model version that its sockets have carried completely.
    pub(super) fn connected(&self) -> BTreeMap<ClientId, Option<u64>> {
        let connected = self.open.iter().filter_map(|open| open.client.clone());
        connected
            .map(|client| {
                let account = self.clients.get(&client);
                let arrived = account.filter(|account| account.ahead.frames_down() == 0);
                let version = arrived.and_then(|account| account.counters.version());
                (client, version)
            })
            .collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn readings(&mut self) -> Vec<Reading> {
        self.open
            .iter_mut()
            .map(|connection| {
                // Before the bytes are read: none may pass after.
                let gone = connection.is_gone();
                (reading(&connection.meter), gone)
            })
            .collect()
    }

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

    /// Turns readings into increments by client and removes ended connections. `counted` reads a client's counters.
    pub(super) fn settle(
        &mut self,
        readings: &[Reading],
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
                // Its connections have ended, so these bytes were never sent.
                account.ahead = Flow::default();
            }
        }
        out.values_mut().for_each(Flow::settle_transport);
        out.retain(|_, flow| *flow != Flow::default());
        out
    }
}

/// Removes and returns the payload of `flow` that its sockets have not carried yet.
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
    let known = flow.frames_down() + flow.base + flow.control_down + flow.heartbeat_down;
    let mut over = known.saturating_sub(flow.socket_down);
    ahead.steps = take(&mut over, &mut flow.steps);
    ahead.snapshot = take(&mut over, &mut flow.snapshot);
    // A client fetches the base before a model, so that what the sockets lack is of a model first.
    ahead.base = take(&mut over, &mut flow.base);
    ahead.control_down = take(&mut over, &mut flow.control_down);
    ahead
}

pub(super) fn reading(meter: &Meter) -> (u64, u64) {
    (meter.read(), meter.written())
}

pub(super) fn difference(now: (u64, u64), before: (u64, u64)) -> (u64, u64) {
    (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1))
}

pub(super) fn add(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0 + b.0, a.1 + b.1)
}

pub(super) fn sockets(flows: &BTreeMap<Option<ClientId>, Flow>) -> (u64, u64) {
    flows.values().fold((0, 0), |(up, down), flow| {
        (up + flow.socket_up, down + flow.socket_down)
    })
}
