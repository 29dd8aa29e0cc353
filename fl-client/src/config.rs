//! What a client needs to take part: the server's address, its certificate, and its state folder.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fl_proto::trace::Collector;
use fl_proto::{Answered, ClientId, Issued, Meter, Role, certificates_of, expiry, peer_name, peer_role};
use time::OffsetDateTime;
use tokio::sync::Semaphore;

use crate::conditions::When;
use crate::error::Error;
use crate::identity::{IdentityFiles, newest, own_fault};
use crate::limits::Limits;

/// Deployment facts of one client. What is trained, and how, is part of the server's run.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// `host:port` of the server.
    pub server: String,
    /// Certificate of the federation's authority, PEM.
    pub authority: String,
    /// The client's certificate and key, PEM.
    pub own: Issued,
    /// The time of day, which says when the certificate is to be renewed.
    pub clock: fn() -> OffsetDateTime,
    /// Where certificate and key come from, if they are files: the client renews them there.
    pub identity: Option<IdentityFiles>,
    /// Folder of the client's state. Created if missing; one client at a time may use it.
    pub state: PathBuf,
    /// Folder in which the frozen tensors of a model are looked for; `None`: only in the state folder.
    pub models: Option<PathBuf>,
    /// Whether the state survives a power loss (fsync). Without, it survives the death of the process.
    pub sync: bool,
    /// The model is written to disk every so many versions, which saves a download after a restart; 0: only at a graceful stop. It is
    /// also written once a restart would fetch a quarter of its size again, and more than 128 KiB.
    pub keep_model_every: u64,
    /// Largest frame of an update in bytes, whatever the run and the server ask for; `None`: no limit.
    pub max_update_bytes: Option<u64>,
    /// Back-off between attempts to connect.
    pub backoff: Backoff,
    /// Give up after so long without a server; `None`: never.
    pub give_up_after: Option<Duration>,
    /// Whether to return when the run is over; otherwise the client waits for the next run.
    pub exit_when_done: bool,
    /// Permits for training, shared by the clients of one process.
    pub gate: Arc<Semaphore>,
    /// Counts the bytes on the client's sockets.
    pub meter: Arc<Meter>,
    /// The server that answered last.
    pub answered: Answered,
    /// Where learners compute, for the server's list of clients.
    pub device: String,
    /// Where traces of rounds are sent; `None`: nowhere.
    pub otlp: Option<Collector>,
    /// The conditions under which the client trains.
    pub when: When,
    /// What the client may take from its device.
    pub limits: Limits,
    /// Reads this configuration again at SIGHUP; `None`: SIGHUP is not listened for.
    pub reload: Option<Reload>,
}

impl ClientConfig {
    /// The defaults, with the facts that have no default.
    pub fn new(
        server: impl Into<String>,
        authority: impl Into<String>,
        own: Issued,
        state: impl Into<PathBuf>,
    ) -> Self {
        Self {
            server: server.into(),
            authority: authority.into(),
            own,
            clock: OffsetDateTime::now_utc,
            identity: None,
            state: state.into(),
            models: None,
            sync: true,
            keep_model_every: 10,
            max_update_bytes: None,
            backoff: Backoff::default(),
            give_up_after: None,
            exit_when_done: true,
            gate: Arc::new(Semaphore::new(1)),
            meter: Arc::new(Meter::default()),
            answered: Answered::default(),
            device: String::new(),
            otlp: None,
            when: When::default(),
            limits: Limits::default(),
            reload: None,
        }
    }
}

/// Expiry of the client's certificate.
///
/// # Errors
/// `Config` if the authority's certificate or the client's own cannot be parsed.
pub fn check_certificates(config: &ClientConfig) -> Result<OffsetDateTime, Error> {
    expiry(&config.authority).map_err(|e| Error::Config(format!("`authority`: {e}")))?;
    expiry(&config.own.certificate).map_err(|e| Error::Config(format!("`certificate`: {e}")))
}

impl ClientConfig {
    /// This configuration with the newest certificate and key on disk, and the authorities there.
    pub(crate) fn with_newest_identity(&self) -> Result<Self, Error> {
        let Some(files) = &self.identity else {
            return Ok(self.clone());
        };
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| Error::io(path, "read", &error));
        Ok(Self {
            authority: read(&files.authority)?,
            own: newest(&files.certificate, &files.key, read)?,
            ..self.clone()
        })
    }

    /// This configuration with what a running client takes over from `new`: the server, certificates, `max_update_bytes`,
    /// `give_up_after_s`, `[when]`, and `[limits]` but those of the process.
    #[must_use]
    pub fn reloaded(&self, new: Self) -> Self {
        Self {
            server: new.server,
            authority: new.authority,
            own: new.own,
            identity: new.identity,
            max_update_bytes: new.max_update_bytes,
            give_up_after: new.give_up_after,
            when: When {
                surroundings: self.when.surroundings.clone(),
                ..new.when
            },
            limits: Limits {
                cpus: self.limits.cpus,
                nice: self.limits.nice,
                ..new.limits
            },
            ..self.clone()
        }
    }

    pub(crate) fn name(&self) -> Option<ClientId> {
        let der = certificates_of(&self.own.certificate).ok()?;
        der.first().and_then(|der| peer_name(der).ok())
    }

    /// The role in the client's own certificate; [`Role::Client`] if it cannot be read.
    pub(crate) fn role(&self) -> Role {
        let der = certificates_of(&self.own.certificate).unwrap_or_default();
        der.first().and_then(|der| peer_role(der).ok()).unwrap_or_default()
    }

    /// An evident fault of the client's own certificate, as the end of a sentence. `None` does not mean that the certificate is
    /// valid: only the server can decide that.
    pub(crate) fn own_fault(&self) -> Option<String> {
        own_fault(&self.own, &self.authority, (self.clock)())
    }
}

