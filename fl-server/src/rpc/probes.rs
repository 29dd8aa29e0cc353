//! Bounds on probes that move bytes: they share the link with the rounds. A probe without bytes is bounded as any call is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fl_proto::ClientId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tonic::Status;

use crate::lock::lock;

/// Measurements of one client in [`WINDOW`]; a check makes one.
const PER_WINDOW: u32 = 12;
const WINDOW: Duration = Duration::from_secs(60);
/// Measurements at once of all clients.
const AT_ONCE: usize = 4;

#[derive(Debug)]
pub(crate) struct Probes {
    places: Arc<Semaphore>,
    recent: Mutex<BTreeMap<ClientId, (Instant, u32)>>,
}

impl Default for Probes {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            recent: Mutex::default(),
        }
    }
}

impl Probes {
    /// A place for a measurement of `client`.
    pub(super) fn place(&self, client: &ClientId, now: Instant) -> Result<OwnedSemaphorePermit, Status> {
        let mut recent = lock(&self.recent);
        recent.retain(|_, (since, _)| now.saturating_duration_since(*since) < WINDOW);
        let (since, calls) = recent.entry(client.clone()).or_insert((now, 0));
        if *calls >= PER_WINDOW {
            let left = WINDOW.saturating_sub(now.saturating_duration_since(*since)).as_secs() + 1;
            return Err(Status::resource_exhausted(format!(
                "client `{client}` has measured its connection {PER_WINDOW} times within a minute; try again in {left} s"
            )));
        }
        *calls += 1;
        drop(recent);
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{AT_ONCE} clients measure their connections now; try again in a minute"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_has_so_many_probes_a_minute_and_all_clients_so_many_at_once() {
        let probes = Probes::default();
        let client = |name: &str| name.parse().unwrap();
        let refused = |name: &str| probes.place(&client(name), Instant::now()).unwrap_err();
        for _ in 0..PER_WINDOW {
            drop(probes.place(&client("a"), Instant::now()).unwrap());
        }
        assert!(
            refused("a")
                .message()
                .contains("12 times within a minute; try again in 61 s"),
            "{}",
            refused("a")
        );
        let places: Vec<_> = (0..AT_ONCE)
            .map(|n| probes.place(&client(&format!("b{n}")), Instant::now()).unwrap())
            .collect();
        assert!(
            refused("c")
                .message()
                .contains("4 clients measure their connections now")
        );
        drop(places);
        tokio::time::advance(WINDOW).await;
        assert!(probes.place(&client("a"), Instant::now()).is_ok());
        assert_eq!(probes.recent.lock().unwrap().len(), 1, "what is past is forgotten");
    }
}
