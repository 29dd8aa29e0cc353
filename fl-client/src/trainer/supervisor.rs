//! The learner's handle to its trainer. The trainer is supervised by a thread of its own ([`Actor`]); the learner's thread
//! waits for the answer of one request at a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use anyhow::Context as _;
use tokio::sync::{mpsc, oneshot};

use super::actor::Actor;
use super::config::TrainerConfig;
use super::request::{Answer, Bound, Command, Request};
use crate::learner::Progress;

/// A handle to the supervising thread. When it is dropped, the trainer is told to end, and has ended when `drop` returns.
#[derive(Debug)]
pub(super) struct Supervisor {
    commands: Option<mpsc::Sender<Command>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Supervisor {
    /// Starts the thread. `folder`: the work folder.
    pub(super) fn start(config: TrainerConfig, folder: PathBuf) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the trainer's thread")?;
        let (commands, queue) = mpsc::channel(1);
        let thread = thread::Builder::new().name("trainer".to_owned()).spawn(move || {
            runtime.block_on(Actor::new(config, folder).run(queue));
        });
        Ok(Self {
            commands: Some(commands),
            thread: Some(thread.context("cannot start the trainer's thread")?),
        })
    }

    /// Binds the trainer to a run. The trainer starts now, so that it is ready when the first request comes.
    pub(super) fn join(&self, bound: Arc<Bound>) {
        self.command(Command::Join(bound));
    }

    pub(super) fn ask(&self, request: Request, progress: &Arc<Progress>) -> anyhow::Result<Answer> {
        let (reply, answer) = oneshot::channel();
        self.command(Command::Ask(request, Arc::clone(progress), reply));
        let answer = answer.blocking_recv().context("the thread of the trainer panicked")?;
        answer.map_err(anyhow::Error::msg)
    }

    fn command(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // Fails after a panic of the thread; the lost reply says so.
            let _ = commands.blocking_send(command);
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
