//! The task that owns the client's state. It runs jobs one after another on the blocking pool.

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::state::ClientState;
use crate::error::Error;

type Job = Box<dyn FnOnce(&mut ClientState) + Send>;

/// A handle to the task that owns the [`ClientState`]. When the last handle is dropped, the task finishes its current job,
/// writes what it keeps, and ends.
#[derive(Debug, Clone)]
pub(crate) struct ClientActor {
    jobs: mpsc::Sender<Job>,
}

impl ClientActor {
    /// Starts the task; its handle ends when everything is on disk.
    pub(crate) fn start(client: ClientState) -> (Self, JoinHandle<()>) {
        let (jobs, queue) = mpsc::channel(1);
        (Self { jobs }, tokio::spawn(own(client, queue)))
    }

    /// Runs `job` and returns its result. A job that has started runs to its end even if the caller is dropped.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut ClientState) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, result) = oneshot::channel();
        let job: Job = Box::new(move |client| {
            // The caller may be gone.
            let _ = reply.send(job(client));
        });
        self.jobs.send(job).await.map_err(|_| Error::learner_panicked())?;
        result.await.map_err(|_| Error::learner_panicked())
    }
}

async fn own(mut client: ClientState, mut queue: mpsc::Receiver<Job>) {
    while let Some(job) = queue.recv().await {
        let done = tokio::task::spawn_blocking(move || {
            job(&mut client);
            client
        });
        client = match done.await {
            Ok(client) => client,
            Err(_) => return,
        };
    }
    // Only the kept model is written here. It can be fetched again.
    let _ = tokio::task::spawn_blocking(move || client.close()).await;
}
