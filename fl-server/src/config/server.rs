//! `server.toml`: settings of one deployment. The experiment is in `run.toml`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fl_proto::trace::{Collector, collector};
use fl_report::CostsPlan;
use serde::Deserialize;

pub use crate::config::tuning::Tuning;

/// Settings of a server: paths are resolved against the file's folder, numbers are in range.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    /// Host, or `host:port`, at which clients reach the server; empty: the address of `listen`.
    pub address: String,
    /// Address and port at which devices enroll while a token is open; `None`: nowhere.
    pub enroll: Option<SocketAddr>,
    /// Validity of certificates that the server issues, in days.
    pub certificate_days: u16,
    /// Address and port of the page of the run; `None` for none.
    pub admin: Option<SocketAddr>,
    /// File of the page's token, required if other machines can reach the page.
    pub admin_token: PathBuf,
    pub admin_certificate: PathBuf,
    pub admin_key: PathBuf,
    /// Folder of the store, the blobs and the admin socket.
    pub data: PathBuf,
    /// The federation's authority certificate.
    pub authority: PathBuf,
    /// The authority's key, which signs certificates. May be missing: nothing is signed on this machine then.
    pub authority_key: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Revoked clients: a file with one in each line, or a folder with a file for each. May be missing.
    pub revoked: PathBuf,
    pub tuning: Tuning,
    /// Where traces of rounds are sent, if anywhere.
    pub otlp: Option<Collector>,
    pub costs: Option<CostsPlan>,
}

/// Concurrent connections, at most.
pub(crate) const PAGE_CONNECTIONS: usize = 64;
/// Of these, streams of live data, at most: `/metrics` is always answered.
pub(crate) const PAGE_STREAMS: usize = 48;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not TOML, an unknown key, or a value of another type.
    #[error("{0}")]
    Syntax(String),
    #[error("[costs]: {0}")]
    Costs(String),
    #[error("`{key}` is {value}, but {rule}")]
    Value {
        key: &'static str,
        value: String,
        rule: String,
    },
}

