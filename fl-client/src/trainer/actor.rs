//! Supervises a trainer: starts it, notices its end at once, and ends it. Requests have a file of their own, `ask.rs`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::attach;
use super::config::{Source, TrainerConfig};
use super::message::{FromTrainer, Hello, ToTrainer, VERSION};
use super::output::Output;
use super::process::Process;
use super::request::{Bound, Command};
use super::running::{Happening, Running};
use crate::private_socket::PrivateSocket;
use crate::waits::if_any;

/// Longest wait for an answer after `stop`, and for the end after `bye`.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The task that owns a trainer. It runs on the supervising thread.
pub(super) struct Actor {
    pub(super) config: TrainerConfig,
    pub(super) folder: PathBuf,
    output: Output,
    pub(super) trainer: Option<Running>,
    /// Trainers that are being ended. The next one starts after them, because it uses the same files.
    ending: JoinSet<()>,
    pub(super) socket: Option<PrivateSocket>,
    pub(super) bound: Option<Arc<Bound>>,
    /// The trainer that the client started has said `bye` in this run.
    pub(super) left: bool,
}

impl Actor {
    pub(super) fn new(config: TrainerConfig, folder: PathBuf) -> Self {
        Self {
            output: Output::new(&config.task, config.clock.clone()),
            config,
            folder,
            trainer: None,
            ending: JoinSet::new(),
            socket: None,
            bound: None,
            left: false,
        }
    }

    /// Obeys until the learner has dropped its handle; then ends the trainer.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            let Self {
                trainer,
                socket,
                ending,
                ..
            } = &mut self;
            tokio::select! {
                command = commands.recv() => match command {
                    None => break,
                    Some(Command::Join(bound)) => self.join(bound).await,
                    Some(Command::Ask(request, progress, reply)) => {
                        let answer = self.ask(&request, &progress).await;
                        let _ = reply.send(answer);
                    }
                },
                happening = if_any(trainer.as_mut().map(Running::next)) => self.between_requests(happening).await,
                stream = if_any(socket.as_ref().map(PrivateSocket::accept)) => self.attached(stream).await,
                Some(_) = ending.join_next(), if !ending.is_empty() => {}
            }
        }
        self.socket = None;
        self.end(CLOSE_TIMEOUT);
        while self.ending.join_next().await.is_some() {}
    }

    async fn join(&mut self, bound: Arc<Bound>) {
        self.bound = Some(bound);
        self.left = false;
        if let Some(trainer) = &mut self.trainer {
            trainer.joined = false;
        } else if let Err(why) = self.start().await {
            tracing::warn!(task = self.config.task, why, "the trainer does not start");
        }
    }

    /// Starts the trainer, or begins to listen for one.
    pub(super) async fn start(&mut self) -> Result<(), String> {
        match &self.config.source {
            Source::Command(program) => {
                while self.ending.join_next().await.is_some() {}
                let started = Process::start(program, &self.config, &self.folder, self.output.clone());
                let (process, link) = started.map_err(|e| format!("{e:#}"))?;
                self.greet(Running::new(link, Some(process)));
            }
            Source::Attach(path) if self.socket.is_none() => {
                self.socket = Some(attach::listen(path).map_err(|e| format!("{e:#}"))?);
            }
            Source::Attach(_) => {}
        }
        Ok(())
    }

    fn greet(&mut self, trainer: Running) {
        trainer.link.send(&ToTrainer::Start {
            version: VERSION,
            folder: &self.folder,
            task: &self.config.task,
            device: &self.config.device,
        });
        self.trainer = Some(trainer);
    }

    pub(super) async fn attached(&mut self, stream: UnixStream) {
        if self.trainer.is_some() {
            attach::turn_away(stream).await;
        } else {
            tracing::info!(task = self.config.task, "a trainer attached");
            self.greet(Running::new(attach::link(stream), None));
        }
    }

    async fn between_requests(&mut self, happening: Happening) {
        let why = match happening {
            Happening::Message(FromTrainer::Hello(hello)) if self.expects_hello() => {
                self.received(hello);
                return;
            }
            // The last report of a request that was answered meanwhile.
            Happening::Message(FromTrainer::Progress { .. }) => return,
            Happening::Message(FromTrainer::Bye) => {
                self.left();
                return;
            }
            Happening::Message(message) => misplaced(&message),
            Happening::Violation(why) => violation(&why),
            // What it printed last is in the log above, and may be the answer `failed` to the last request.
            Happening::Gone => self.gone(false).await,
        };
        let next = if self.is_attached() {
            "another may attach"
        } else {
            "it is started again for the next round"
        };
        tracing::warn!(task = self.config.task, "{why}; {next}");
        self.end(Duration::ZERO);
    }

    pub(super) fn expects_hello(&self) -> bool {
        self.trainer.as_ref().is_some_and(|trainer| trainer.hello.is_none())
    }

    pub(super) fn received(&mut self, hello: Hello) {
        if let Some(trainer) = &mut self.trainer {
            trainer.hello = Some(hello);
        }
    }

    pub(super) fn is_attached(&self) -> bool {
        matches!(self.config.source, Source::Attach(_))
    }

    pub(super) fn left(&mut self) {
        self.left = !self.is_attached();
        let next = if self.left {
            "it takes part in no further round"
        } else {
            "another may attach"
        };
        tracing::info!(task = self.config.task, "the trainer left; {next}");
        self.end(CLOSE_TIMEOUT);
    }

    pub(super) async fn gone(&mut self, why: bool) -> String {
        match &mut self.trainer {
            Some(trainer) => format!("the trainer {}", trainer.end_reason(why).await),
            None => "the trainer has ended".to_owned(),
        }
    }

    /// Ends the trainer without patience and returns the reason.
    pub(super) fn abandon(&mut self, why: String) -> String {
        self.end(Duration::ZERO);
        why
    }

    /// Begins to end the trainer, which is told why.
    pub(super) fn end_because(&mut self, why: &str) {
        if let Some(trainer) = &self.trainer {
            trainer.link.send(&ToTrainer::Bye { message: Some(why) });
        }
        self.end(CLOSE_TIMEOUT);
    }

    pub(super) fn end(&mut self, patience: Duration) {
        if let Some(trainer) = self.trainer.take() {
            self.ending.spawn(trainer.end(patience));
        }
    }
}

pub(super) fn misplaced(message: &FromTrainer) -> String {
    format!("the trainer sent `{}` where it does not belong", message.name())
}

pub(super) fn violation(why: &str) -> String {
    format!("the trainer broke the protocol: {why}")
}
