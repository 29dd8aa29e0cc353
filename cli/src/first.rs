//! The first process of a container, which inherits every process whose parent has ended.

use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

/// If this is process 1, runs the program as its child, passes signals on and collects whatever ends; then the child's exit code.
/// Otherwise, and where no child can be started, `None`: the caller runs the program itself.
pub fn as_first_process() -> Option<ExitCode> {
    if std::process::id() != 1 {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    runtime.block_on(watch_over(&mut Command::new(std::env::current_exe().ok()?)))
}

async fn watch_over(program: &mut Command) -> Option<ExitCode> {
    let mut ended = signal(SignalKind::child()).ok()?;
    let mut terminate = signal(SignalKind::terminate()).ok()?;
    let mut interrupt = signal(SignalKind::interrupt()).ok()?;
    let mut hang_up = signal(SignalKind::hangup()).ok()?;
    let child = Pid::from_child(&program.args(std::env::args_os().skip(1)).spawn().ok()?);
    loop {
        let passed = tokio::select! {
            _ = ended.recv() => None,
            _ = terminate.recv() => Some(Signal::TERM),
            _ = interrupt.recv() => Some(Signal::INT),
            _ = hang_up.recv() => Some(Signal::HUP),
        };
        passed.map(|passed| kill_process(child, passed));
        while let Ok(Some((of, status))) = wait(WaitOptions::NOHANG) {
            if of == child {
                // As a shell says that a signal ended a program.
                let code = status
                    .exit_status()
                    .or(status.terminating_signal().map(|signal| 128 + signal));
                return Some(u8::try_from(code.unwrap_or(1)).unwrap_or(1).into());
            }
        }
    }
}
