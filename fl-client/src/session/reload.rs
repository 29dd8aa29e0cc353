//! Reads the configuration of a running client again, at SIGHUP. What cannot be read or used changes nothing.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

#[cfg(unix)]
use crate::config::ConfigReload;
use crate::config::{ClientConfig, Reload};
use crate::rpc;
use crate::waits::if_ok;

/// The configurations that were read again. Dropping it ends the listening.
#[derive(Debug)]
pub(super) struct Reloads {
    news: watch::Receiver<Option<Arc<ClientConfig>>>,
    task: Option<JoinHandle<()>>,
}

impl Reloads {
    /// Listens for SIGHUP from now on, if `config` can be read again.
    pub(super) fn start(config: &Arc<ClientConfig>) -> Self {
        let (sender, news) = watch::channel(None);
        let task = config
            .reload
            .clone()
            .and_then(|reload| listen(reload, Arc::clone(config), sender));
        Self { news, task }
    }

    /// Completes when there is a new configuration. Never without [`ClientConfig::reload`]. Cancel safe.
    pub(super) async fn changed(&mut self) -> Arc<ClientConfig> {
        loop {
            if_ok(self.news.changed()).await;
            if let Some(config) = self.news.borrow_and_update().clone() {
                return config;
            }
        }
    }
}

impl Drop for Reloads {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[cfg(unix)]
fn listen(
    reload: Reload,
    before: Arc<ClientConfig>,
    news: watch::Sender<Option<Arc<ClientConfig>>>,
) -> Option<JoinHandle<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hang_up = signal(SignalKind::hangup())
        .inspect_err(|error| tracing::warn!(%error, "cannot listen for SIGHUP"))
        .ok()?;
    Some(tokio::spawn(async move {
        while hang_up.recv().await.is_some() {
            let reload = reload.clone();
            let before = Arc::clone(&before);
            match tokio::task::spawn_blocking(move || read(&reload, &before)).await {
                Ok(Ok(config)) => {
                    news.send_replace(Some(Arc::new(config)));
                }
                Ok(Err(why)) => tracing::error!("not reloaded: the settings of before stay in use: {why}"),
                Err(error) => tracing::error!(%error, "not reloaded"),
            }
        }
    }))
}

#[cfg(not(unix))]
fn listen(_: Reload, _: Arc<ClientConfig>, _: watch::Sender<Option<Arc<ClientConfig>>>) -> Option<JoinHandle<()>> {
    None
}

#[cfg(unix)]
fn read(reload: &Reload, before: &ClientConfig) -> Result<ClientConfig, String> {
    let ConfigReload { config, ignored } = reload.read()?;
    // A certificate that cannot be used must not end the client.
    rpc::tls(&config).map_err(|error| error.to_string())?;
    if let Some(fault) = config.own_fault() {
        return Err(fault);
    }
    let named: Vec<_> = ignored.iter().map(|key| format!("`{key}`")).collect();
    match named.is_empty() {
        true => tracing::info!("client.toml and the certificates were read again"),
        false => tracing::warn!(
            "client.toml and the certificates were read again; restart the client to change {}",
            named.join(", ")
        ),
    }
    Ok(before.reloaded(config))
}
