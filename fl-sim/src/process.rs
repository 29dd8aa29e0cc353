//! Child processes. Their lines are read and counted, and a panic in a child is never missed.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

const SIGTERM: i32 = 15;
/// Time limit of a process after SIGTERM.
const END_WITHIN: Duration = Duration::from_secs(30);
/// Most lines kept of a child.
const LINES: usize = 2_000;

/// `fl-sim ARGS` in the folder `dir`.
pub(crate) fn sim(dir: &Path, args: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("find this program")?);
    command.args(args).current_dir(dir).env_remove("RUST_LOG");
    command.stdin(Stdio::null()).kill_on_drop(true);
    Ok(command)
}

/// Runs `fl-sim ARGS` to its end; returns its exit code and its stdout.
pub(crate) async fn output(dir: &Path, args: &[&str]) -> anyhow::Result<(i32, String)> {
    let output = sim(dir, args)?.output().await?;
    Ok((output.status.code().unwrap_or(-1), String::from_utf8(output.stdout)?))
}

/// Runs `fl-sim ARGS`, which must succeed; returns its stdout.
pub(crate) async fn done(dir: &Path, args: &[&str]) -> anyhow::Result<String> {
    let output = sim(dir, args)?.output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "fl-sim {}: {}\n{said}",
        args.join(" "),
        output.status
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// A size in the status of a process, in bytes (proc(5)); 0 if the system does not say.
pub(crate) fn memory(process: &str, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    1024 * kib.unwrap_or(0)
}

/// A running child.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let lines = Arc::default();
        let stdout = child.stdout.take().map(|stream| read(stream, &lines));
        let stderr = child.stderr.take().map(|stream| read(stream, &lines));
        Ok(Self {
            child,
            lines,
            readers: stdout.into_iter().chain(stderr).collect(),
        })
    }

    /// Number of lines with this prefix.
    pub(crate) fn count(&self, beginning: &str) -> u64 {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.starts_with(beginning)).count() as u64
    }

    /// Resident memory in bytes; 0 if the system does not say.
    pub(crate) fn memory(&self) -> u64 {
        let Some(id) = self.child.id() else { return 0 };
        memory(&id.to_string(), "VmRSS:")
    }

    /// Kills the child (SIGKILL). Returns the errors before.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<Vec<String>> {
        let ended = self.child.try_wait()?;
        if ended.is_none() {
            self.child.kill().await?;
        }
        for reader in self.readers.drain(..) {
            reader.await?;
        }
        let mut wrong = self.panics();
        if let Some(status) = ended {
            wrong.push(format!(
                "a process had ended by itself: {status}; it said: {}",
                self.last()
            ));
        }
        Ok(wrong)
    }

    /// Sends SIGTERM and waits for the end. Returns the errors.
    pub(crate) async fn stop(mut self) -> anyhow::Result<Vec<String>> {
        let ended = self.child.try_wait()?;
        if ended.is_none() {
            self.signal("TERM").await?;
        }
        let status = tokio::time::timeout(END_WITHIN, self.child.wait())
            .await
            .context("it does not end")??;
        for reader in self.readers.drain(..) {
            reader.await?;
        }
        let mut wrong = self.panics();
        // A child that has not said anything may have had no time to handle the signal.
        let early = status.signal() == Some(SIGTERM) && self.last().is_empty();
        if ended.is_some() || !(status.success() || early) {
            wrong.push(format!("a process ended with {status}; it said: {}", self.last()));
        }
        Ok(wrong)
    }

    /// Sends a signal by its name, such as `TERM`.
    pub(crate) async fn signal(&self, name: &str) -> anyhow::Result<()> {
        let id = self.child.id().context("the process has ended")?;
        let sent = Command::new("kill")
            .args(["-s", name, &id.to_string()])
            .status()
            .await?;
        ensure!(sent.success(), "cannot send SIG{name}");
        Ok(())
    }

    /// Whether the child has ended.
    pub(crate) fn is_over(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits until the child has ended by itself, which must have succeeded.
    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        let status = self.child.wait().await?;
        for reader in self.readers.drain(..) {
            reader.await?;
        }
        ensure!(status.success(), "{status}; it said: {}", self.last());
        Ok(())
    }

    fn panics(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let panics = lines.iter().filter(|line| line.contains("panicked"));
        panics.map(|line| format!("a panic: {line}")).collect()
    }

    /// The last lines that it said.
    pub(crate) fn last(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines[lines.len().saturating_sub(3)..].join(" / ")
    }
}

/// Stops the clients, each with its name, and then the server: their models are then versions of the server's. Returns the errors.
pub(crate) async fn stop(
    clients: impl Iterator<Item = (Process, &String)>,
    server: Process,
) -> anyhow::Result<Vec<String>> {
    let mut broken = Vec::new();
    for (client, name) in clients {
        let stopped = client.stop().await;
        broken.extend(stopped.with_context(|| format!("{name} does not stop"))?);
    }
    broken.extend(server.stop().await.context("the server does not stop")?);
    Ok(broken)
}

/// Keeps the latest lines of a stream.
fn read(stream: impl AsyncRead + Unpin + Send + 'static, lines: &Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    let lines = Arc::clone(lines);
    tokio::spawn(async move {
        let mut stream = BufReader::new(stream).lines();
        while let Ok(Some(line)) = stream.next_line().await {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            // Lines about a panic or a jump are always kept.
            if lines.len() >= LINES {
                lines.retain(|line| line.contains("panicked") || line.starts_with("jump "));
            }
            lines.push(line);
        }
    })
}
