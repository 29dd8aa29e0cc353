//! Runs a program to its end, for a bounded time.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Most of its output that is read, in bytes: less than a pipe holds, so that the program never waits for a reader.
const MAX_OUTPUT: u64 = 16 * 1024;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProgramEnd {
    /// `None` if a signal ended it.
    pub(super) code: Option<i32>,
    pub(super) output: String,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Output {
    Read,
    Ignored,
}

/// Runs `command`, and kills it and its children after `limit`. A command whose output is read must leave no child behind that
/// holds it open.
pub(super) fn run(mut command: Command, output: Output, limit: Duration) -> Result<ProgramEnd, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let stdout = match output {
        Output::Read => Stdio::piped(),
        Output::Ignored => Stdio::null(),
    };
    command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
    let child = command.process_group(0).spawn();
    let mut child = child.map_err(|e| format!("{name} cannot be started: {e}"))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let begin = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begin.elapsed() < limit => thread::sleep(POLL_INTERVAL),
            Ok(None) => {
                let _ = group.map(|group| kill_process_group(group, Signal::KILL));
                let _ = child.wait();
                return Err(format!(
                    "{name} did not end within {} s and was killed",
                    limit.as_secs()
                ));
            }
            Err(e) => return Err(format!("{name}: {e}")),
        }
    };
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // What arrived before an error counts.
        let _ = stdout.take(MAX_OUTPUT).read_to_end(&mut output);
    }
    Ok(ProgramEnd {
        code: status.code(),
        output: String::from_utf8_lossy(&output).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<ProgramEnd, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, Output::Read, limit)
    }

    #[test]
    fn code_and_output_are_returned() {
        let long = Duration::from_secs(60);
        let ended = shell("echo yes; exit 3", long).unwrap();
        assert_eq!((ended.code, ended.output.as_str()), (Some(3), "yes\n"));
        assert_eq!(shell("kill -9 $$", long).unwrap().code, None);
        let error = run(Command::new("/nowhere/may-i"), Output::Ignored, long).unwrap_err();
        assert!(error.contains("/nowhere/may-i cannot be started"), "{error}");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_its_children() {
        let error = shell("sleep 600 & sleep 600", Duration::ZERO).unwrap_err();
        assert!(error.contains("was killed"), "{error}");
    }
}
