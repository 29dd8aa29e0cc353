//! `fl-client health`: whether the running client works. Returns in time even if the client hangs.

use fl_proto::connect_private;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fl_cli::out;

use super::pulse::{Health, MAX_ANSWER, socket};
use crate::client_file::ClientFile;
use crate::named::Learners;

/// Ask whether the running client works, for probes: exit code 0 if it answers, 1 if not.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The client's configuration.
    #[arg(default_value = "client.toml")]
    config: PathBuf,
    /// The state folder, if the client was started with --state.
    #[arg(long)]
    state: Option<PathBuf>,
    /// Fail, too, while the client is not connected to a run.
    #[arg(long)]
    joined: bool,
    /// Seconds to wait for the answer.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = fl_cli::args::seconds)]
    timeout: Duration,
}

pub(super) fn run(args: Args, learners: &dyn Learners) -> anyhow::Result<()> {
    let state = match args.state {
        Some(state) => state,
        None => ClientFile::read_state(&args.config, learners)?,
    };
    let Health { run, doing } = ask(&state, args.timeout)?;
    if args.joined && run.is_none() {
        bail!("the client runs, but {doing}");
    }
    let doing = if doing.is_empty() { "is starting" } else { &doing };
    out::line(format_args!("healthy: the client {doing}"))
}

fn ask(state: &Path, timeout: Duration) -> anyhow::Result<Health> {
    let (sender, answer) = mpsc::channel();
    let path = socket(state);
    // A hung client blocks the caller as soon as its queue of connections is full, so that a read timeout is not enough.
    std::thread::spawn(move || sender.send(read(&path)));
    let state = state.display();
    let seconds = timeout.as_secs_f64();
    match answer.recv_timeout(timeout) {
        Ok(Ok(Some(health))) => Ok(health),
        Ok(Ok(None)) => bail!(
            "no client runs with the state folder {state}, or it has not tried to connect yet; start it with `fl-client run`"
        ),
        Ok(Err(error)) => Err(error).with_context(|| format!("the client of {state} does not answer")),
        Err(_) => bail!(
            "the client of {state} does not answer within {seconds} s: the process hangs or is overloaded; a restart loses nothing"
        ),
    }
}

/// The client's answer; `None` if no client listens at `path`.
fn read(path: &Path) -> anyhow::Result<Option<Health>> {
    let Some(stream) = connect_private(path)? else {
        return Ok(None);
    };
    let mut line = String::new();
    if BufReader::new(stream.take(MAX_ANSWER)).read_line(&mut line)? == 0 {
        bail!("it ended before it answered");
    }
    let health = serde_json::from_str(&line).context("not an answer that this version knows")?;
    Ok(Some(health))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::Shutdown;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixListener;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_hung_client_is_an_error_in_time_and_so_is_a_stopped_one() {
        let dir = tempfile::tempdir().unwrap();
        let asked = |timeout| format!("{:#}", ask(dir.path(), timeout).unwrap_err());
        assert!(asked(Duration::from_secs(60)).contains("no client runs"));
        let listener = UnixListener::bind(socket(dir.path())).unwrap();
        assert!(asked(Duration::from_millis(20)).contains("does not answer within 0.02 s"));
        // A process that another test starts holds a copy of the listener until it executes its program: closing is not enough.
        UnixStream::from(OwnedFd::from(listener)).shutdown(Shutdown::Both).ok();
        assert!(asked(Duration::from_secs(60)).contains("no client runs"));
    }

    #[test]
    fn no_answer_and_one_of_another_program_are_errors() {
        for (answer, wrong) in [
            ("", "it ended before it answered"),
            ("\n", "not an answer"),
            ("hello\n", "not an answer"),
            ("{\"doing\": 3}\n", "not an answer"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let listener = UnixListener::bind(socket(dir.path())).unwrap();
            let other = std::thread::spawn(move || listener.accept().unwrap().0.write_all(answer.as_bytes()));
            let error = format!("{:#}", ask(dir.path(), Duration::from_secs(60)).unwrap_err());
            assert!(error.contains(wrong), "{answer}: {error}");
            other.join().unwrap().unwrap();
        }
    }
}
