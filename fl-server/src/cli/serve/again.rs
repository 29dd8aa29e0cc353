//! What `serve` takes from server.toml when the file is read again.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use crate::cli::failure::Failure;
use crate::cli::source::{self, Certificates};
use crate::config::live::{LiveSettings, OwnPaths, Takes};
use crate::config::server::ServerConfig;
use crate::lock::lock;
use crate::rpc::reload::{Reload, ServerFiles};

/// Reads `server` again, whenever it is asked to. `lifetime`: of renewed certificates in milliseconds, in place of the file's.
pub(super) fn reload(server: PathBuf, config: &ServerConfig, lifetime: Option<u64>) -> Reload {
    let started = config.clone();
    let last = Mutex::new(config.clone());
    Reload::new(move || {
        let mut last = lock(&last);
        let read = read(&server, &started, &last, lifetime);
        let (reloaded, config) = read.map_err(|failure: Failure| fl_cli::exit::chain(failure.error()))?;
        *last = config;
        Ok(reloaded)
    })
}

fn read(
    server: &Path,
    started: &ServerConfig,
    last: &ServerConfig,
    lifetime: Option<u64>,
) -> Result<(ServerFiles, ServerConfig), Failure> {
    let config = source::config(server)?;
    let Certificates { authority, own } = source::certificates(&config)?;
    // The page stays where it is.
    let page = started
        .admin
        .map(|address| source::page(&config, address))
        .transpose()?;
    let (token, page) = page.unzip();
    let reloaded = ServerFiles {
        authority,
        own,
        page: page.filter(|own| !own.certificate.is_empty()),
        settings: LiveSettings {
            tuning: config.tuning,
            server: self::server(&config),
            lifetime: self::lifetime(&config, lifetime),
            authority: config.authority.clone(),
            own: Some(own_paths(&config)),
            costs: config.costs.clone(),
            token: token.flatten(),
        },
        changed: last.changed_keys(&config, Takes::Effect),
        ignored: started.changed_keys(&config, Takes::Restart),
    };
    Ok((reloaded, config))
}

/// Where enrolled devices reach the server.
pub(super) fn server(config: &ServerConfig) -> String {
    if config.address.contains(':') {
        config.address.clone()
    } else {
        String::new()
    }
}

pub(super) fn lifetime(config: &ServerConfig, instead: Option<u64>) -> Duration {
    let days = Duration::from_secs(u64::from(config.certificate_days) * 24 * 3600);
    instead.map_or(days, Duration::from_millis)
}

pub(super) fn own_paths(config: &ServerConfig) -> OwnPaths {
    OwnPaths {
        certificate: config.certificate.clone(),
        key: config.key.clone(),
        page: (&config.admin_certificate, &config.admin_key) == (&config.certificate, &config.key),
    }
}
