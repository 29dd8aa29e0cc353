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
use super::rate::{Rates, Timed};
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
    /// `None` if the server measures nothing now.
    pub(super) rates: Option<Rates>,
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
    let begun = async {
        let channel = connection.channel().await;
        let mut rpc = Rpc::over(channel.map_err(|error| transport(&error, config))?, config);
        let before = asked.now();
        let (probed, first) = probe(&mut rpc, tasks.clone(), 0).await?;
        Ok::<_, Error>((rpc, before, probed, first))
    };
    let (mut rpc, before, probed, first) = match Box::pin(begun).await {
        Ok(begun) => begun,
        Err(error) => {
            // The server may have refused this client's certificate, which is valid by this device's clock alone.
            lines.extend(wrong_time.map(|why| Line::failed("clock", why)));
            return Err(unanswered(&error));
        }
    };
    let now = before.saturating_add(time::Duration::try_from(first.took() / 2).unwrap_or_default());
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
    let is_remote = clock.is_remote;
    lines.push(clock);
    if !is_right {
        let line = Line::wrong(
            "run",
            "not checked: a client does not connect while the time is wrong",
            "correct the time, then check again",
        );
        return Err(Line { is_remote, ..line });
    }
    if let Some(refusal) = &probed.refusal {
        let line = Line::failed("run", refusal.clone());
        // client.toml binds tasks; everything else is the certificate's or the run's.
        return Err(match tasks.contains(&joined.task) {
            true => line.remote(),
            false => line,
        });
    }
    lines.push(Line::good(
        "run",
        format!("`{}` of task `{}`, {} rounds", joined.run, joined.task, joined.rounds),
    ));
    // Each of the two can only be too long: the first by lost packets, the second by the work of the server.
    let round_trip = round_trip.min(first.up);
    let rates = match probe(&mut rpc, tasks, MAX_PROBE).await {
        Ok((_, measured)) => {
            let rates = Rates::of(&measured, round_trip);
            lines.push(Line::good("speed", rates.to_string()));
            Some(rates)
        }
        Err(Error::NotNow(why)) => {
            lines.push(Line::warning("speed", format!("not measured: {why}"), "check again later").remote());
            None
        }
        Err(error) => return Err(Line::failed("speed", error.to_string()).remote()),
    };
    Ok(Answer {
        probed,
        round_trip,
        rates,
    })
}

/// A probe of so many bytes each way.
async fn probe(rpc: &mut Rpc, tasks: Vec<String>, bytes: usize) -> Result<(Probed, Timed), Error> {
    let slow = |_| {
        Error::Broken(format!(
            "{bytes} bytes did not pass in {} s each way; the connection is too slow",
            PROBE_TIMEOUT.as_secs()
        ))
    };
    let begun = Instant::now();
    let sent = rpc.probe(ProbeHeader { tasks, bytes }, Bytes::from(vec![0; bytes]));
    let mut replies = timeout(PROBE_TIMEOUT, Box::pin(sent)).await.map_err(slow)??;
    let up = begun.elapsed();
    let begun = Instant::now();
    let probed = timeout(PROBE_TIMEOUT, Box::pin(received(rpc, &mut replies, bytes)));
    let probed = probed.await.map_err(slow)??;
    let down = begun.elapsed();
    Ok((probed, Timed { up, down }))
}

async fn received(rpc: &Rpc, replies: &mut Streaming<wire::ProbeReply>, bytes: usize) -> Result<Probed, Error> {
    let mut probed = None;
    let mut received = 0;
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

/// What it means that the server did not answer the probe.
fn unanswered(error: &Error) -> Line {
    match error {
        Error::NotNow(why) => Line::warning("server", why.clone(), "check again later, or run the client").remote(),
        error => Line::failed("server", error.to_string()).remote(),
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
                Line::wrong("clock", text, "the operator must renew the server's certificate").remote(),
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
