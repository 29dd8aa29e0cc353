//! What a service manager is told about the process: the protocol of systemd's `Type=notify`. Without a service manager
//! nothing happens, and no failure to reach one ends a program.

use std::time::Duration;

use sd_notify::NotifyState;

/// The process does its work from now on. `status`: a line for `systemctl status`.
pub fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(first_line(status))]);
}

/// What the process does now, as a line for `systemctl status`.
pub fn status(status: &str) {
    send(&[NotifyState::Status(first_line(status))]);
}

/// The process is about to end.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// The process makes progress. Call this from what would hang, never from a timer of its own.
pub fn alive() {
    send(&[NotifyState::Watchdog]);
}

/// How often to call [`alive`]: a third of the time after which the service manager kills the process; `None` if the manager
/// does not watch this process.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled()
        .map(|limit| limit / 3)
        .filter(|interval| !interval.is_zero())
}

/// A second line would be another variable of the protocol.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_adds_no_variable_to_the_message() {
        assert_eq!(first_line("round 3\nMAINPID=1"), "round 3");
        assert_eq!(first_line(""), "");
    }
}
