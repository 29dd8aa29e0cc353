//! Signs of life of a running client: a socket in the state folder for `fl-client health`, and messages to the service manager.
//! Both come from the tasks that the client runs on, so that a client that hangs gives none.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use fl_cli::service;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior};

use crate::event::{Event, Verdict};
use crate::private_socket::PrivateSocket;
use crate::waits::if_any;

/// What a client answers to `fl-client health`: one line of JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Health {
    pub(super) run: Option<String>,
    /// What the client does.
    pub(super) doing: String,
}

pub(super) const MAX_ANSWER: u64 = 4096;
/// Characters of [`Health::doing`], at most: it may quote what a server said.
const MAX_DOING: usize = 400;

pub(super) fn socket(state: &Path) -> PathBuf {
    state.join("health.sock")
}

#[derive(Debug)]
pub(super) struct Pulse(watch::Sender<Health>);

impl Pulse {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(Health::default()))
    }

    pub(super) fn note(&self, event: &Event) {
        let before = self.0.borrow().run.clone();
        let (run, doing) = match event {
            Event::Connected { run, .. } => (Some(run.to_string()), format!("joined run `{run}`")),
            Event::Round { round, selected: true } => (before, format!("takes part in round {round}")),
            Event::Round { round, .. } => (before, format!("is not asked in round {round}")),
            Event::Training { round, .. } => (before, format!("trains in round {round}")),
            Event::Sending { round, .. } => (before, format!("sends its update of round {round}")),
            Event::Sent { round, verdict, .. } => {
                let answer = if *verdict == Verdict::Accepted {
                    "accepted"
                } else {
                    "refused"
                };
                (before, format!("has its update of round {round} {answer}"))
            }
            Event::Failed { message } => (before, format!("waits for the server to try again: {message}")),
            Event::Done { round } => (before, format!("has finished the run after round {round}")),
            Event::Disconnected { why, .. } => (None, format!("is not connected: {why}")),
            _ => return,
        };
        let doing: String = doing.chars().take(MAX_DOING).collect();
        match event {
            Event::Connected { .. } => service::ready(&doing),
            _ => service::status(&doing),
        }
        self.0.send_replace(Health { run, doing });
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Health> {
        self.0.subscribe()
    }
}

/// Runs a client, answers at `socket` from its first event on, and feeds the watchdog every `watchdog`. By the first event the
/// client has locked its state folder, so that a socket file found there is one that a killed client has left.
pub(super) async fn beside<T>(
    client: impl Future<Output = T>,
    mut health: watch::Receiver<Health>,
    socket: &Path,
    watchdog: Option<Duration>,
) -> T {
    let mut client = pin!(client);
    let mut ticks = watchdog.map(tokio::time::interval);
    if let Some(ticks) = &mut ticks {
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let mut listener = None;
    let mut begun = false;
    loop {
        tokio::select! {
            biased;
            ended = &mut client => return ended,
            changed = health.changed(), if !begun => {
                begun = true;
                if changed.is_ok() {
                    listener = listen(socket);
                }
            }
            stream = if_any(listener.as_ref().map(PrivateSocket::accept)) => {
                let health = health.borrow().clone();
                // On a thread of the runtime: it must work too.
                tokio::spawn(answer(stream, health));
            }
            _ = if_any(ticks.as_mut().map(Interval::tick)) => {
                tokio::spawn(async { service::alive() });
            }
        }
    }
}

/// Listens at `path`. The client works without the socket too.
fn listen(path: &Path) -> Option<PrivateSocket> {
    let listening = PrivateSocket::listen(path).inspect_err(|error| {
        let path = path.display();
        tracing::warn!("{path}: {error}; `fl-client health` will say that this client does not run");
    });
    listening.ok()
}

async fn answer(mut stream: UnixStream, health: Health) {
    let Ok(mut line) = serde_json::to_vec(&health) else {
        return;
    };
    line.push(b'\n');
    // The caller may be gone.
    let _ = stream.write_all(&line).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn connected() -> Event {
        Event::Connected {
            client: "camera-07".parse().unwrap(),
            run: "digits".parse().unwrap(),
            task: "digits".to_owned(),
            rounds: 3,
            instance: fl_compress::Digest::of(b"one"),
        }
    }

    fn disconnected(why: &str) -> Event {
        Event::Disconnected {
            why: why.to_owned(),
            retry_in: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_client_has_joined_while_it_is_connected() {
        let pulse = Pulse::new();
        let seen = pulse.subscribe();
        pulse.note(&connected());
        pulse.note(&Event::Round {
            round: 2,
            selected: true,
        });
        let health = seen.borrow().clone();
        assert_eq!(
            (health.run.as_deref(), &*health.doing),
            (Some("digits"), "takes part in round 2")
        );
        pulse.note(&disconnected(&"x".repeat(10_000)));
        let health = seen.borrow().clone();
        assert_eq!((health.run, health.doing.len()), (None, MAX_DOING));
    }

    #[tokio::test]
    async fn a_client_answers_from_its_first_event_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = socket(dir.path());
        // A killed client has left its socket.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let pulse = Pulse::new();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (health, at) = (pulse.subscribe(), path.clone());
        let client = tokio::spawn(async move { beside(stopped, health, &at, None).await });
        pulse.note(&connected());
        let mut stream = loop {
            match UnixStream::connect(&path).await {
                Ok(stream) => break stream,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let health: Health = serde_json::from_str(&text).unwrap();
        assert_eq!(health.run.as_deref(), Some("digits"));
        stop.send(()).unwrap();
        client.await.unwrap().unwrap();
        assert!(!path.exists());
    }
}
