//! Counts the bytes of every connection of the endpoint, by client.
//!
//! The connections' meters and the endpoint's meter count independently; a sample compares them. The lock guards counters
//! only and is never held across a wait.

use std::sync::{Arc, Mutex};

use fl_proto::{ClientId, Meter};

use crate::accounting::client_counters::{ClientCounters, UploadOutcome};
use crate::accounting::connection_counters::{ConnectionCounters, Reading, add, difference, reading};
use crate::accounting::sample::{ClientBytes, Peek, Sample};
use crate::lock::lock;

#[derive(Debug)]
pub(crate) struct Connections {
    total: Arc<Meter>,
    counters: Mutex<ConnectionCounters>,
}

impl Connections {
    pub(crate) fn new() -> Self {
        Self {
            total: Arc::default(),
            counters: Mutex::default(),
        }
    }

    /// The meter of the whole endpoint.
    pub(crate) fn total(&self) -> &Arc<Meter> {
        &self.total
    }

    pub(crate) fn connected(&self, meter: Arc<Meter>) {
        lock(&self.counters).open(meter);
    }

    /// Assigns a connection to a client; returns the client's counters.
    pub(crate) fn identified(&self, meter: &Arc<Meter>, client: &ClientId) -> Arc<ClientCounters> {
        lock(&self.counters).identify(meter, client)
    }

    /// Most clients with a name in [`Connections::clients`]: the first ones, so that the figures of a name only grow.
    pub(crate) const NAMED: usize = 200;

    /// Bytes of the clients' sockets, by name: the booked ones and those of `pending`.
    pub(crate) fn clients(&self, pending: &Sample) -> Vec<ClientBytes> {
        let mut out = Vec::new();
        let mut others = (0, 0);
        let counters = lock(&self.counters);
        for (client, account) in &counters.clients {
            let pending = pending.flows.get(&Some(client.clone())).copied().unwrap_or_default();
            let socket = add(account.socket, (pending.socket_up, pending.socket_down));
            if account.place < Self::NAMED {
                out.push(ClientBytes {
                    client: client.to_string(),
                    socket,
                });
            } else {
                others = add(others, socket);
            }
        }
        if counters.clients.len() > Self::NAMED {
            out.push(ClientBytes {
                client: "*".to_owned(),
                socket: others,
            });
        }
        out
    }

    /// Takes a sample: the bytes since the last one. `arriving`: how frames in flight are booked, which differs between the end
    /// of a round and the end of the server.
    pub(crate) fn sample(&self, arriving: UploadOutcome) -> Sample {
        let mut counters = lock(&self.counters);
        let (readings, total) = self.steady(&mut counters);
        let meter = difference(total, counters.metered);
        counters.metered = total;
        Sample {
            flows: counters.settle(&readings, |counters| counters.flow(arriving)),
            meter,
        }
    }

    /// The sample that would be taken now, with frames in flight booked as updates. Takes none.
    pub(crate) fn peek(&self) -> Peek {
        let mut counters = lock(&self.counters);
        let (readings, total) = self.steady(&mut counters);
        let meter = difference(total, counters.metered);
        // The copy holds every meter once more, which would look like an open connection: the lock keeps others from looking.
        let mut copy = counters.clone();
        let flows = copy.settle(&readings, ClientCounters::peek);
        Peek {
            sample: Sample { flows, meter },
            meter: total,
            connected: copy.connected(),
        }
    }

    pub(crate) fn passed(&self) -> (u64, u64) {
        difference(reading(&self.total), lock(&self.counters).metered)
    }

    /// Consistent readings of all connections' meters and of the endpoint's. Bytes may pass while they are read, so they are
    /// read again until their sums agree, up to a number of attempts.
    fn steady(&self, counters: &mut ConnectionCounters) -> (Vec<Reading>, (u64, u64)) {
        let mut readings = counters.readings();
        let mut total = reading(&self.total);
        for _ in 0..ATTEMPTS {
            let passed = counters.passed(&readings);
            if passed == difference(total, counters.metered) {
                break;
            }
            std::thread::yield_now();
            total = reading(&self.total);
            readings = counters.readings();
        }
        (readings, total)
    }
}

