//! What the server answers to a probe: whether it admits this client, its clock and its run, and how fast the connection is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fl_cli::findings::Line;
use fl_proto::{MAX_PROBE, PROTOCOL_MAJOR, PROTOCOL_MINOR, ProbeHeader, Probed, ProtocolError, wire};
use time::OffsetDateTime;
use tokio::time::{Instant, timeout};
use tonic::Streaming;
use wire::probe_reply::Part;

use super::asked::Asked;
use super::connect::Secured;
use crate::config::ClientConfig;
use crate::error::Error;
use crate::error_mapping::transport;
use crate::rpc::Rpc;

/// A clock that is off by more is worth a warning.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);
/// Longest wait for the bytes of a probe: 256 KiB each way at the least rate of `[limits]` take 65 s.
const PROBE_TIMEOUT: Duration = Duration::from_secs(120);

/// What the server answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) probed: Probed,
    pub(super) round_trip: Duration,
    /// Bytes a second to the server and from it.
    pub(super) rates: (f64, f64),
}

/// Asks for everything; the lines end with the first that is wrong.
pub(super) async fn ask(
    config: &Arc<ClientConfig>,
    secured: Secured,
    tasks: Vec<String>,
    asked: &Asked,
) -> (Vec<Line>, Option<Answer>) {
    let mut lines = Vec::new();
    let answer = asking(config, secured, tasks, asked, &mut lines).await;
    let answer = answer.map_err(|line| lines.push(line)).ok();
    (lines, answer)
}

async fn asking(
    config: &Arc<ClientConfig>,
    secured: Secured,
    tasks: Vec<String>,
    asked: &Asked,
    lines: &mut Vec<Line>,
) -> Result<Answer, Line> {
    let Secured {
        connection,
        round_trip,
        wrong_time,
    } = secured;
    let channel = connection.channel().await;
    let channel = channel.map_err(|error| Line::failed("server", transport(&error, config).to_string()))?;
    let mut rpc = Rpc::over(channel, config);
    let failed = |error: Error| unanswered(&error);
    let before = asked.now();
    let first = probe(&mut rpc, tasks.clone(), 0).await.map_err(failed)?;
    let now = before.saturating_add(time::Duration::try_from(first.took() / 2).unwrap_or_default());
    let probed = first.probed;
    let joined = &probed.run;
    lines.push(Line::good(
        "server",
        format!(
            "admits this client as `{}`; it speaks version {PROTOCOL_MAJOR}.{} of the protocol, this client \
             {PROTOCOL_MAJOR}.{PROTOCOL_MINOR}",
            joined.client, joined.minor
        ),
    ));
    let (clock, is_right) = clock(now, probed.clock, wrong_time);
    lines.push(clock);
    if !is_right {
        return Err(Line::wrong(
            "run",
            "not checked: a client does not connect while the time is wrong",
            "correct the time, then check again",
        ));
    }
    if let Some(refusal) = &probed.refusal {
        return Err(Line::failed("run", refusal.clone()));
    }
    lines.push(Line::good(
        "run",
        format!("`{}` of task `{}`, {} rounds", joined.run, joined.task, joined.rounds),
    ));
    let measured = probe(&mut rpc, tasks, MAX_PROBE).await.map_err(failed)?;
    let rates = (rate(measured.up.saturating_sub(round_trip)), rate(measured.down));
    let megabits = |rate: f64| rate * 8.0 / 1e6;
    lines.push(Line::good(
        "speed",
        format!(
            "{:.2} Mbit/s to the server, {:.2} Mbit/s from it",
            megabits(rates.0),
            megabits(rates.1)
        ),
    ));
    Ok(Answer {
        probed,
        round_trip,
        rates,
    })
}

/// One probe and how long its parts took.
struct Timed {
    probed: Probed,
    /// From the first byte sent until the server had read the last.
    up: Duration,
    /// From the result until the last byte.
    down: Duration,
}

impl Timed {
    fn took(&self) -> Duration {
        self.up + self.down
    }
}

