//! The admin socket: while the server has the store open, the command line asks the server instead. One JSON line each
//! way, over a Unix socket in the data folder that only its owner can open.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fl_proto::{connect_private, listen_private};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use crate::clock::Millis;
use crate::coordinator::change::{self, Change};
use crate::coordinator::command::{Attendance, Command};
use crate::model::stored_frames::ModelFrames;
use crate::registry::actor::Stopping;
use crate::registry::ask::{RegistryAnswer, RegistryAsk};
use crate::reporting::inspect::{self, InspectError, RunStatus, ServedRun};
use crate::reporting::moment::RunBytes;
use crate::reporting::report::Report;
use crate::reporting::what_if::StoredFrames;
use crate::rpc::context::Service;
use crate::rpc::enrollment::Listening;
use crate::rpc::reload::Reloader;
use crate::storage::store::Store;
use crate::telemetry::event::{OpenRound, PausedClient, Waiting};
use crate::telemetry::turned_away::TurnedAway;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Ask {
    /// Whether the server works. The answer passes through the coordinator and reads nothing from disk.
    Health,
    Status,
    /// The report of a run. Without a name, of the only run.
    Report {
        run: Option<String>,
    },
    /// The frames of a model version. Without a version, of the newest.
    Model {
        run: Option<String>,
        version: Option<u64>,
    },
    /// The updates and model updates that a run has stored.
    Frames {
        run: Option<String>,
    },
    Reload,
    /// A question about tokens and clients, or a change of them. `at`: Unix time in milliseconds, where no server runs.
    Registry {
        ask: RegistryAsk,
        at: Millis,
    },
    /// A change to a run. `at`: Unix time in milliseconds, for the record of a run that no server is serving.
    Change {
        run: Option<String>,
        change: Change,
        at: Millis,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    Health(Health),
    Status(Status),
    Report(Box<Report>),
    Model(ModelFrames),
    Frames(Box<StoredFrames>),
    Registry(RegistryAnswer),
    /// A token is open. `listen`: where devices enroll, if that is known; `problem`: why they cannot at the moment.
    Opened {
        id: String,
        listen: Option<String>,
        problem: Option<String>,
    },
    Changed(String),
    /// The question cannot be answered. `corrupt`: because stored data is corrupt.
    Failed {
        why: String,
        corrupt: bool,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Health {
    pub(crate) run: String,
    pub(crate) listen: String,
    pub(crate) clients: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The run being served, if the server runs.
    pub(crate) serving: Option<Live>,
    pub(crate) runs: Vec<RunStatus>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Live {
    pub(crate) run: String,
    pub(crate) listen: String,
    pub(crate) present: Vec<String>,
    /// Those of them that take part in no round for now.
    pub(crate) paused: Vec<PausedClient>,
    /// The clients that the run waits for, if no round is open.
    pub(crate) waiting: Option<Waiting>,
    pub(crate) moved: Option<RunBytes>,
    /// The round that takes updates, and the clients it waits for.
    pub(crate) round: Option<OpenRound>,
    /// Clients that cannot take part, the newest first.
    pub(crate) turned_away: Vec<TurnedAway>,
}

pub(crate) fn path(data: &Path) -> PathBuf {
    data.join("admin.sock")
}

/// Answers a question from the store. `served`: the run that the server serves, at this moment.
pub(crate) fn answer(store: &Store, ask: &Ask, served: Option<&ServedRun>) -> Answer {
    let answered = match ask {
        // The server answers this question by itself.
        Ask::Health => return failed("no server serves this store"),
        Ask::Status => inspect::statuses(store, served).map(|runs| Answer::Status(Status { serving: None, runs })),
        Ask::Report { run } => {
            let report = inspect::report(store, run.as_deref(), served);
            report.map(|report| Answer::Report(Box::new(report)))
        }
        Ask::Model { run, version } => inspect::parts(store, run.as_deref(), *version).map(Answer::Model),
        Ask::Change { run, change, at } => change::change(store, run.as_deref(), change, *at).map(Answer::Changed),
        // Of a running server only; where none runs, the caller answers questions to the registry itself.
        Ask::Reload | Ask::Registry { .. } => return failed("no server runs"),
        Ask::Frames { run } => StoredFrames::of(store, run.as_deref()).map(|stored| Answer::Frames(Box::new(stored))),
    };
    answered.unwrap_or_else(|error| Answer::Failed {
        why: error.to_string(),
        corrupt: error.is_corruption(),
    })
}

/// Bytes of a question, at most.
const MAX_ASK: u64 = 4096;
/// Concurrent questions, at most.
const AT_ONCE: usize = 4;
/// Timeout for a question and its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The listening socket; its file is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Admin {
    listener: UnixListener,
    path: PathBuf,
}

#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub(crate) service: Arc<Service>,
    pub(crate) store: Store,
    pub(crate) listen: String,
    /// Values of the model.
    pub(crate) parameters: usize,
    pub(crate) reloader: Arc<Reloader>,
    /// Whether the enrollment port is open; `None` if the server has none.
    pub(crate) listening: Option<watch::Receiver<Listening>>,
}

impl Admin {
    /// Listens in the data folder, which this process has locked already: an existing socket file is stale.
    ///
    /// # Errors
    /// If the socket cannot be created; the file system may have none.
    pub(crate) fn bind(data: &Path) -> std::io::Result<Self> {
        let path = path(data);
        let listener = UnixListener::from_std(listen_private(&path)?)?;
        Ok(Self { listener, path })
    }

    /// Answers until the future is dropped.
    pub(crate) async fn serve(self, sources: Sources) {
        let at_once = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
        loop {
            let Ok(permit) = Arc::clone(&at_once).acquire_owned().await else {
                return;
            };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let sources = sources.clone();
                    tokio::spawn(async move {
                        let asked = tokio::time::timeout(ANSWER_TIMEOUT, converse(stream, &sources)).await;
                        if let Ok(Err(error)) = asked {
                            tracing::debug!(%error, "admin question failed");
                        }
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "admin socket");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn converse(mut stream: UnixStream, sources: &Sources) -> std::io::Result<()> {
    let mut line = String::new();
    let (read, mut write) = stream.split();
    tokio::io::BufReader::new(read.take(MAX_ASK))
        .read_line(&mut line)
        .await?;
    let answer = match serde_json::from_str::<Ask>(&line) {
        Ok(ask) => live(sources, ask).await,
        Err(error) => failed(format!("not a question that this server knows: {error}")),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    write.write_all(&line).await?;
    write.shutdown().await
}

fn failed(why: impl Into<String>) -> Answer {
    Answer::Failed {
        why: why.into(),
        corrupt: false,
    }
}

fn stopping() -> Answer {
    failed("the server is stopping")
}

/// The running server's answer.
async fn live(sources: &Sources, ask: Ask) -> Answer {
    let run = sources.service.plan.name.as_str();
    match ask {
        Ask::Change { run: of, change, .. } if of.as_ref().is_none_or(|of| of == run) => {
            match sources.service.ask(|reply| Command::Change { change, reply }).await {
                Ok(Ok(text)) => Answer::Changed(text),
                Ok(Err(why)) => failed(why),
                Err(_) => stopping(),
            }
        }
        Ask::Health => match sources.attendance().await {
            Some(attendance) => Answer::Health(Health {
                run: run.to_owned(),
                listen: sources.listen.clone(),
                clients: attendance.present.len(),
            }),
            None => stopping(),
        },
        Ask::Reload => {
            let reloader = Arc::clone(&sources.reloader);
            match tokio::task::spawn_blocking(move || reloader.reload()).await {
                Ok(Ok(done)) => Answer::Changed(done),
                Ok(Err(why)) => failed(why),
                Err(_) => stopping(),
            }
        }
        Ask::Registry { ask, .. } => {
            let opens = matches!(ask, RegistryAsk::Open(_));
            match sources.service.registry.ask(ask).await {
                Ok(Ok(RegistryAnswer::Done(id))) if opens => opened(id, sources.listening.clone()).await,
                Ok(Ok(answer)) => Answer::Registry(answer),
                Ok(Err(why)) => failed(why),
                Err(Stopping) => stopping(),
            }
        }
        ask => stored(sources, ask).await,
    }
}

/// The store's answer, with the live status.
async fn stored(sources: &Sources, ask: Ask) -> Answer {
    let service = &sources.service;
    let run = service.plan.name.to_string();
    let moment = service.ask(|reply| Command::Moment { reply }).await.ok();
    let moved = moment.as_ref().map(|moment| RunBytes::of(moment, sources.parameters));
    let store = sources.store.clone();
    let served = moment.map(|moment| ServedRun {
        run: run.clone(),
        moment,
    });
    let answered = tokio::task::spawn_blocking(move || answer(&store, &ask, served.as_ref())).await;
    let mut answer = answered.unwrap_or_else(|_| stopping());
    if let Answer::Status(status) = &mut answer {
        let Attendance {
            present,
            paused,
            waiting,
            round,
        } = sources.attendance().await.unwrap_or_default();
        status.serving = Some(Live {
            run,
            listen: sources.listen.clone(),
            present: present.iter().map(ToString::to_string).collect(),
            paused,
            waiting,
            moved,
            round,
            turned_away: service.events.status.known().turned.list.into(),
        });
    }
    answer
}

/// Time to open the enrollment port after a token was opened.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// A token was opened: waits until the enrollment port is open, or cannot be.
async fn opened(id: String, listening: Option<watch::Receiver<Listening>>) -> Answer {
    let Some(mut listening) = listening else {
        let problem = Some("the server has no enrollment port: set `enroll` in server.toml and restart it".to_owned());
        let listen = None;
        return Answer::Opened { id, listen, problem };
    };
    let settled = listening.wait_for(|listening| *listening != Listening::Closed);
    let settled = tokio::time::timeout(OPEN_TIMEOUT, settled).await;
    let (listen, problem) = match settled.map(|settled| settled.map(|listening| listening.clone())) {
        Ok(Ok(Listening::At(address))) => (Some(address.to_string()), None),
        Ok(Ok(Listening::Failed(why))) => (None, Some(why)),
        _ => (
            None,
            Some("the enrollment port does not open; the server's log says why".to_owned()),
        ),
    };
    Answer::Opened { id, listen, problem }
}

impl Sources {
    /// The connected clients, from the coordinator; `None` if the server is stopping.
    async fn attendance(&self) -> Option<Attendance> {
        self.service.ask(|reply| Command::Present { reply }).await.ok()
    }
}

/// Asks the server of the data folder; `None` if no server runs there.
pub(crate) fn ask_server(data: &Path, ask: &Ask) -> anyhow::Result<Option<Answer>> {
    let Some(mut stream) = connect_private(&path(data))? else {
        return Ok(None);
    };
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut line = serde_json::to_vec(ask)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(Some(serde_json::from_str(&answer)?))
}

impl InspectError {
    fn is_corruption(&self) -> bool {
        matches!(self, InspectError::Corrupt(_))
    }
}
