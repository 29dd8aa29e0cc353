//! Serves one run until it is over or the server is stopped.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::config::live::LiveSettings;
use crate::error::ServeError;
use crate::rpc::door::Seats;
use crate::server::build::Server;
use crate::server::options::{Ending, Outcome, Serve};
use crate::state_machine::{Phase, State};
use crate::telemetry::trace;

/// How often the server checks whether the clients have left.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Serves `options.plan` on `listener`: begins the run or continues it, until it is over or `shutdown` completes. Stops
/// gracefully: accepts no more connections, ends the watch streams, waits for running calls up to `stop_within`, and
/// books the last bytes.
///
/// # Errors
/// Whatever keeps the run from being served. Calls in progress end with `UNAVAILABLE`, and nothing acknowledged is
/// lost.
pub async fn serve(
    listener: TcpListener,
    options: Serve,
    shutdown: impl Future<Output = ()>,
) -> Result<Outcome, ServeError> {
    Server::build(listener, options).await?.run(shutdown).await
}

/// Why a server stops.
enum Stop {
    /// `shutdown` completed, or the run is over.
    Asked,
    /// The coordinator ended by itself.
    Coordinator(Result<Arc<State>, ServeError>),
}

impl Server {
    async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<Outcome, ServeError> {
        let stop = tokio::select! {
            () = shutdown => Stop::Asked,
            () = over(self.state.clone(), &self.seats, &self.settings, self.exit_when_done) => Stop::Asked,
            state = self.coordinator.finished() => Stop::Coordinator(state?),
            ended = self.calls.finished() => {
                ended??;
                return Err(ServeError::Listener(std::io::Error::other("it ended")));
            }
        };
        self.stop(stop).await
    }

    async fn stop(mut self, stop: Stop) -> Result<Outcome, ServeError> {
        self.stopping.send_replace(true);
        drop(self.drain);
        self.reloads.abort().await;
        if let Some(own) = self.own {
            own.abort().await;
        }
        self.door.abort().await;
        if let Some(port) = self.port {
            port.abort().await;
        }
        let within = self.settings.borrow().tuning.stop_within;
        let calls = tokio::time::timeout(within, self.calls.finished());
        if calls.await.is_err() {
            tracing::warn!("some calls did not finish in time");
        }
        drop(self.calls);
        if let Some(admin) = self.admin {
            admin.abort().await;
        }
        if let Some(mut page) = self.page {
            // It ends by itself: it watches `stopping`.
            let _ = page.finished().await;
        }
        drop(self.finish);
        let state = match stop {
            Stop::Coordinator(state) => state?,
            Stop::Asked => self.coordinator.finished().await??,
        };
        if let Some(exporter) = self.exporter {
            exporter.finish(trace::FINISH_WITHIN).await;
        }
        Ok(Outcome {
            ending: ending(&state),
            version: state.version(),
            model: state.model(),
            socket: (self.traffic.total().read(), self.traffic.total().written()),
        })
    }
}

fn ending(state: &State) -> Ending {
    match state.phase() {
        Phase::Done => Ending::Done,
        Phase::Failed { round, why } => Ending::Failed {
            round: *round,
            why: why.clone(),
        },
        _ => Ending::Stopped,
    }
}

/// Completes when the run is over, if the server waits for that, and the clients have had time to fetch the last model.
async fn over(
    mut state: watch::Receiver<Arc<State>>,
    seats: &Seats,
    settings: &watch::Receiver<Arc<LiveSettings>>,
    exit_when_done: bool,
) {
    if !exit_when_done || state.wait_for(|state| state.is_over()).await.is_err() {
        return std::future::pending().await;
    }
    let gone = async {
        while !seats.is_empty() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let within = settings.borrow().tuning.stop_within;
    let _ = tokio::time::timeout(within, gone).await;
}
