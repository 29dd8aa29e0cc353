//! Seats of clients' connections: bounded in total and by certificate, which of them are in use, and which one is
//! evicted for another. The lock guards counters and is never held across an await.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fl_proto::ClientId;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Status;

use crate::accounting::edge::{CallLimit, ClosedFor, PortCounters};
use crate::lock::lock;
use crate::rate_limited::LogLimit;
use crate::rpc::call_rate::CallRate;
use crate::rpc::door::room::Room;

#[derive(Debug)]
pub(crate) struct Seats {
    rate: CallRate<ClientId>,
    counters: Arc<PortCounters>,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    room: Room,
    next: u64,
    taken: usize,
    clients: BTreeMap<ClientId, Vec<Seat>>,
    crowded: LogLimit,
}

/// One connection's seat. The connection ends when this is dropped.
#[derive(Debug)]
struct Seat {
    number: u64,
    calls: usize,
    /// When the last call ended, or the connection opened.
    since: Instant,
    _end: oneshot::Sender<()>,
}

impl Seats {
    pub(super) fn new(room: &Room, counters: Arc<PortCounters>) -> Self {
        Self {
            rate: CallRate::default(),
            counters,
            table: Mutex::new(Table {
                room: *room,
                next: 0,
                taken: 0,
                clients: BTreeMap::new(),
                crowded: LogLimit::default(),
            }),
        }
    }

    /// Takes other bounds. Connections that are open stay: from now on a new one takes the place of another where there are too
    /// many.
    pub(super) fn resize(&self, room: &Room) {
        lock(&self.table).room = *room;
    }

    /// A seat for a new connection of `client`: its number, and a signal that completes when the seat is taken. If the
    /// client has its maximum, its oldest connection is evicted; if all seats are taken, the connection that was idle
    /// for longest. `None` if none is idle.
    pub(super) fn take(&self, client: &ClientId, now: Instant) -> Option<(u64, oneshot::Receiver<()>)> {
        let mut table = lock(&self.table);
        let own = table.clients.get(client).map_or(0, Vec::len);
        if own >= table.room.per_client {
            table.remove_oldest(client);
            self.counters.closed(ClosedFor::Newer);
            if let Some(times) = table.crowded.due(now) {
                tracing::warn!(
                    %client,
                    times,
                    "more connections than a client may have (`connections_per_client` in server.toml): its oldest was \
                     closed; do two processes share its certificate?"
                );
            }
        } else if table.taken >= table.room.clients {
            let Some((of, number)) = table.idlest(now, Duration::ZERO) else {
                self.counters.closed(ClosedFor::Full);
                return None;
            };
            table.remove(&of, number);
            self.counters.closed(ClosedFor::Evicted);
        }
        let number = table.next;
        table.next += 1;
        table.taken += 1;
        let (end, ended) = oneshot::channel();
        table.clients.entry(client.clone()).or_default().push(Seat {
            number,
            calls: 0,
            since: now,
            _end: end,
        });
        Some((number, ended))
    }

    pub(super) fn end_all(&self) {
        let mut table = lock(&self.table);
        table.clients.clear();
        table.taken = 0;
    }

    pub(super) fn leave(&self, client: &ClientId, number: u64) {
        lock(&self.table).remove(client, number);
    }

    /// Waits for the turn of a new call of `client`, which has made many.
    pub(super) async fn turn(&self, client: &ClientId) {
        let rate = lock(&self.table).room.call_rate;
        self.counters.called();
        self.rate
            .turn(client.clone(), rate, || self.counters.limited(CallLimit::Rate))
            .await;
    }

    /// Begins a call.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the client has as many open as it may; `UNAVAILABLE` if the connection has no seat any
    /// more.
    pub(super) fn call(self: &Arc<Self>, client: &ClientId, number: u64) -> Result<Call, Status> {
        let mut table = lock(&self.table);
        let most = table.room.calls;
        let seats = table.clients.get_mut(client).map_or(&mut [][..], Vec::as_mut_slice);
        if seats.iter().map(|seat| seat.calls).sum::<usize>() >= most {
            self.counters.limited(CallLimit::Open);
            return Err(Status::resource_exhausted(format!(
                "client `{client}` has {most} calls open; end some"
            )));
        }
        let own = seats.iter_mut().find(|seat| seat.number == number);
        let own = own.ok_or_else(|| Status::unavailable("a newer connection of this client has taken its place"))?;
        own.calls += 1;
        Ok(Call {
            seats: Arc::clone(self),
            client: client.clone(),
            number,
        })
    }

