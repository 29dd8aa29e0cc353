//! Supervises a trainer from a thread of its own: starts it, passes requests and answers on, notices its end at once, and
//! ends it. The learner's thread waits for the answer of one request at a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::attach::{self, Socket};
use super::config::{Source, TrainerConfig};
use super::difference::difference;
use super::message::{FromTrainer, Hello, MODEL_FILE, RESULT_FILE, ToTrainer, VERSION};
use super::output::Output;
use super::process::Process;
use super::running::{Happening, Running};
use super::tensors::Marks;
use crate::learner::{Evaluation, Fit, FitPlan, Progress, RunTensors};

/// Longest wait for an answer after `stop`, and for the end after `bye`.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a learner asks of its trainer.
#[derive(Debug, Clone)]
pub(super) enum Request {
    /// What the trainer says about itself.
    Hello,
    Fit(FitPlan),
    /// Evaluate the model of this round.
    Evaluate(u64),
}

#[derive(Debug)]
pub(super) enum Answer {
    Hello(Hello, Option<i32>),
    Fitted(Fit, Marks),
    /// `None` if the trainer does not evaluate.
    Evaluated(Option<Evaluation>),
}

/// A run that the trainer takes part in.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) run: RunTensors,
    /// Where this client's local tensors of the run are stored.
    pub(super) local: Option<PathBuf>,
}

impl Bound {
    /// Whether this is the same run with the same tensors.
    pub(super) fn is_for(&self, run: &RunTensors) -> bool {
        let RunTensors {
            run: name,
            instance,
            client,
            rounds,
            seed,
            layout,
            aside,
            base,
        } = &self.run;
        (name, instance, client, rounds, seed) == (&run.run, &run.instance, &run.client, &run.rounds, &run.seed)
            && (layout, aside, base) == (&run.layout, &run.aside, &run.base)
    }
}

enum Command {
    Join(Arc<Bound>),
    Ask(Request, Arc<Progress>, oneshot::Sender<Result<Answer, String>>),
}

