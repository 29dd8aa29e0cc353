//! Which settings a running server takes over when server.toml is read again, and which take a restart.

use std::path::PathBuf;
use std::time::Duration;

use fl_report::CostsPlan;

use crate::config::server::{ServerConfig, Tuning};

/// Every key of two values of a type, what its change takes, and whether it differs. A key that is in no list does not compile.
macro_rules! changes {
    ($type:ident { $one:expr, $other:expr } Restart: $($restart:ident)*; Effect: $($effect:ident)*; but: $($but:ident)?) => {{
        let $type { $($restart: _,)* $($effect: _,)* $($but: _)? } = $one;
        vec![
            $((stringify!($restart), Takes::Restart, $one.$restart != $other.$restart),)*
            $((stringify!($effect), Takes::Effect, $one.$effect != $other.$effect),)*
        ]
    }};
}

#[derive(Debug, Clone, PartialEq)]
pub struct LiveSettings {
    /// Some of these take a restart: a running server leaves them as they are.
    pub tuning: Tuning,
    /// Where enrolled devices reach the server: `host:port`, or `:port` for the host at which the device enrolled. Empty: the port
    /// of the listener.
    pub server: String,
    pub lifetime: Duration,
    pub authority: PathBuf,
    /// The server's certificate and key, if the server renews them.
    pub own: Option<OwnPaths>,
    pub costs: Option<CostsPlan>,
    /// The token of a page that other machines can reach; `None`: the one that the page was started with.
    pub token: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnPaths {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Whether the admin page uses the same files.
    pub page: bool,
}

impl LiveSettings {
    /// These settings in a server that ran with `before`.
    #[must_use]
    pub(crate) fn after(self, before: &Self) -> Self {
        let tuning = Tuning {
            keep_updates: before.tuning.keep_updates,
            checkpoint_every: before.tuning.checkpoint_every,
            verify_at_once: before.tuning.verify_at_once,
            transfers_at_once: before.tuning.transfers_at_once,
            calls_per_client: before.tuning.calls_per_client,
            ping_every: before.tuning.ping_every,
            ..self.tuning
        };
        Self { tuning, ..self }
    }
}

/// What a changed key of server.toml takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Nothing more: the running server has taken it over.
    Effect,
    Restart,
}

impl ServerConfig {
    /// Keys whose values differ in `other` and take this.
    pub(crate) fn changed_keys(&self, other: &Self, takes: Takes) -> Vec<&'static str> {
        let keys = self
            .changes(other)
            .into_iter()
            .chain(self.tuning.changes(&other.tuning));
        keys.filter_map(|(key, what, changed)| (changed && what == takes).then_some(key))
            .collect()
    }

    /// Every key of the server but those of [`Tuning`], what its change takes, and whether it differs in `other`.
    fn changes(&self, other: &Self) -> Vec<(&'static str, Takes, bool)> {
        changes!(ServerConfig { self, other }
            Restart: listen enroll admin data authority_key revoked otlp;
            Effect: address certificate_days admin_token admin_certificate admin_key authority certificate key costs;
            but: tuning)
    }
}

impl Tuning {
    /// Every key, what its change takes, and whether it differs in `other`.
    fn changes(&self, other: &Self) -> Vec<(&'static str, Takes, bool)> {
        // Memory is planned with `verify_at_once`, `transfers_at_once` and `calls_per_client`: places for frames, and streams of a
        // connection. `ping_every` is part of the listening server, and of what clients were told.
        changes!(Tuning { self, other }
            Restart: keep_updates checkpoint_every verify_at_once transfers_at_once calls_per_client ping_every;
            Effect: stall proxy_protocol least_rate connections connections_per_client handshakes handshakes_per_address
                handshake_timeout call_rate enroll_connections enroll_connections_per_address enroll_timeout enroll_rate idle
                stop_within;
            but:)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> ServerConfig {
        ServerConfig::from_toml(text, Path::new("")).unwrap()
    }

    #[test]
    fn changed_keys_are_named_by_what_they_take() {
        let other =
            config("listen = \"127.0.0.1:1\"\nidle = \"5s\"\nconnections = 3\nstall = \"9s\"\nverify_at_once = 9");
        let changed = |takes| config("").changed_keys(&other, takes);
        assert_eq!(changed(Takes::Restart), ["listen", "verify_at_once"]);
        assert_eq!(changed(Takes::Effect), ["stall", "connections", "idle"]);
    }

    #[test]
    fn what_takes_a_restart_stays_as_it_was() {
        let settings = |tuning| LiveSettings {
            tuning,
            server: String::new(),
            lifetime: Duration::ZERO,
            authority: PathBuf::new(),
            own: None,
            costs: None,
            token: None,
        };
        // Every key of `Tuning` changed.
        let other = Tuning {
            keep_updates: true,
            checkpoint_every: 7,
            verify_at_once: 7,
            transfers_at_once: 7,
            stall: Duration::from_secs(7),
            least_rate: 7,
            connections: 7,
            connections_per_client: 7,
            handshakes: 7,
            handshakes_per_address: 7,
            proxy_protocol: true,
            handshake_timeout: Duration::from_secs(7),
            calls_per_client: 7,
            call_rate: 7,
            enroll_connections: 7,
            enroll_connections_per_address: 7,
            enroll_timeout: Duration::from_secs(7),
            enroll_rate: 7,
            idle: Duration::from_secs(7),
            ping_every: Duration::from_secs(7),
            stop_within: Duration::from_secs(7),
        };
        let before = Tuning::default();
        let after = settings(other).after(&settings(before)).tuning;
        for (key, takes, _) in before.changes(&other) {
            let changed = before
                .changes(&after)
                .iter()
                .any(|(of, _, changed)| *of == key && *changed);
            assert_eq!(changed, takes == Takes::Effect, "{key}");
        }
    }

    /// The reference page has its column from the same sentence.
    #[test]
    fn the_commented_file_says_which_keys_take_a_restart() {
        let text = include_str!("../../../configs/server.toml");
        let (mut said, mut comment, mut in_keys) = (BTreeSet::new(), String::new(), false);
        for line in text.lines() {
            let bare = line.strip_prefix('#').unwrap_or(line);
            let key = bare.split_once(" = ").filter(|_| !bare.starts_with(' '));
            if key.is_none() && std::mem::take(&mut in_keys) {
                comment.clear();
            }
            match key {
                Some((key, _)) => {
                    in_keys = true;
                    if comment.contains("Takes a restart.") {
                        said.insert(key.to_owned());
                    }
                }
                None => comment.push_str(bare),
            }
        }
        let plain = config("");
        let keys = plain
            .changes(&plain)
            .into_iter()
            .chain(plain.tuning.changes(&plain.tuning));
        let expected = keys
            .filter(|(_, takes, _)| *takes == Takes::Restart)
            .map(|(key, ..)| key.to_owned());
        assert_eq!(said, expected.collect());
    }
}