impl ServerConfig {
    /// Reads the text of a `server.toml` in the folder `base`.
    ///
    /// # Errors
    /// `Syntax` and `Value`, naming the key, its value and the rule.
    pub fn from_toml(text: &str, base: &Path) -> Result<Self, ConfigError> {
        let raw: Raw = toml::from_str(text).map_err(|e| ConfigError::Syntax(e.to_string().trim_end().to_owned()))?;
        raw.resolve(base)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    listen: String,
    address: String,
    enroll: String,
    certificate_days: u64,
    admin: String,
    admin_token: PathBuf,
    admin_certificate: PathBuf,
    admin_key: PathBuf,
    data: PathBuf,
    authority: PathBuf,
    authority_key: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    revoked: PathBuf,
    keep_updates: bool,
    checkpoint_every: u64,
    verify_at_once: usize,
    transfers_at_once: usize,
    stall: String,
    least_rate: u64,
    connections: u64,
    connections_per_client: u64,
    handshakes: u64,
    handshakes_per_address: u64,
    proxy_protocol: bool,
    handshake_timeout: String,
    calls_per_client: u64,
    call_rate: u64,
    enroll_connections: u64,
    enroll_connections_per_address: u64,
    enroll_timeout: String,
    enroll_rate: u64,
    idle: String,
    ping_every: String,
    stop_within: String,
    otlp: String,
    costs: toml::Table,
}

impl Default for Raw {
    fn default() -> Self {
        let tuning = Tuning::default();
        Self {
            listen: "127.0.0.1:7070".into(),
            address: String::new(),
            enroll: "127.0.0.1:7072".into(),
            certificate_days: 30,
            admin: "127.0.0.1:7071".into(),
            admin_token: "admin.token".into(),
            admin_certificate: "server.pem".into(),
            admin_key: "server.key".into(),
            data: "data".into(),
            authority: "authority.pem".into(),
            authority_key: "authority.key".into(),
            certificate: "server.pem".into(),
            key: "server.key".into(),
            revoked: "revoked".into(),
            keep_updates: tuning.keep_updates,
            checkpoint_every: tuning.checkpoint_every,
            verify_at_once: tuning.verify_at_once,
            transfers_at_once: tuning.transfers_at_once,
            stall: "30s".into(),
            least_rate: tuning.least_rate,
            connections: tuning.connections as u64,
            connections_per_client: tuning.connections_per_client as u64,
            handshakes: tuning.handshakes as u64,
            handshakes_per_address: tuning.handshakes_per_address as u64,
            proxy_protocol: tuning.proxy_protocol,
            handshake_timeout: "10s".into(),
            calls_per_client: tuning.calls_per_client as u64,
            call_rate: tuning.call_rate.into(),
            enroll_connections: tuning.enroll_connections as u64,
            enroll_connections_per_address: tuning.enroll_connections_per_address as u64,
            enroll_timeout: "20s".into(),
            enroll_rate: tuning.enroll_rate.into(),
            idle: "60s".into(),
            ping_every: "25s".into(),
            stop_within: "5s".into(),
            otlp: "off".into(),
            costs: toml::Table::new(),
        }
    }
}

impl Raw {
    fn resolve(self, base: &Path) -> Result<ServerConfig, ConfigError> {
        let rule = format!("{ADDRESS} \"0.0.0.0:7070\"");
        let listen: SocketAddr = self.listen.parse().map_err(|_| refused("listen", &self.listen, rule))?;
        let admin = optional_address("admin", &self.admin, "127.0.0.1:7071")?;
        let enroll = optional_address("enroll", &self.enroll, "0.0.0.0:7072")?;
        for (key, address) in [("admin", admin), ("enroll", enroll)] {
            if let Some(address) = address.filter(|address: &SocketAddr| *address == listen && address.port() != 0) {
                let rule = "that is `listen`: each needs a port of its own";
                return Err(refused(key, &address.to_string(), rule));
            }
        }
        let address = self.address.as_str();
        let is_plain = address
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ".-_:[]".contains(c));
        // Colons without brackets are a bare IPv6 address.
        let split = address.rsplit_once(':');
        let port = split.filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
        let has_no_port = port.is_some_and(|(_, port)| port.parse::<u16>().is_err());
        if address.len() > 255 || !is_plain || has_no_port {
            let rule = "it must be a host or host:port, such as \"fl.example.org\"";
            return Err(refused("address", address, rule));
        }
        let tuning = Tuning {
            keep_updates: self.keep_updates,
            checkpoint_every: within("checkpoint_every", self.checkpoint_every, 1..=100_000)?,
            verify_at_once: within("verify_at_once", self.verify_at_once as u64, 1..=256)? as usize,
            transfers_at_once: within("transfers_at_once", self.transfers_at_once as u64, 1..=10_000)? as usize,
            stall: duration("stall", &self.stall)?,
            least_rate: within("least_rate", self.least_rate, 1..=1_000_000_000)?,
            connections: within("connections", self.connections, 1..=1_000_000)? as usize,
            connections_per_client: within("connections_per_client", self.connections_per_client, 1..=1_000)? as usize,
            handshakes: within("handshakes", self.handshakes, 1..=100_000)? as usize,
            handshakes_per_address: within("handshakes_per_address", self.handshakes_per_address, 1..=100_000)?
                as usize,
            proxy_protocol: self.proxy_protocol,
            handshake_timeout: duration("handshake_timeout", &self.handshake_timeout)?,
            calls_per_client: within("calls_per_client", self.calls_per_client, 4..=1_000)? as usize,
            call_rate: within("call_rate", self.call_rate, 1..=1_000_000)? as u32,
            enroll_connections: within("enroll_connections", self.enroll_connections, 1..=10_000)? as usize,
            enroll_connections_per_address: within(
                "enroll_connections_per_address",
                self.enroll_connections_per_address,
                1..=10_000,
            )? as usize,
            enroll_timeout: duration("enroll_timeout", &self.enroll_timeout)?,
            enroll_rate: within("enroll_rate", self.enroll_rate, 1..=1_000_000)? as u32,
            idle: duration("idle", &self.idle)?,
            ping_every: ping_every(&self.ping_every)?,
            stop_within: duration("stop_within", &self.stop_within)?,
        };
        let otlp = collector(&self.otlp).map_err(|rule| refused("otlp", &self.otlp, rule))?;
        let costs = CostsPlan::from_table(&self.costs).map_err(|e| ConfigError::Costs(e.to_string()))?;
        Ok(ServerConfig {
            listen,
            address: self.address,
            enroll,
            certificate_days: within("certificate_days", self.certificate_days, 1..=3650)? as u16,
            admin,
            admin_token: base.join(self.admin_token),
            admin_certificate: base.join(self.admin_certificate),
            admin_key: base.join(self.admin_key),
            data: base.join(self.data),
            authority: base.join(self.authority),
            authority_key: base.join(self.authority_key),
            certificate: base.join(self.certificate),
            key: base.join(self.key),
            revoked: base.join(self.revoked),
            tuning,
            otlp,
            costs: Some(costs).filter(|plan| !plan.is_free()),
        })
    }
}

const ADDRESS: &str = "it must be an IP address and a port, such as";

fn optional_address(key: &'static str, text: &str, example: &str) -> Result<Option<SocketAddr>, ConfigError> {
    if text == "off" {
        return Ok(None);
    }
    let rule = format!("{ADDRESS} \"{example}\", or \"off\"");
    text.parse().map(Some).map_err(|_| refused(key, text, rule))
}

fn within(key: &'static str, value: u64, range: std::ops::RangeInclusive<u64>) -> Result<u64, ConfigError> {
    if range.contains(&value) {
        return Ok(value);
    }
    let rule = format!("it must be {} to {}", range.start(), range.end());
    let value = value.to_string();
    Err(ConfigError::Value { key, value, rule })
}

/// A duration of 1 ms to a day.
fn duration(key: &'static str, text: &str) -> Result<Duration, ConfigError> {
    let rule = "it must be a duration of 1ms to 24h, such as \"30s\", \"250ms\" or \"5min\"";
    let millis = fl_compress::duration::millis(text).filter(|millis| (1..=86_400_000).contains(millis));
    millis
        .map(Duration::from_millis)
        .ok_or_else(|| refused(key, text, rule))
}

