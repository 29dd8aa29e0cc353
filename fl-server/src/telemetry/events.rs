//! Where events go: into the live status, and to a display if there is one.

use std::sync::Arc;

use fl_proto::{MAX_REASON, foreign_text};
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::telemetry::event::Event;
use crate::telemetry::status::LiveStatus;
use crate::telemetry::turned_away::TurnedFor;

/// Target of what is logged about refused clients.
pub(crate) const REFUSED: &str = module_path!();

#[derive(Debug, Clone)]
pub(crate) struct Events {
    pub(crate) channel: Option<mpsc::Sender<Event>>,
    pub(crate) status: Arc<LiveStatus>,
    pub(crate) clock: Clock,
}

impl Events {
    /// Best effort: dropped if the channel is full.
    pub(crate) fn hint(&self, event: impl FnOnce() -> Event) {
        let event = event();
        self.status.note(&event, self.clock.now());
        if let Some(channel) = &self.channel {
            let _ = channel.try_send(event);
        }
    }

    /// Records a client that cannot take part, and logs a rate-limited warning.
    pub(crate) fn turned_away(&self, client: &str, reason: TurnedFor, why: &str) {
        let why = &foreign_text(why, MAX_REASON);
        if self.status.turned_away(client, reason, why, self.clock.now()) {
            let reason = reason.label();
            tracing::warn!(client, reason, why, "client turned away");
            self.hint(|| Event::TurnedAway {
                client: client.to_owned(),
                reason,
                why: why.clone(),
            });
        }
    }

    pub(crate) async fn tell(&self, event: Event) {
        self.status.note(&event, self.clock.now());
        if let Some(channel) = &self.channel {
            let _ = channel.send(event).await;
        }
    }
}