// While bytes pass all the time, the readings never agree; the sample then says so.
const ATTEMPTS: usize = 1000;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::accounting::client_counters::DownloadKind;
    use crate::accounting::connection_counters::FOLD_AT;

    fn connected(connections: &Connections) -> Arc<Meter> {
        let meter = Arc::new(Meter::within(Arc::clone(connections.total())));
        connections.connected(Arc::clone(&meter));
        meter
    }

    async fn pass(connections: &Connections, client: Option<&str>, bytes: usize) {
        let meter = connected(connections);
        if let Some(name) = client {
            connections.identified(&meter, &name.parse().unwrap());
        }
        let (a, mut b) = tokio::io::duplex(1 << 16);
        let mut io = fl_proto::Metered::new(a, meter);
        b.write_all(&vec![1; bytes]).await.unwrap();
        io.read_exact(&mut vec![0; bytes]).await.unwrap();
        io.write_all(b"ok").await.unwrap();
    }

    #[tokio::test]
    async fn samples_are_increments_and_balance_with_the_meter() {
        let connections = Connections::new();
        pass(&connections, Some("a"), 100).await;
        pass(&connections, None, 7).await;
        let first = connections.sample(UploadOutcome::Refused);
        assert!(first.is_balanced());
        assert_eq!(first.meter, (107, 4));
        assert_eq!(first.flows[&None].socket_up, 7);
        pass(&connections, Some("a"), 30).await;
        let second = connections.sample(UploadOutcome::Refused);
        assert!(second.is_balanced());
        assert_eq!(second.flows.len(), 1);
        assert_eq!(second.flows[&Some("a".parse().unwrap())].socket_up, 30);
        assert!(lock(&connections.counters).len() == 0, "ended connections are removed");
    }

    #[test]
    fn bytes_sampled_before_a_client_said_who_it_is_stay_where_they_were() {
        let connections = Connections::new();
        let meter = connected(&connections);
        assert_eq!(connections.sample(UploadOutcome::Refused).flows[&None].connections, 1);
        connections.identified(&meter, &"a".parse().unwrap()).retried();
        let sample = connections.sample(UploadOutcome::Refused);
        let flow = sample.flows[&Some("a".parse().unwrap())];
        assert_eq!(
            (flow.retries, flow.connections),
            (1, 0),
            "the connection was booked without a client"
        );
        assert!(sample.is_balanced());
        assert_eq!(sample.rows(3).len(), 2);
    }

    #[tokio::test]
    async fn connections_that_come_and_go_leave_a_constant_number_of_entries_and_exact_sums() {
        const COMING: usize = 10_000;
        let connections = Connections::new();
        let _stays = connected(&connections);
        let mut most = 0;
        for n in 0..COMING {
            let client = ["a", "b"].get(n % 3).copied();
            pass(&connections, client, n % 7).await;
            most = most.max(lock(&connections.counters).len());
        }
        assert!(most <= FOLD_AT, "{most} entries for one connection that is open");
        let sample = connections.sample(UploadOutcome::Refused);
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
            connections.sample(UploadOutcome::Refused).flows.is_empty(),
            "nothing is booked twice"
        );
    }

    #[tokio::test]
    async fn payload_is_booked_when_the_sockets_have_carried_it() {
        let connections = Connections::new();
        let client = || Some("a".parse().unwrap());
        let meter = connected(&connections);
        let counters = connections.identified(&meter, &"a".parse().unwrap());
        let (a, _b) = tokio::io::duplex(1 << 16);
        let mut io = fl_proto::Metered::new(a, meter);
        counters.sent(DownloadKind::Steps, 1_000);
        io.write_all(&[0; 300]).await.unwrap();
        let first = connections.sample(UploadOutcome::Refused).flows[&client()];
        assert_eq!((first.steps, first.transport_down, first.socket_down), (300, 0, 300));
        io.write_all(&[0; 750]).await.unwrap();
        let second = connections.sample(UploadOutcome::Refused).flows[&client()];
        assert_eq!(
            (second.steps, second.transport_down, second.socket_down),
            (700, 50, 750)
        );
        counters.sent(DownloadKind::Snapshot, 500);
        drop(io);
        let last = connections.sample(UploadOutcome::Refused);
        assert!(last.flows.is_empty(), "what was never sent is not booked: {last:?}");
    }

    #[tokio::test]
    async fn the_base_is_booked_when_the_sockets_have_carried_it_and_is_no_frame() {
        let connections = Connections::new();
        let client = || Some("a".parse().unwrap());
        let meter = connected(&connections);
        let counters = connections.identified(&meter, &"a".parse().unwrap());
        let (a, _b) = tokio::io::duplex(1 << 16);
        let mut io = fl_proto::Metered::new(a, meter);
        counters.sent(DownloadKind::Base, 1_000);
        counters.sent(DownloadKind::Snapshot, 100);
        counters.brought(3);
        io.write_all(&[0; 400]).await.unwrap();
        let first = connections.sample(UploadOutcome::Refused).flows[&client()];
        assert_eq!((first.base, first.snapshot, first.transport_down), (400, 0, 0));
        assert_eq!(
            connections.peek().connected[&"a".parse().unwrap()],
            None,
            "the model is not there yet"
        );
        io.write_all(&[0; 750]).await.unwrap();
        let second = connections.sample(UploadOutcome::Refused).flows[&client()];
        assert_eq!((second.base, second.snapshot, second.transport_down), (600, 100, 50));
        assert_eq!(second.frames_down(), 100);
        assert_eq!(connections.peek().connected[&"a".parse().unwrap()], Some(3));
    }

    #[tokio::test]
    async fn a_frame_that_is_still_arriving_when_a_round_ends_came_too_late() {
        let connections = Connections::new();
        let meter = connected(&connections);
        let counters = connections.identified(&meter, &"a".parse().unwrap());
        let (a, mut b) = tokio::io::duplex(1 << 16);
        let mut io = fl_proto::Metered::new(a, meter);
        b.write_all(&[0; 500]).await.unwrap();
        io.read_exact(&mut [0; 500]).await.unwrap();
        counters.arrived(400);
        counters.settled(UploadOutcome::Accepted);
        counters.arrived(60);
        let flow = connections.sample(UploadOutcome::Refused).flows[&Some("a".parse().unwrap())];
        assert_eq!((flow.update, flow.refused, flow.transport_up), (400, 60, 40));
    }

    #[tokio::test]
    async fn clients_are_told_apart_up_to_a_number_and_what_is_told_of_one_only_grows() {
        let connections = Connections::new();
        for round in 1..=2 {
            for n in (0..Connections::NAMED + 2).rev() {
                pass(&connections, Some(&format!("c{n}")), 10).await;
            }
            connections.sample(UploadOutcome::Refused);
            let clients = connections.clients(&connections.peek().sample);
            assert_eq!(clients.len(), Connections::NAMED + 1);
            assert!(clients.iter().all(|named| named.client != "c0" && named.client != "c1"));
            let [first, .., last] = clients.as_slice() else {
                unreachable!()
            };
            assert_eq!((first.client.as_str(), first.socket), ("c10", (10 * round, 2 * round)));
            assert_eq!((last.client.as_str(), last.socket), ("*", (20 * round, 4 * round)));
        }
    }
}