    /// Closes connections without a call for the time that they may have none; returns their number.
    pub(super) fn cut_idle(&self, now: Instant) -> usize {
        let mut table = lock(&self.table);
        let before = table.taken;
        let idle = table.room.idle;
        while let Some((client, number)) = table.idlest(now, idle) {
            table.remove(&client, number);
            self.counters.closed(ClosedFor::Idle);
        }
        before - table.taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.table).taken == 0
    }
}

impl Table {
    /// The seat without a call for the longest time, at least `idle`.
    fn idlest(&self, now: Instant, idle: Duration) -> Option<(ClientId, u64)> {
        let seats = self
            .clients
            .iter()
            .flat_map(|(client, seats)| seats.iter().map(move |seat| (client, seat)));
        let unused = seats.filter(|(_, seat)| seat.calls == 0 && now.saturating_duration_since(seat.since) >= idle);
        let (client, seat) = unused.min_by_key(|(_, seat)| seat.since)?;
        Some((client.clone(), seat.number))
    }

    fn remove_oldest(&mut self, client: &ClientId) {
        if let Some(seat) = self.clients.get(client).and_then(|seats| seats.first()) {
            let number = seat.number;
            self.remove(client, number);
        }
    }

    fn remove(&mut self, client: &ClientId, number: u64) {
        let Some(seats) = self.clients.get_mut(client) else {
            return;
        };
        let before = seats.len();
        seats.retain(|seat| seat.number != number);
        self.taken -= before - seats.len();
        if seats.is_empty() {
            self.clients.remove(client);
        }
    }
}

/// An open call; dropping it ends the call.
#[derive(Debug)]
pub(crate) struct Call {
    seats: Arc<Seats>,
    client: ClientId,
    number: u64,
}

