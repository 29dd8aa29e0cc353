//! A trainer that runs: its messages, its process if the client started it, and what it said about itself.

use std::time::Duration;

use super::link::Link;
use super::message::{FromTrainer, Hello, ToTrainer};
use super::process::Process;
use crate::waits::if_any;

/// A process that ends closes its pipe, and one that closes its pipe is about to end: longest wait for the other half.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);

/// A trainer and its state in the protocol.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) link: Link,
    /// `None` if the trainer attached.
    pub(super) process: Option<Process>,
    pub(super) hello: Option<Hello>,
    pub(super) joined: bool,
    closed: bool,
}

#[derive(Debug)]
pub(super) enum Happening {
    Message(FromTrainer),
    /// It sent a line that is not a message.
    Violation(String),
    /// It ended or closed the connection.
    Gone,
}

impl Running {
    pub(super) fn new(link: Link, process: Option<Process>) -> Self {
        Self {
            link,
            process,
            hello: None,
            joined: false,
            closed: false,
        }
    }

    /// The next thing that happens. Messages that a process sent before it ended come first. Cancel safe.
    pub(super) async fn next(&mut self) -> Happening {
        let Self {
            link, process, closed, ..
        } = self;
        let mut ended = false;
        while !*closed {
            tokio::select! {
                biased;
                message = link.next() => match message {
                    Some(Ok(message)) => return Happening::Message(message),
                    Some(Err(why)) => return Happening::Violation(format!("{why:#}")),
                    None => *closed = true,
                },
                _ = if_any(process.as_mut().map(Process::exited)), if !ended => ended = true,
                () = tokio::time::sleep(SETTLE_TIMEOUT), if ended => *closed = true,
            }
        }
        if let Some(process) = process.as_mut().filter(|process| process.status().is_none()) {
            let _ = tokio::time::timeout(SETTLE_TIMEOUT, process.exited()).await;
        }
        Happening::Gone
    }

    /// How the trainer ended and, with `why`, what it printed last, as the end of a sentence.
    pub(super) async fn end_reason(&mut self, why: bool) -> String {
        match &mut self.process {
            Some(process) => process.end_reason(why).await,
            None => "disconnected".to_owned(),
        }
    }

    /// Says farewell, waits for the trainer for at most `patience`, and ends its process group.
    pub(super) async fn end(mut self, patience: Duration) {
        if !patience.is_zero() {
            self.link.send(&ToTrainer::Bye { message: None });
        }
        self.link.close();
        match &mut self.process {
            Some(process) => process.end(patience).await,
            // The messages after `bye` do not matter, but its arrival does.
            None => {
                let all = async { while self.link.next().await.is_some_and(|message| message.is_ok()) {} };
                let _ = tokio::time::timeout(patience, all).await;
            }
        }
    }
}
