//! Waits that may have nothing to wait for.

/// What a future returns; never completes without one.
pub(crate) async fn if_any<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Completes with a future; never if that returns an error.
pub(crate) async fn if_ok<T, E>(future: impl Future<Output = Result<T, E>>) {
    let is_ok = future.await.is_ok();
    if !is_ok {
        std::future::pending::<()>().await;
    }
}
