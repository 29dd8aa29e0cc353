//! Serves one run until it is over or the server is stopped.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::error::ServeError;
use crate::rpc::context::Service;
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

enum Stop {
    /// `shutdown` completed, or the run is over.
    Due,
    Coordinator(Result<Arc<State>, ServeError>),
}

impl Server {
    async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<Outcome, ServeError> {
        let stop = tokio::select! {
            () = shutdown => Stop::Due,
            () = over(&self.service, &self.tasks.seats) => Stop::Due,
            state = self.coordinator.finished() => Stop::Coordinator(state?),
            ended = self.tasks.calls.finished() => {
                ended??;
                return Err(ServeError::Listener(std::io::Error::other("it ended")));
            }
        };
        self.stop(stop).await
    }

    async fn stop(mut self, stop: Stop) -> Result<Outcome, ServeError> {
        let mut tasks = self.tasks;
        self.stopping.send_replace(true);
        drop(tasks.drain);
        let before_calls = [Some(tasks.reloads), tasks.own, Some(tasks.door), tasks.port];
        for task in before_calls.into_iter().flatten() {
            task.abort().await;
        }
        let within = self.service.tuning().stop_within;
        if tokio::time::timeout(within, tasks.calls.finished()).await.is_err() {
            tracing::warn!("some calls did not finish in time");
        }
        drop(tasks.calls);
        let traffic = Arc::clone(&self.service.traffic);
        // The registry ends with the last of its users, and lets go of the store.
        drop(self.service);
        if let Some(admin) = tasks.admin {
            admin.abort().await;
        }
        if let Some(mut page) = tasks.page {
            // It ends by itself: it watches `stopping`.
            let _ = page.finished().await;
        }
        drop(self.finish);
        let state = match stop {
            Stop::Coordinator(state) => state?,
            Stop::Due => self.coordinator.finished().await??,
        };
        if let Some(exporter) = self.exporter {
            exporter.finish(trace::FINISH_WITHIN).await;
        }
        Ok(Outcome {
            ending: ending(&state),
            version: state.version(),
            model: state.model(),
            socket: (traffic.total().read(), traffic.total().written()),
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
async fn over(service: &Service, seats: &Seats) {
    let mut state = service.state.clone();
    if !service.exit_when_done || state.wait_for(|state| state.is_over()).await.is_err() {
        return std::future::pending().await;
    }
    let gone = async {
        while !seats.is_empty() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let _ = tokio::time::timeout(service.tuning().stop_within, gone).await;
}