/// A handle to the supervising thread. When it is dropped, the trainer is told to end, and has ended when `drop` returns.
#[derive(Debug)]
pub(super) struct Supervisor {
    commands: Option<mpsc::Sender<Command>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Supervisor {
    /// Starts the thread. `folder`: the work folder.
    ///
    /// # Errors
    /// If the thread cannot be started.
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

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// Why there is none.
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

struct Actor {
    config: TrainerConfig,
    folder: PathBuf,
    output: Output,
    trainer: Option<Running>,
    /// Trainers that are being ended. The next one starts after them, because it uses the same files.
    ending: JoinSet<()>,
    socket: Option<Socket>,
    bound: Option<Arc<Bound>>,
    /// The trainer has said `bye` in this run.
    left: bool,
}

impl Actor {
    fn new(config: TrainerConfig, folder: PathBuf) -> Self {
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

    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
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
                happening = next(trainer) => self.between_requests(happening).await,
                stream = accept(socket) => self.attached(stream).await,
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
    async fn start(&mut self) -> Result<(), String> {
        match &self.config.source {
            Source::Command(program) => {
                while self.ending.join_next().await.is_some() {}
                let started = Process::start(program, &self.config, &self.folder, self.output.clone());
                let (process, link) = started.map_err(|e| format!("{e:#}"))?;
                self.greet(Running::new(link, Some(process)));
            }
            Source::Attach(path) if self.socket.is_none() => {
                self.socket = Some(Socket::listen(path).map_err(|e| format!("{e:#}"))?);
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

    async fn attached(&mut self, stream: UnixStream) {
        if self.trainer.is_some() {
            attach::turn_away(stream).await;
        } else {
            tracing::info!(task = self.config.task, "a trainer attached");
            self.left = false;
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
            Happening::Gone => self.gone().await,
        };
        tracing::warn!(task = self.config.task, "{why}; it is started again for the next round");
        self.end(Duration::ZERO);
    }

    async fn ask(&mut self, request: &Request, progress: &Progress) -> Result<Answer, String> {
        if matches!(
            (request, &self.config.source),
            (Request::Evaluate(_), Source::Attach(_))
        ) && self.trainer.is_none()
        {
            tracing::info!(
                task = self.config.task,
                "no trainer is attached that could evaluate the model"
            );
            return Ok(Answer::Evaluated(None));
        }
        let hello = self.ready(progress).await?;
        let message = match request {
            Request::Hello => {
                let process = self.trainer.as_ref().and_then(|trainer| trainer.process.as_ref());
                return Ok(Answer::Hello(hello, process.map(Process::group)));
            }
            Request::Fit(plan) => ToTrainer::fit(plan),
            Request::Evaluate(_) if !hello.evaluates => return Ok(Answer::Evaluated(None)),
            Request::Evaluate(round) => ToTrainer::Evaluate {
                round: *round,
                weights: MODEL_FILE,
            },
        };
        let mut marks = Marks::default();
        if let Request::Fit(_) = request {
            // Only now: an earlier trainer may have written the file until its end, which `ready` waits for.
            let result = self.folder.join(RESULT_FILE);
            marks = Marks::of(&result);
            marks.write(&result).map_err(|e| format!("{e:#}"))?;
        }
        if let Some(trainer) = &self.trainer {
            trainer.link.send(&message);
        }
        match (request, self.answer(progress, true).await?) {
            (Request::Fit(_), FromTrainer::Fitted(fit)) => Ok(Answer::Fitted(fit, marks)),
            (Request::Evaluate(_), FromTrainer::Evaluated(evaluation)) => Ok(Answer::Evaluated(Some(evaluation))),
            (_, FromTrainer::Failed(message)) => Err(one_line(&message)),
            (_, message) => Err(self.abandon(misplaced(&message))),
        }
    }

    /// A trainer that has said `hello` and knows the run.
    async fn ready(&mut self, progress: &Progress) -> Result<Hello, String> {
        if self.left {
            return Err("the trainer said `bye`; restart the client to start it again".to_owned());
        }
        if self.trainer.is_none() {
            self.start().await?;
        }
        if let (None, Some(socket)) = (&self.trainer, &self.socket) {
            let stream = tokio::select! {
                stream = socket.accept() => stream,
                () = progress.stopping() => return Err("no trainer is attached".to_owned()),
            };
            self.attached(stream).await;
        }
        if self.expects_hello() {
            match self.answer(progress, false).await? {
                FromTrainer::Hello(hello) => self.received(hello),
                FromTrainer::Failed(message) => return Err(self.abandon(one_line(&message))),
                message => return Err(self.abandon(misplaced(&message))),
            }
        }
        let Some(trainer) = &mut self.trainer else {
            return Err("the trainer has ended".to_owned());
        };
        let hello = trainer.hello.clone().unwrap_or_default();
        let unsuitable = match &self.bound {
            _ if !(1..=VERSION).contains(&hello.version) => Some(format!(
                "the trainer speaks version {} of the trainer protocol, this client version {VERSION}; update the older of the \
                 two",
                hello.version
            )),
            Some(bound) => difference(&bound.run, &hello),
            None => None,
        };
        if let Some(why) = unsuitable {
            self.end(CLOSE_TIMEOUT);
            return Err(why);
        }
        if let Some(bound) = self.bound.as_ref().filter(|_| !trainer.joined) {
            let local = bound.local.as_deref().filter(|path| path.exists());
            trainer.link.send(&ToTrainer::join(&bound.run, local));
            trainer.joined = true;
        }
        Ok(hello)
    }

    /// The next message that is not progress. `stops`: whether the trainer is told if the learner is asked to stop.
    async fn answer(&mut self, progress: &Progress, stops: bool) -> Result<FromTrainer, String> {
        let (clock, silence) = (self.config.clock.clone(), self.config.no_progress);
        let mut limit = clock.now() + silence;
        let mut stopping = false;
        loop {
            let Some(trainer) = &mut self.trainer else {
                return Err("the trainer has ended".to_owned());
            };
            tokio::select! {
                happening = trainer.next() => match happening {
                    Happening::Message(FromTrainer::Progress { done, total }) => {
                        progress.set(done, total);
                        if !stopping {
                            limit = clock.now() + silence;
                        }
                    }
                    Happening::Message(FromTrainer::Bye) => {
                        self.left();
                        return Err("the trainer said `bye` instead of an answer".to_owned());
                    }
                    Happening::Message(message) => return Ok(message),
                    Happening::Violation(why) => return Err(self.abandon(violation(&why))),
                    Happening::Gone => {
                        let why = self.gone().await;
                        return Err(self.abandon(why));
                    }
                },
                () = progress.stopping(), if !stopping => {
                    if !stops {
                        return Err("told to stop".to_owned());
                    }
                    trainer.link.send(&ToTrainer::Stop);
                    stopping = true;
                    limit = clock.now() + CLOSE_TIMEOUT;
                }
                () = clock.until(limit) => {
                    let why = if stopping {
                        format!("the trainer did not stop within {} s", CLOSE_TIMEOUT.as_secs())
                    } else {
                        format!(
                            "the trainer sent no message for {} s (`no_progress`); call job.progress in long loops, or raise \
                             `no_progress` in client.toml",
                            silence.as_secs_f64()
                        )
                    };
                    return Err(self.abandon(why));
                }
            }
        }
    }

    fn expects_hello(&self) -> bool {
        self.trainer.as_ref().is_some_and(|trainer| trainer.hello.is_none())
    }

    fn received(&mut self, hello: Hello) {
        if let Some(trainer) = &mut self.trainer {
            trainer.hello = Some(hello);
        }
    }

    fn left(&mut self) {
        tracing::info!(
            task = self.config.task,
            "the trainer said bye and takes part in no further round"
        );
        self.left = true;
        self.end(CLOSE_TIMEOUT);
    }

    async fn gone(&mut self) -> String {
        match &mut self.trainer {
            Some(trainer) => format!("the trainer {}", trainer.end_reason().await),
            None => "the trainer has ended".to_owned(),
        }
    }

    /// Ends the trainer without patience and returns the reason.
    fn abandon(&mut self, why: String) -> String {
        self.end(Duration::ZERO);
        why
    }

    /// Begins to end the trainer.
    fn end(&mut self, patience: Duration) {
        if let Some(trainer) = self.trainer.take() {
            self.ending.spawn(trainer.end(patience));
        }
    }
}

async fn next(trainer: &mut Option<Running>) -> Happening {
    match trainer {
        Some(trainer) => trainer.next().await,
        None => std::future::pending().await,
    }
}

async fn accept(socket: &Option<Socket>) -> UnixStream {
    match socket {
        Some(socket) => socket.accept().await,
        None => std::future::pending().await,
    }
}

fn misplaced(message: &FromTrainer) -> String {
    format!("the trainer sent `{}` where it does not belong", message.name())
}

fn violation(why: &str) -> String {
    format!("the trainer broke the protocol: {why}")
}

/// A message on one line.
fn one_line(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => "the trainer failed without a message".to_owned(),
        lines => lines.join(" | "),
    }
}
