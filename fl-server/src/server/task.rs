//! A spawned task that ends with its owner.

/// A task that does not outlive its owner.
#[derive(Debug)]
pub(super) struct Task<T>(tokio::task::JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    pub(super) fn spawn(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(future))
    }

    /// Waits until the task has finished. May be dropped and called again until then.
    pub(super) async fn finished(&mut self) -> Result<T, tokio::task::JoinError> {
        (&mut self.0).await
    }

    /// Aborts the task and waits until it has let go of everything.
    pub(super) async fn abort(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
