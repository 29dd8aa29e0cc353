//! SIGTERM and SIGINT.

use anyhow::Context as _;

/// Completes when the process is asked to stop. A second signal ends the process at once, as a kill would.
///
/// # Errors
/// If the process cannot listen for signals.
#[cfg(unix)]
pub fn stop() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        crate::service::stopping();
        tracing::info!("stopping; a second signal ends the process at once");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(1);
        });
    })
}

/// Completes when the process is asked to stop.
#[cfg(not(unix))]
pub fn stop() -> anyhow::Result<impl Future<Output = ()>> {
    Ok(async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