/// Reads the configuration again; a sentence says why it cannot be.
#[derive(Clone)]
pub struct Reload(Arc<ReadAgain>);

type ReadAgain = dyn Fn() -> Result<ConfigReload, String> + Send + Sync;

/// What was read again.
#[derive(Debug, Clone)]
pub struct ConfigReload {
    /// The configuration. What [`ClientConfig::reloaded`] does not take of it stays as it was.
    pub config: ClientConfig,
    /// Keys that changed and cannot change while the client runs.
    pub ignored: Vec<&'static str>,
}

impl Reload {
    /// `read` may block.
    pub fn new(read: impl Fn() -> Result<ConfigReload, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Reads the configuration. May block.
    pub(crate) fn read(&self) -> Result<ConfigReload, String> {
        (self.0)()
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reload")
    }
}

pub(crate) fn check_address(server: &str) -> Result<(), String> {
    let good = server.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains(['/', ' ']) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if good {
        Ok(())
    } else {
        Err(format!(
            "`server`: `{server}` is not host:port, such as 192.168.1.5:7070"
        ))
    }
}

/// Exponential back-off between attempts to connect: the wait doubles from `first` to `max`, and each wait is shortened by up
/// to a half, so that clients that lost the same server do not return at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// The longest wait.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(250),
            max: Duration::from_secs(30),
        }
    }
}

impl Backoff {
    /// The wait before attempt `attempt` (from 0) of the client `who`. The same arguments give the same wait.
    pub(crate) fn wait(&self, who: &str, attempt: u32) -> Duration {
        let full = self
            .first
            .saturating_mul(1u32.checked_shl(attempt.min(31)).unwrap_or(u32::MAX))
            .min(self.max);
        shortened(full, &format!("wait {who} {attempt}"))
    }

    /// The wait of the client `who` after the server answered and had nothing for it to do, for the `times`-th time in a row. It
    /// doubles from `max` to [`IDLE`] times `max`, so that an operator who has just waited as long does not notice it. The same for
    /// what only a person can mend.
    pub(crate) fn idle_wait(&self, who: &str, times: u32) -> Duration {
        let factor = 1u32.checked_shl(times.saturating_sub(1)).unwrap_or(IDLE).min(IDLE);
        shortened(self.max.saturating_mul(factor), &format!("idle {who} {times}"))
    }

    /// The wait of the client `who` after the server refused it, for the `times`-th time in a row: [`REFUSED`] times `max`.
    pub(crate) fn refused_wait(&self, who: &str, times: u32) -> Duration {
        shortened(self.max.saturating_mul(REFUSED), &format!("refused {who} {times}"))
    }
}

/// The wait for a server to admit a client again, as a multiple of the longest wait for a server: an hour by default.
const REFUSED: u32 = 120;

/// The longest wait for work, as a multiple of the longest wait for a server.
const IDLE: u32 = 20;

/// A wait, shortened by up to a half as `seed` says.
fn shortened(full: Duration, seed: &str) -> Duration {
    let draw = fl_compress::Digest::of(seed.as_bytes()).short();
    full.mul_f64(0.5 + 0.5 * (draw >> 11) as f64 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_longest_and_differ_between_clients() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            max: Duration::from_secs(2),
        };
        for attempt in 0..40 {
            let full = Duration::from_millis(100)
                .saturating_mul(1 << attempt.min(20))
                .min(backoff.max);
            let wait = backoff.wait("a", attempt);
            assert!(wait >= full / 2 && wait <= full, "{attempt}: {wait:?}");
            assert_eq!(wait, backoff.wait("a", attempt));
        }
        assert_ne!(backoff.wait("a", 9), backoff.wait("b", 9));
    }

    #[test]
    fn waits_for_work_grow_to_ten_minutes() {
        let backoff = Backoff::default();
        for (times, most) in [(1, 30), (2, 60), (3, 120), (5, 480), (6, 600), (u32::MAX, 600)] {
            let (wait, most) = (backoff.idle_wait("a", times), Duration::from_secs(most));
            assert!(wait >= most / 2 && wait <= most, "{times}: {wait:?}");
        }
    }
}
