//! The client's own books: bytes on its sockets, each booked once and to one round. They are for people and for comparing
//! with the server's ledger; nothing depends on them.

use std::sync::Arc;
use std::time::Duration;

use fl_proto::Meter;

use crate::event::{Event, Sink};

/// Longest wait for a connection to say goodbye. What it sends later is booked with what follows, or not at all.
const FAREWELL: Duration = Duration::from_secs(2);

/// What has passed, and what of it is booked.
#[derive(Debug)]
pub(super) struct Books {
    meter: Arc<Meter>,
    events: Sink,
    /// The round that is booked to; `None` until the server has named one.
    round: Option<u64>,
    /// Bytes sent and received that are booked.
    booked: (u64, u64),
}

impl Books {
    /// Books what `meter` counts from now on, which must be this client's bytes alone.
    pub(super) fn of(meter: Arc<Meter>, events: Sink) -> Self {
        let booked = (meter.written(), meter.read());
        Self {
            meter,
            events,
            round: None,
            booked,
        }
    }

    /// The run is in `round`: what has passed so far belongs to the round before, or to this one if there was none.
    pub(super) fn enter(&mut self, round: u64) {
        if self.round.is_some_and(|before| before != round) {
            self.book();
        }
        self.round = Some(round);
    }

    /// Another run is joined: its rounds are counted from 1 again.
    pub(super) fn leave_run(&mut self) {
        if self.round.is_some() {
            self.book();
        }
        self.round = None;
    }

    /// Every call is over: waits for the connection's last bytes, and books them.
    pub(super) async fn close(&mut self) {
        if tokio::time::timeout(FAREWELL, self.meter.closed()).await.is_err() {
            tracing::debug!("the connection does not end; its last bytes are booked later");
        }
        self.book();
    }

    fn book(&mut self) {
        let now = (self.meter.written(), self.meter.read());
        let (sent, received) = (now.0 - self.booked.0, now.1 - self.booked.1);
        self.booked = now;
        if (sent, received) != (0, 0) {
            self.events.send(Event::Traffic {
                round: self.round.unwrap_or(0),
                sent,
                received,
            });
        }
    }
}
