//! Child processes whose every line is an event.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A child that says nothing for so long hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// `fl-sim ARGS`, which as `fl-sim server ARGS` and `fl-sim client ARGS` is also the two other programs.
pub fn sim<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fl-sim"));
    command.args(args).env_remove("RUST_LOG");
    command
}

/// Runs a command to its end, which must come before patience is lost.
pub fn output(mut command: Command) -> (ExitStatus, String, String) {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let (id, (sender, ended)) = (child.id(), channel());
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(PATIENCE) else {
        let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
        panic!("{command:?} does not end");
    };
    let Output { status, stdout, stderr } = output.unwrap();
    (
        status,
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

/// Runs a command that must succeed; returns its stdout.
pub fn done(command: Command) -> String {
    let (status, stdout, stderr) = output(command);
    assert!(status.success(), "{status}\n{stdout}\n{stderr}");
    stdout
}

/// Runs a command that must fail with `code` and say all of `named` on stderr.
pub fn fails(command: Command, code: i32, named: &[&str]) {
    let shown = format!("{command:?}");
    let (status, stdout, stderr) = output(command);
    assert_eq!(status.code(), Some(code), "{shown}\n{stdout}\n{stderr}");
    assert!(!stderr.contains("panicked"), "{shown}\n{stderr}");
    for part in named {
        assert!(stderr.contains(part), "{shown}: `{part}` is not in:\n{stderr}");
    }
}

/// One line of a child, or the end of one of its two streams.
#[derive(Debug)]
pub struct Line {
    /// Which child.
    pub who: usize,
    /// Which of its lives, from 1.
    pub life: u32,
    /// The line; `None` when a stream has ended.
    pub text: Option<String>,
}

/// Waits until `who` says a line with `part` in it.
pub fn wait_for(lines: &Receiver<Line>, who: usize, part: &str) -> String {
    let mut said = String::new();
    loop {
        let line = lines
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("no `{part}` in\n{said}"));
        match line.text {
            Some(text) if line.who == who && text.contains(part) => return text,
            Some(text) => said.extend([&text, "\n"]),
            None => said.push_str("(a stream ends)\n"),
        }
    }
}

/// A running child. Dropping it kills it, so that a failing test leaves nothing behind.
#[derive(Debug)]
pub struct Process {
    child: Child,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts `command` and sends every line it writes.
    pub fn start(mut command: Command, who: usize, life: u32, lines: &Sender<Line>) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let read = |stream: Box<dyn Read + Send>| {
            let lines = lines.clone();
            std::thread::spawn(move || {
                let sent = |text| lines.send(Line { who, life, text }).is_ok();
                for text in BufReader::new(stream).lines().map_while(Result::ok) {
                    if !sent(Some(text)) {
                        break;
                    }
                }
                sent(None);
            })
        };
        let readers = vec![read(Box::new(stdout)), read(Box::new(stderr))];
        Self { child, readers }
    }

    /// SIGKILL, and waits until nothing of it is left.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.end();
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Sends a signal, named as `kill` wants it.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits until it has ended by itself and all its lines are read.
    pub fn end(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