impl Call {
    /// Waits for the turn of one more message of this call, as if it were a call of its own.
    pub(crate) async fn turn(&self) {
        self.seats.turn(&self.client).await;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut table = lock(&self.seats.table);
        let seats = table
            .clients
            .get_mut(&self.client)
            .map_or(&mut [][..], Vec::as_mut_slice);
        if let Some(seat) = seats.iter_mut().find(|seat| seat.number == self.number) {
            seat.calls -= 1;
            seat.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::server::Tuning;

    /// At most so many connections in total and of one client.
    fn seats(clients: usize, per_client: usize) -> Seats {
        let room = Room {
            clients,
            per_client,
            ..Room::new(&Tuning::default(), None)
        };
        Seats::new(&room, Arc::default())
    }

    fn closed(seats: &Seats) -> Vec<(ClosedFor, u64)> {
        seats.counters.closings().filter(|(_, count)| *count > 0).collect()
    }

    fn client(name: &str) -> ClientId {
        name.parse().unwrap()
    }

    fn is_open(end: &mut oneshot::Receiver<()>) -> bool {
        end.try_recv() == Err(oneshot::error::TryRecvError::Empty)
    }

    #[test]
    fn a_clients_newest_connection_ends_its_oldest_and_nobody_elses() {
        let (seats, now) = (seats(10, 2), Instant::now());
        let (_, mut other) = seats.take(&client("b"), now).unwrap();
        let mut own: Vec<_> = (0..4).map(|_| seats.take(&client("a"), now).unwrap().1).collect();
        let open: Vec<_> = own.iter_mut().map(is_open).collect();
        assert_eq!(open, [false, false, true, true]);
        assert!(is_open(&mut other));
        assert_eq!(lock(&seats.table).taken, 3);
        assert_eq!(closed(&seats), [(ClosedFor::Newer, 2)]);
    }

    #[test]
    fn when_all_places_are_taken_an_idle_connection_makes_room_and_one_in_use_never() {
        let (seats, now) = (Arc::new(seats(2, 2)), Instant::now());
        let (first, mut a) = seats.take(&client("a"), now).unwrap();
        let (second, mut b) = seats.take(&client("b"), now).unwrap();
        let _in_use = seats.call(&client("a"), first).unwrap();
        let (third, _c) = seats.take(&client("c"), now).unwrap();
        assert!(is_open(&mut a) && !is_open(&mut b));
        assert_eq!(
            seats.call(&client("b"), second).unwrap_err().code(),
            tonic::Code::Unavailable
        );
        let _in_use_too = seats.call(&client("c"), third).unwrap();
        assert!(seats.take(&client("d"), now).is_none());
        assert_eq!(closed(&seats), [(ClosedFor::Full, 1), (ClosedFor::Evicted, 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_call_is_cut_and_one_with_a_call_is_not() {
        let seats = Arc::new(seats(9, 9));
        let idle = Duration::from_secs(60);
        let (silent, mut silent_end) = seats.take(&client("a"), Instant::now()).unwrap();
        let (busy, mut busy_end) = seats.take(&client("a"), Instant::now()).unwrap();
        let call = seats.call(&client("a"), busy).unwrap();
        tokio::time::advance(idle).await;
        assert_eq!(seats.cut_idle(Instant::now()), 1);
        assert!(!is_open(&mut silent_end) && is_open(&mut busy_end));
        drop(call);
        tokio::time::advance(idle / 2).await;
        assert_eq!(seats.cut_idle(Instant::now()), 0, "it counts from the call's end");
        tokio::time::advance(idle / 2).await;
        assert_eq!(seats.cut_idle(Instant::now()), 1);
        assert_eq!(closed(&seats), [(ClosedFor::Idle, 2)]);
        seats.leave(&client("a"), silent);
        assert!(seats.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn other_bounds_hold_for_new_connections_and_calls_and_close_no_open_one() {
        let (seats, now) = (Arc::new(seats(9, 9)), Instant::now());
        let mut ends: Vec<_> = (0..4).map(|_| seats.take(&client("a"), now).unwrap().1).collect();
        let room = Room {
            clients: 5,
            per_client: 2,
            call_rate: 1,
            idle: Duration::from_secs(5),
            ..Room::new(&Tuning::default(), None)
        };
        seats.resize(&room);
        assert!(ends.iter_mut().all(is_open));
        let (b, _b) = seats.take(&client("b"), now).unwrap();
        assert_eq!(closed(&seats), []);
        let _fifth = seats.take(&client("a"), now).unwrap();
        assert_eq!(ends.iter_mut().filter_map(|end| is_open(end).then_some(())).count(), 3);
        assert_eq!(closed(&seats), [(ClosedFor::Newer, 1)]);
        let _call = seats.call(&client("b"), b).unwrap();
        let _c = seats.take(&client("c"), now).unwrap();
        assert!(
            closed(&seats).contains(&(ClosedFor::Evicted, 1)),
            "five are the most in total"
        );
        assert_eq!(waited(&seats, "a").await, Duration::ZERO);
        assert_eq!(waited(&seats, "a").await, Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(seats.cut_idle(Instant::now()), 4, "all but the one with a call");
    }

    #[test]
    fn a_client_has_so_many_calls_over_all_its_connections() {
        let (seats, now) = (Arc::new(seats(9, 9)), Instant::now());
        let numbers = [0, 1].map(|_| seats.take(&client("a"), now).unwrap());
        let most = Tuning::default().calls_per_client;
        let mut calls: Vec<_> = (0..most)
            .map(|n| seats.call(&client("a"), numbers[n % 2].0).unwrap())
            .collect();
        let refused = seats.call(&client("a"), numbers[0].0).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        calls.pop();
        assert!(seats.call(&client("a"), numbers[0].0).is_ok());
        let limited: Vec<_> = seats.counters.limits().collect();
        assert_eq!(limited, [(CallLimit::Rate, 0), (CallLimit::Open, 1)]);
    }

    /// How long the next call of a client waits.
    async fn waited(seats: &Seats, name: &str) -> Duration {
        let begun = Instant::now();
        seats.turn(&client(name)).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_calls_too_often_waits_and_another_does_not() {
        let seats = seats(9, 9);
        for _ in 0..100 {
            assert_eq!(waited(&seats, "a").await, Duration::ZERO);
        }
        assert_eq!(waited(&seats, "a").await, Duration::from_millis(10));
        assert_eq!(waited(&seats, "b").await, Duration::ZERO);
        let limited: Vec<_> = seats.counters.limits().collect();
        assert_eq!((seats.counters.calls(), limited[0]), (102, (CallLimit::Rate, 1)));
    }
}
