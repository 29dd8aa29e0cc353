//! Errors of a client, by what its operator can do about them.

use std::path::{Path, PathBuf};

use fl_cli::folder::advice;

/// Why a client stopped, or why it retries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The configuration, certificate or key is unusable.
    #[error("{0}")]
    Config(String),
    /// A server whose certificate was verified does not admit the client. A retry helps once its operator changes that.
    #[error("{0}")]
    Refused(String),
    /// One side does not accept the other's certificate. Anybody on the way can say so in the server's place, and a wrong clock
    /// looks the same, so it proves nothing: a retry may help.
    #[error("{0}")]
    Unverified(String),
    /// The server cannot be reached; the client retries.
    #[error("{0}")]
    Unreachable(String),
    /// The connection broke, or the server is stopping; the client reconnects.
    #[error("{0}")]
    Broken(String),
    /// A newer connection with this client's certificate has taken over; the client reconnects after a growing wait.
    #[error("{0}")]
    Displaced(String),
    /// The call is right but too early or too late: the client waits for the next state of the run.
    #[error("not now: {0}")]
    NotNow(String),
    /// The server runs a task that this client has no learner for; it may run another one later.
    #[error("{0}")]
    OtherTask(String),
    /// The server violates the protocol, or reports that the client does.
    #[error("{0}")]
    Protocol(String),
    /// The client's state on disk cannot be read or written.
    #[error("{}: {why}", path.display())]
    State {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong and what to do.
        why: String,
    },
    /// The learner cannot be built, has another model than the run, or failed.
    #[error("learner: {0}")]
    Learner(String),
    /// A part of the client panicked; a restart is safe.
    #[error("{0}")]
    Crashed(String),
    /// The server could not be reached for as long as the configuration allows.
    #[error("gave up: {0}")]
    GaveUp(String),
}

impl Error {
    /// Whether reconnecting soon may help.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_) | Self::Broken(_) | Self::Displaced(_) | Self::NotNow(_)
        )
    }

    /// Whether reconnecting helps only after somebody changed something at the server or on the way to it.
    pub fn needs_a_person(&self) -> bool {
        matches!(
            self,
            Self::Refused(_) | Self::Unverified(_) | Self::Protocol(_) | Self::OtherTask(_)
        )
    }

    /// Whether the connection is not of use any more.
    pub(crate) fn is_connection(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Broken(_) | Self::Displaced(_))
    }

    pub(crate) fn state(path: &Path, why: impl Into<String>) -> Self {
        Self::State {
            path: path.to_owned(),
            why: why.into(),
        }
    }

    pub(crate) fn learner_panicked() -> Self {
        Self::Crashed("the learner panicked; its message is in the log above".to_owned())
    }

    pub(crate) fn io(path: &Path, doing: &str, error: &std::io::Error) -> Self {
        let hint = match (advice(path, error.kind()), error.kind()) {
            (space, std::io::ErrorKind::StorageFull) => {
                format!("; {space} and start the client again, nothing is lost")
            }
            (advice, _) if advice.is_empty() => advice,
            (advice, _) => format!("; {advice}"),
        };
        Self::state(path, format!("cannot {doing}: {error}{hint}"))
    }
}

impl From<fl_proto::ProtocolError> for Error {
    fn from(error: fl_proto::ProtocolError) -> Self {
        Self::Protocol(format!("the server sent a message that breaks the protocol: {error}"))
    }
}