/// A probe of so many bytes each way.
async fn probe(rpc: &mut Rpc, tasks: Vec<String>, bytes: usize) -> Result<Timed, Error> {
    let slow = |_| {
        Error::Broken(format!(
            "{bytes} bytes did not pass in {} s each way; the connection is too slow",
            PROBE_TIMEOUT.as_secs()
        ))
    };
    let begun = Instant::now();
    let sent = rpc.probe(ProbeHeader::new(tasks, bytes), Bytes::from(vec![0; bytes]));
    let mut replies = timeout(PROBE_TIMEOUT, Box::pin(sent)).await.map_err(slow)??;
    let up = begun.elapsed();
    let begun = Instant::now();
    let probed = timeout(PROBE_TIMEOUT, Box::pin(received(rpc, &mut replies, bytes)));
    let probed = probed.await.map_err(slow)??;
    Ok(Timed {
        probed,
        up,
        down: begun.elapsed(),
    })
}

async fn received(rpc: &Rpc, replies: &mut Streaming<wire::ProbeReply>, bytes: usize) -> Result<Probed, Error> {
    let (mut probed, mut received) = (None, 0);
    while let Some(reply) = replies.message().await.map_err(|status| rpc.error_of(&status))? {
        match reply.part {
            Some(Part::Result(result)) => probed = Some(Probed::try_from(result)?),
            Some(Part::Data(data)) => received += data.len(),
            None => return Err(ProtocolError::Missing("part").into()),
        }
    }
    if received != bytes {
        return Err(Error::Broken(format!("the server sent {received} of {bytes} bytes")));
    }
    Ok(probed.ok_or(ProtocolError::Missing("result"))?)
}

fn rate(took: Duration) -> f64 {
    MAX_PROBE as f64 / took.as_secs_f64().max(1e-6)
}

/// What it means that the server did not answer the probe.
fn unanswered(error: &Error) -> Line {
    match error {
        Error::NotNow(why) => Line::warning("server", why.clone(), "check again later, or run the client"),
        error => Line::failed("server", error.to_string()),
    }
}

/// Compares this device's clock, which says `now`, with the server's. `wrong_time`: why the server's certificate is not valid now.
/// Also returns whether the client can connect.
fn clock(now: OffsetDateTime, server: Duration, wrong_time: Option<String>) -> (Line, bool) {
    let server = OffsetDateTime::UNIX_EPOCH.saturating_add(time::Duration::try_from(server).unwrap_or_default());
    let ahead = now - server;
    let is_off = ahead.unsigned_abs() > CLOCK_TOLERANCE;
    let offset = format!("this device's clock is {}", offset(ahead));
    let set = "set the clock (`timedatectl set-ntp true`)";
    match (is_off, wrong_time) {
        (false, None) => (Line::good("clock", offset), true),
        (true, None) => (Line::warning("clock", offset, set), true),
        (true, Some(_)) => {
            let text = format!("{offset}; by it, the server's certificate is not valid");
            (Line::wrong("clock", text, set), false)
        }
        (false, Some(_)) => {
            let text = format!("{offset}, but the server's certificate is not valid at this time");
            (
                Line::wrong("clock", text, "the operator must renew the server's certificate"),
                false,
            )
        }
    }
}

/// `0.2 s behind the server's`.
fn offset(ahead: time::Duration) -> String {
    let seconds = ahead.abs().as_seconds_f64();
    let size = match seconds {
        ..120.0 => format!("{seconds:.1} s"),
        ..7_200.0 => format!("{:.0} minutes", seconds / 60.0),
        ..172_800.0 => format!("{:.0} hours", seconds / 3_600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    };
    let side = if ahead.is_negative() { "behind" } else { "ahead of" };
    format!("{size} {side} the server's")
}

#[cfg(test)]
mod tests {
    use fl_cli::findings::Level;

    use super::*;

    #[test]
    fn a_clock_is_compared_with_the_servers_and_an_expired_server_is_not_blamed_on_it() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let server = |ahead: i64| Duration::from_secs((1_800_000_000 - ahead) as u64);
        let invalid = || Some("not valid".to_owned());
        for (ahead, wrong, level, part, connects) in [
            (0, None, Level::Good, "is 0.0 s ahead of the server's", true),
            (-59, None, Level::Good, "is 59.0 s behind", true),
            (3 * 3600, None, Level::Warning, "is 3 hours ahead of", true),
            (3653 * 86_400, invalid(), Level::Wrong, "is 3653 days ahead of", false),
            (-3653 * 86_400, invalid(), Level::Wrong, "is 3653 days behind", false),
            (
                1,
                invalid(),
                Level::Wrong,
                "but the server's certificate is not valid",
                false,
            ),
        ] {
            let (line, can) = clock(now, server(ahead), wrong);
            assert!(
                line.level == level && line.text.contains(part) && can == connects,
                "{ahead}: {line:?}"
            );
        }
    }
}
