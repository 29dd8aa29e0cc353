//! The one place where a client computes: jobs are done one after another on the blocking pool.

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::Error;
use crate::work::Work;

type Job = Box<dyn FnOnce(&mut Work) + Send>;

/// Hands jobs to the task that owns the work. When the last worker is dropped, that task finishes the job in hand, tidies
/// up and ends.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    jobs: mpsc::Sender<Job>,
}

impl Worker {
    /// Starts the task; its handle ends when everything is on disk.
    pub(crate) fn start(work: Work) -> (Self, JoinHandle<()>) {
        let (jobs, queue) = mpsc::channel(1);
        (Self { jobs }, tokio::spawn(own(work, queue)))
    }

    /// Does `job` and returns its result. A job that was begun is finished even if nobody waits for it any more.
    ///
    /// # Errors
    /// `Crashed` if this or an earlier job panicked.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Work) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, result) = oneshot::channel();
        let job: Job = Box::new(move |work| {
            // Nobody may be waiting any more; the job is done all the same.
            let _ = reply.send(job(work));
        });
        let crashed = || Error::Crashed("the learner panicked; what it said stands above".to_owned());
        self.jobs.send(job).await.map_err(|_| crashed())?;
        result.await.map_err(|_| crashed())
    }
}

async fn own(mut work: Work, mut queue: mpsc::Receiver<Job>) {
    while let Some(job) = queue.recv().await {
        let done = tokio::task::spawn_blocking(move || {
            job(&mut work);
            work
        });
        work = match done.await {
            Ok(work) => work,
            Err(_) => return,
        };
    }
    // Only the kept model is written here, and it may be lost.
    let _ = tokio::task::spawn_blocking(move || work.close()).await;
}
