//! A trainer's process, in a process group of its own that ends with the client in any case.
//!
//! The leader of the group is the *guard*: a shell that waits for the end of a pipe which only the client holds. When the
//! client is gone, also by `kill -9`, the guard ends the group and removes the work folder. Because the guard leads the group
//! and is reaped last, the group's number cannot belong to other processes.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use command_fds::{CommandFdExt as _, FdMapping};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStdin};
use tokio::task::JoinHandle;

use super::config::{Program, TrainerConfig};
use super::link::Link;
use super::message::VERSION;
use super::output::Output;

/// Longest wait for the output of a process that has ended; its children may still hold the pipes.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for a killed process; one that waits for a broken disk cannot be reaped.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// `$1`: seconds between the signals; `$2`: the work folder.
const GUARD: &str =
    "trap '' TERM INT HUP QUIT; read -r _; kill -s TERM 0; sleep \"$1\"; rm -rf -- \"$2\"; kill -s KILL 0";

/// A running process and its group.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    guard: Guard,
    output: Output,
    readers: Vec<JoinHandle<()>>,
    status: Option<ExitStatus>,
    terminate: Duration,
}

impl Process {
    /// Starts the program with the two pipes of messages.
    pub(super) fn start(
        program: &Program,
        config: &TrainerConfig,
        folder: &Path,
        output: Output,
    ) -> anyhow::Result<(Self, Link)> {
        let terminate = config.terminate;
        let guard = Guard::start(folder, terminate).context("cannot start `sh`, which guards the trainer")?;
        let context = || format!("cannot start `{}`", program.name());
        let (to_child, to_write) = io::pipe().with_context(context)?;
        let (to_read, from_child) = io::pipe().with_context(context)?;
        let mut command = Command::new(program.path().with_context(context)?);
        command
            .args(program.arguments())
            .current_dir(program.folder())
            .env("FL_TRAINER", VERSION.to_string())
            .env("FL_TRAINER_FOLDER", folder)
            .env("FL_TRAINER_DEVICE", &config.device)
            // Of another client: of the shell, script or notebook that has started this one.
            .env_remove("FL_TRAINER_PROCESS")
            .env_remove("FL_ATTACH")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(guard.group.as_raw_pid());
        if std::env::var_os("PYTHONUNBUFFERED").is_none() {
            // Lines of Python appear in the log when they are printed.
            command.env("PYTHONUNBUFFERED", "1");
        }
        let ends = [(to_child.into(), 3), (from_child.into(), 4)];
        command
            .fd_mappings(
                ends.map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd })
                    .into(),
            )
            .with_context(context)?;
        let mut command = tokio::process::Command::from(command);
        let mut child = command.kill_on_drop(true).spawn().with_context(context)?;
        // The command holds the child's ends of the pipes.
        drop(command);
        let mut readers = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            readers.push(tokio::spawn(output.clone().read(stdout, false)));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.push(tokio::spawn(output.clone().read(stderr, true)));
        }
        let link = Link::new(
            pipe::Receiver::from_owned_fd(OwnedFd::from(to_read)).with_context(context)?,
            pipe::Sender::from_owned_fd(OwnedFd::from(to_write)).with_context(context)?,
        );
        let process = Self {
            child,
            guard,
            output,
            readers,
            status: None,
            terminate,
        };
        Ok((process, link))
    }

    /// Completes when the process has ended. Cancel safe.
    pub(super) async fn exited(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.wait().await.ok();
        }
        self.status
    }

    pub(super) fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    pub(super) fn group(&self) -> i32 {
        self.guard.group.as_raw_pid()
    }

    pub(super) async fn end(&mut self, patience: Duration) {
        if self.exits_within(patience).await.is_err() {
            self.guard.signal(Signal::TERM);
            let _ = self.exits_within(self.terminate).await;
        }
        // Children of the process may still run, and the guard.
        self.guard.signal(Signal::KILL);
        let _ = self.exits_within(KILL_TIMEOUT).await;
        let _ = tokio::time::timeout(KILL_TIMEOUT, self.guard.shell.wait()).await;
        self.read_output().await;
    }

    /// How the process ended and, with `why`, what it printed last, as the end of a sentence about the trainer.
    pub(super) async fn end_reason(&mut self, why: bool) -> String {
        self.read_output().await;
        let how = match self.status {
            Some(status) => format!("ended ({status})"),
            None => "closed its pipe".to_owned(),
        };
        match self.output.last_lines() {
            last if last.is_empty() || !why => how,
            last => format!("{how}: {last}"),
        }
    }

    async fn exits_within(&mut self, limit: Duration) -> Result<(), tokio::time::error::Elapsed> {
        if limit.is_zero() && self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        tokio::time::timeout(limit, self.exited()).await.map(drop)
    }

    async fn read_output(&mut self) {
        let all = async {
            for reader in &mut self.readers {
                let _ = reader.await;
            }
        };
        if tokio::time::timeout(OUTPUT_TIMEOUT, all).await.is_err() {
            self.readers.iter().for_each(JoinHandle::abort);
        }
        self.readers.clear();
    }
}

/// The leader of the process group.
#[derive(Debug)]
struct Guard {
    shell: Child,
    group: Pid,
    /// Never written to: its end is the message.
    _pipe: Option<ChildStdin>,
}

impl Guard {
    fn start(folder: &Path, terminate: Duration) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command
            .args(["-c", GUARD, "sh"])
            .arg(terminate.as_secs_f64().to_string())
            .arg(folder)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let mut shell = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let pid = shell.id().and_then(|pid| Pid::from_raw(pid as i32));
        Ok(Self {
            group: pid.ok_or_else(|| io::Error::other("the process has no number"))?,
            _pipe: shell.stdin.take(),
            shell,
        })
    }

    fn signal(&self, signal: Signal) {
        // Fails if every process of the group has ended.
        let _ = kill_process_group(self.group, signal);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Without effect after `end`, which has reaped the guard; `id` is then unknown and its number may be reused.
        if self.shell.id().is_some() {
            self.signal(Signal::KILL);
        }
    }
}
