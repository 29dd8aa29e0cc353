//! One request to the trainer: makes it ready, sends the request and waits for the answer.

use fl_compress::doubtful;

use super::actor::{Actor, CLOSE_TIMEOUT, misplaced, violation};
use super::attach;
use super::difference::difference;
use super::message::{FromTrainer, Hello, MODEL_FILE, RESULT_FILE, SQUARED_FILE, ToTrainer, VERSION};
use super::own_base::has_base;
use super::process::Process;
use super::request::{Answer, FitResult, Request};
use super::running::Happening;
use super::tensors::Marks;
use crate::learner::Progress;
use crate::private_socket::PrivateSocket;
use crate::summary;
use crate::waits::if_any;

impl Actor {
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn ask(&mut self, request: &Request, progress: &Progress) -> Result<Answer, String> {
        loop {
            if let Some(answer) = self.ask_once(request, progress).await? {
                return Ok(answer);
            }
        }
    }

    /// `None` if an attached trainer left before it answered: the request is for the one that attaches next.
    async fn ask_once(&mut self, request: &Request, progress: &Progress) -> Result<Option<Answer>, String> {
        if let (Request::Evaluate(_), true, None) = (request, self.is_attached(), &self.trainer) {
            tracing::info!(
                task = self.config.task,
                "no trainer is attached that could evaluate the model"
            );
            return Ok(Some(Answer::Evaluated(None)));
        }
        let hello = self.ready(progress).await?;
        let message = match request {
            Request::Hello => {
                let process = self.trainer.as_ref().and_then(|trainer| trainer.process.as_ref());
                return Ok(Some(Answer::Hello(hello, process.map(Process::group))));
            }
            Request::Fit(plan) => ToTrainer::fit(plan),
            Request::Evaluate(_) if !hello.evaluates => return Ok(Some(Answer::Evaluated(None))),
            Request::Evaluate(round) => ToTrainer::Evaluate {
                round: *round,
                weights: MODEL_FILE,
            },
        };
        let mut result = Marks::default();
        let mut squared = None;
        if let Request::Fit(plan) = request {
            // Only now: an earlier trainer may have written the files until its end, which `ready` waits for.
            let mark = |name| Marks::new(&self.folder.join(name)).map_err(|e| format!("{e:#}"));
            result = mark(RESULT_FILE)?;
            squared = plan.squared_gradients.then(|| mark(SQUARED_FILE)).transpose()?;
        }
        if let Some(trainer) = &self.trainer {
            trainer.link.send(&message);
        }
        match (request, self.answer(progress, true).await?) {
            (Request::Fit(_), FromTrainer::Fitted { fit, squared_gradients }) => Ok(Some(Answer::Fitted(FitResult {
                fit,
                result,
                squared_gradients: squared.filter(|_| squared_gradients),
            }))),
            (Request::Evaluate(_), FromTrainer::Evaluated(evaluation)) => Ok(Some(Answer::Evaluated(Some(evaluation)))),
            (_, FromTrainer::Bye) => Ok(None),
            (_, FromTrainer::Failed(message)) => Err(failed(&message)),
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
        loop {
            if let (None, Some(socket)) = (&self.trainer, &self.socket) {
                let stream = tokio::select! {
                    stream = socket.accept() => stream,
                    () = progress.stopping() => return Err("no trainer is attached".to_owned()),
                };
                self.attached(stream).await;
            }
            if !self.expects_hello() {
                break;
            }
            match self.answer(progress, false).await? {
                FromTrainer::Hello(hello) => self.received(hello),
                FromTrainer::Bye => {} // of an attached one: wait for another
                FromTrainer::Failed(message) => return Err(self.abandon(failed(&message))),
                message => return Err(self.abandon(misplaced(&message))),
            }
        }
        let Some(trainer) = &mut self.trainer else {
            return Err("the trainer has ended".to_owned());
        };
        let hello = trainer.hello.clone().unwrap_or_default();
        let unsuitable = match &self.bound {
            _ if hello.version != VERSION => Some(format!(
                "the trainer speaks version {} of the trainer protocol, this client version {VERSION}; update the older of the \
                 two",
                hello.version
            )),
            Some(bound) => difference(&bound.run, &hello),
            None => None,
        };
        let unsuitable = match (unsuitable, &self.bound) {
            (None, Some(bound)) if !trainer.joined => has_base(bound, &hello, &self.folder).await.err(),
            (unsuitable, _) => unsuitable,
        };
        if let Some(why) = unsuitable {
            self.end_because(&why);
            return Err(why);
        }
        if let Some(bound) = self.bound.as_ref().filter(|_| !trainer.joined) {
            let local = bound.local.as_deref().filter(|path| path.exists());
            trainer
                .link
                .send(&ToTrainer::join(&bound.run, local, bound.kept.as_deref()));
            trainer.joined = true;
            let tensors = doubtful(&bound.run.layout, &hello.kinds);
            if !tensors.is_empty() {
                let task = &self.config.task;
                tracing::warn!(
                    task,
                    tensors,
                    "the run trains what may be statistics; `fl-server check` says what to do"
                );
            }
        }
        Ok(hello)
    }

    /// The next message that is not progress; `Bye` also if an attached trainer disconnects. `stops`: whether the trainer is
    /// told if the learner is asked to stop.
    async fn answer(&mut self, progress: &Progress, stops: bool) -> Result<FromTrainer, String> {
        let clock = self.config.clock.clone();
        let silence = self.config.no_progress;
        let mut limit = clock.now() + silence;
        let mut stopping = false;
        let attached = self.is_attached();
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
                    Happening::Message(FromTrainer::Bye) | Happening::Gone if attached => {
                        self.left();
                        return Ok(FromTrainer::Bye);
                    }
                    Happening::Message(FromTrainer::Bye) => {
                        self.left();
                        return Err("the trainer said `bye` instead of an answer".to_owned());
                    }
                    Happening::Message(message) => return Ok(message),
                    Happening::Violation(why) => return Err(self.abandon(violation(&why))),
                    Happening::Gone => {
                        let why = self.gone(true).await;
                        return Err(self.abandon(why));
                    }
                },
                stream = if_any(self.socket.as_ref().map(PrivateSocket::accept)) => attach::turn_away(stream).await,
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
}

/// The message of `failed` on one line.
fn failed(message: &str) -> String {
    match summary::logged(message) {
        text if text.is_empty() => "the trainer failed without a message".to_owned(),
        text => text,
    }
}