/// How often clients are pinged: often enough that routers keep the connection, and rarely enough to cost little.
fn ping_every(text: &str) -> Result<Duration, ConfigError> {
    let range = Duration::from_millis(100)..=fl_proto::MAX_PING_EVERY;
    let rule = "it must be a duration of 100ms to 10min, such as \"60s\"";
    let every = fl_compress::duration::millis(text).map(Duration::from_millis);
    every
        .filter(|every| range.contains(every))
        .ok_or_else(|| refused("ping_every", text, rule))
}

fn refused(key: &'static str, text: &str, rule: impl Into<String>) -> ConfigError {
    ConfigError::Value {
        key,
        value: format!("\"{text}\""),
        rule: rule.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        ServerConfig::from_toml(text, Path::new("fed")).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_is_the_defaults_beside_the_file() {
        let config = ServerConfig::from_toml("", Path::new("fed")).unwrap();
        assert_eq!(config.listen, "127.0.0.1:7070".parse().unwrap());
        assert_eq!(config.data, Path::new("fed/data"));
        assert_eq!(config.tuning, Tuning::default());
    }

    #[test]
    fn the_commented_file_lists_every_key_at_its_default() {
        let text = include_str!("../../../configs/server.toml");
        let plain = ServerConfig::from_toml(text, Path::new("x")).unwrap();
        let bare: String = text
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .filter(|l| l.contains(" = "))
            .fold(String::new(), |all, line| all + line.trim() + "\n");
        let listed = ServerConfig::from_toml(&bare, Path::new("x")).unwrap();
        assert_eq!(plain, ServerConfig::from_toml("", Path::new("x")).unwrap());
        assert_eq!(listed, plain);
        assert_eq!(bare.lines().count(), 41, "{bare}");
    }

    #[test]
    fn errors_name_key_value_and_rule() {
        assert!(refused("speed = 3").contains("unknown field `speed`"));
        assert!(refused("verify_at_once = 0").contains("`verify_at_once` is 0, but it must be 1 to 256"));
        assert!(refused("connections = 0").contains("`connections` is 0, but it must be 1 to 1000000"));
        assert!(refused("calls_per_client = 3").contains("`calls_per_client` is 3, but it must be 4 to 1000"));
        assert!(refused("enroll_rate = 0").contains("`enroll_rate` is 0, but it must be 1 to 1000000"));
        for every in ["99ms", "11min", "0s", "often"] {
            assert!(
                refused(&format!("ping_every = \"{every}\"")).contains("100ms to 10min"),
                "{every}"
            );
        }
        assert!(refused("handshake_timeout = \"0s\"").contains("`handshake_timeout`"));
        assert!(refused("stall = \"soon\"").contains("`stall` is \"soon\""));
        assert!(refused("stall = \"99999999999999999999h\"").contains("`stall`"));
        assert!(refused("listen = \"localhost\"").contains("`listen`"));
        assert!(refused("admin = \"yes\"").contains("`admin` is \"yes\""));
        assert!(refused("enroll = \"7072\"").contains("`enroll` is \"7072\", but it must be an IP address and a port"));
        assert!(refused("address = \"http://a/\"").contains("`address`"));
        for address in ["x:99999", "x:", "[::1]:port"] {
            assert!(
                refused(&format!("address = \"{address}\"")).contains("host:port"),
                "{address}"
            );
        }
        for address in ["x", "x:1", "2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:1"] {
            let text = format!("address = \"{address}\"");
            assert!(ServerConfig::from_toml(&text, Path::new("")).is_ok(), "{address}");
        }
        for key in ["admin", "enroll"] {
            let text = format!("listen = \"127.0.0.1:7500\"\n{key} = \"127.0.0.1:7500\"");
            assert!(refused(&text).contains(&format!("`{key}` is \"127.0.0.1:7500\", but that is `listen`")));
        }
        assert!(refused("certificate_days = 0").contains("`certificate_days` is 0"));
        assert_eq!(
            ServerConfig::from_toml("admin = \"off\"", Path::new("")).unwrap().admin,
            None
        );
        let costs = ServerConfig::from_toml("[costs.link]\nprice_per_gb_up = 2", Path::new(""))
            .unwrap()
            .costs;
        assert_eq!(costs.map(|plan| plan.default.price_per_gb_up), Some(2.0));
        assert!(refused("[costs.link]\nkwh_per_gb = -1").contains("[costs]: `link.kwh_per_gb` is -1, but it must be"));
        assert!(refused("[costs]\nprice = 1").contains("[costs]: ") && refused("costs = 1").contains("costs"));
        assert!(refused("otlp = \"here:1\"").contains("`otlp` is \"here:1\", but it must be \"off\", or"));
        assert!(refused("checkpoint_every = -1").contains("checkpoint_every"));
    }

    #[test]
    fn absolute_paths_stay() {
        let config = ServerConfig::from_toml("data = \"/var/lib/fl\"", Path::new("/etc/fl")).unwrap();
        assert_eq!(config.data, Path::new("/var/lib/fl"));
    }
}
