//! The client's own count of bytes on its sockets: each byte is reported once, in one round. The counts are for people and
//! for comparison with the server's ledger; nothing depends on them.

use std::sync::Arc;
use std::time::Duration;

use fl_proto::Meter;

use crate::event::{Event, Sink};

/// Longest wait for a connection to close. Bytes that it sends later count in the next report, or not at all.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Reports the bytes on this client's sockets by round.
#[derive(Debug)]
pub(super) struct TrafficLog {
    meter: Arc<Meter>,
    events: Sink,
    /// The round that bytes count for; `None` until the server has named one.
    round: Option<u64>,
    /// Bytes sent and received that were reported.
    reported: (u64, u64),
}

impl TrafficLog {
    /// Reports what `meter` counts from now on. The meter must count this client's bytes alone.
    pub(super) fn new(meter: Arc<Meter>, events: Sink) -> Self {
        let reported = (meter.written(), meter.read());
        Self {
            meter,
            events,
            round: None,
            reported,
        }
    }

    /// The run is in `round`. Bytes so far belong to the round before, or to this round if there was none.
    pub(super) fn enter_round(&mut self, round: u64) {
        if self.round.is_some_and(|before| before != round) {
            self.report();
        }
        self.round = Some(round);
    }

    /// Another run is joined: its rounds start at 1 again.
    pub(super) fn leave_run(&mut self) {
        if self.round.is_some() {
            self.report();
        }
        self.round = None;
    }

    /// Waits for the last bytes of a connection whose calls have all ended, and reports them.
    pub(super) async fn close(&mut self) {
        if tokio::time::timeout(CLOSE_TIMEOUT, self.meter.closed()).await.is_err() {
            tracing::debug!("the connection does not close; its last bytes are reported later");
        }
        self.report();
    }

    fn report(&mut self) {
        let now = (self.meter.written(), self.meter.read());
        let sent = now.0 - self.reported.0;
        let received = now.1 - self.reported.1;
        self.reported = now;
        if (sent, received) != (0, 0) {
            self.events.send(Event::Traffic {
                round: self.round.unwrap_or(0),
                sent,
                received,
            });
        }
    }
}
