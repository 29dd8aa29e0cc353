//! The task that owns the registry while a server runs.

use std::path::PathBuf;
use std::sync::Arc;

use fl_proto::{ClientId, Enrolled, Lifetime, SignedCertificate, SigningRequest, peer_name};
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::{Millis, Wall};
use crate::config::live::LiveSettings;
use crate::registry::Registry;
use crate::registry::ask::{RegistryAnswer, RegistryAsk};
use crate::registry::credential::Credential;
use crate::registry::enroll::EnrollmentRequest;
use crate::registry::refusal::Refusal;
use crate::registry::seen::Joining;
use crate::registry::signer::Signer;
use crate::registry::standing::Standings;

/// Requests that wait for the registry, at most.
const QUEUE: usize = 256;

#[derive(Debug)]
enum Request {
    Enroll(EnrollmentRequest, oneshot::Sender<Result<Enrolled, Refusal>>),
    Renew(
        Arc<Credential>,
        SigningRequest,
        oneshot::Sender<Result<SignedCertificate, Refusal>>,
    ),
    Ask(RegistryAsk, oneshot::Sender<Result<RegistryAnswer, String>>),
    Joined(Joining),
    Rejected(ClientId, String),
    Refresh(oneshot::Sender<()>),
    Ending(oneshot::Sender<Vec<(ClientId, Lifetime)>>),
}

/// Certificates of clients that are shown, at most: those that end first.
const SHOWN: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) live: watch::Receiver<Arc<LiveSettings>>,
    pub(crate) key: PathBuf,
    /// Port of the server, for devices that are told no other address.
    pub(crate) port: u16,
    pub(crate) clock: Wall,
}

impl Settings {
    fn signer(&self) -> Signer {
        Signer {
            authority: self.live.borrow().authority.clone(),
            key: self.key.clone(),
        }
    }

    /// Validity of renewed certificates, in milliseconds.
    fn lifetime(&self) -> Millis {
        u64::try_from(self.live.borrow().lifetime.as_millis()).unwrap_or(u64::MAX)
    }

    /// Where enrolled devices reach the server: `host:port`, or `:port` for the host of the enrollment line.
    fn server(&self) -> String {
        match self.live.borrow().server.as_str() {
            "" => format!(":{}", self.port),
            server => server.to_owned(),
        }
    }
}

/// The other side of the task; clones share it. The task ends with the last of them.
#[derive(Debug, Clone)]
pub(crate) struct RegistryHandle {
    requests: mpsc::Sender<Request>,
    standings: Standings,
    open: watch::Receiver<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopping;

impl RegistryHandle {
    pub(crate) fn start(registry: Registry, settings: Settings) -> Self {
        let (requests, queue) = mpsc::channel(QUEUE);
        let standings = registry.standings();
        let (show_open, open) = watch::channel(registry.is_open((settings.clock)()));
        let task = Task {
            registry,
            settings,
            show_open,
        };
        tokio::task::spawn_blocking(move || task.run(queue));
        Self {
            requests,
            standings,
            open,
        }
    }

    /// What the registry refuses, at each moment.
    pub(crate) fn standings(&self) -> &Standings {
        &self.standings
    }

    /// Whether a device may enroll, as of the last request.
    pub(crate) fn open(&self) -> watch::Receiver<bool> {
        self.open.clone()
    }

    pub(crate) async fn enroll(&self, asked: EnrollmentRequest) -> Result<Result<Enrolled, Refusal>, Stopping> {
        self.ask_task(|reply| Request::Enroll(asked, reply)).await
    }

    pub(crate) async fn renew(
        &self,
        shown: Arc<Credential>,
        request: SigningRequest,
    ) -> Result<Result<SignedCertificate, Refusal>, Stopping> {
        self.ask_task(|reply| Request::Renew(shown, request, reply)).await
    }

    pub(crate) async fn ask(&self, ask: RegistryAsk) -> Result<Result<RegistryAnswer, String>, Stopping> {
        self.ask_task(|reply| Request::Ask(ask, reply)).await
    }

    /// The certificates that clients use, those that end first in front.
    pub(crate) async fn ending(&self) -> Vec<(ClientId, Lifetime)> {
        self.ask_task(Request::Ending).await.unwrap_or_default()
    }

    pub(crate) async fn refresh(&self) {
        let _ = self.ask_task(Request::Refresh).await;
    }

    /// Notes a join, which may replace other certificates of the client.
    pub(crate) async fn joined(&self, joining: Joining) {
        let _ = self.requests.send(Request::Joined(joining)).await;
    }

    /// Notes that a client was turned away. Best effort: dropped if the channel is full.
    pub(crate) fn rejected(&self, client: ClientId, why: String) {
        let _ = self.requests.try_send(Request::Rejected(client, why));
    }

    async fn ask_task<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, Stopping> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).await.map_err(|_| Stopping)?;
        answer.await.map_err(|_| Stopping)
    }
}

struct Task {
    registry: Registry,
    settings: Settings,
    show_open: watch::Sender<bool>,
}

impl Task {
    fn run(mut self, mut queue: mpsc::Receiver<Request>) {
        while let Some(request) = queue.blocking_recv() {
            self.handle(request);
        }
        if let Err(error) = self.registry.flush() {
            tracing::warn!(%error, "when clients were last seen is not stored");
        }
    }

    fn handle(&mut self, request: Request) {
        let now = (self.settings.clock)();
        let signer = &self.settings.signer();
        // The caller may be gone: what was decided stays, and the caller asks again.
        match request {
            Request::Enroll(asked, reply) => {
                let enrolled = self.registry.enroll(&asked, signer, &self.settings.server(), now);
                match &enrolled {
                    Ok(Enrolled::Issued { certificate, .. }) => match peer_name(&certificate.certificate) {
                        Ok(name) => tracing::info!("{name} enrolled from {}", asked.address),
                        Err(error) => tracing::warn!(%error, "a device enrolled without a name"),
                    },
                    Ok(Enrolled::Held { .. }) => {}
                    Err(error) => tracing::warn!(address = %asked.address, %error, "a device was not enrolled"),
                }
                self.publish(now);
                let _ = reply.send(enrolled);
            }
            Request::Renew(shown, request, reply) => {
                let lifetime = self.settings.lifetime();
                let renewed = self.registry.renew(&shown, &request, signer, lifetime, now);
                let client = &shown.client;
                match &renewed {
                    Ok(_) => tracing::debug!(%client, "renewed a certificate"),
                    Err(error) => tracing::warn!(%client, %error, "a certificate was not renewed"),
                }
                let _ = reply.send(renewed);
            }
            Request::Ask(ask, reply) => {
                let answer = self.registry.answer(&ask, signer, now);
                self.publish(now);
                let _ = reply.send(answer);
            }
            Request::Refresh(reply) => {
                self.publish(now);
                let _ = reply.send(());
            }
            Request::Ending(reply) => drop(reply.send(self.registry.ending(SHOWN))),
            Request::Joined(joining) => {
                let joined = self.registry.joined(&joining, now);
                if let Err(error) = &joined {
                    tracing::warn!(%error, "the registry cannot be stored");
                }
                if joined.unwrap_or(true) {
                    self.publish(now);
                }
            }
            Request::Rejected(client, why) => self.registry.rejected(&client, &why, now),
        }
    }

    /// Shows whether a device may enroll, before the request is answered.
    fn publish(&self, now: Millis) {
        self.show_open
            .send_if_modified(|shown| std::mem::replace(shown, self.registry.is_open(now)) != *shown);
    }
}
