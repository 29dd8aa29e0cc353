//! `fl-server status FED`: the state of the runs of a federation, and certificates that end soon.

use std::fmt::Write as _;
use std::path::PathBuf;

use fl_cli::{Format, out};
use fl_proto::{Lifetime, certificates_of};
use fl_report::size;
use serde::Serialize;
use time::OffsetDateTime;

use crate::admin::socket::{Answer, Ask, Live, Status};
use crate::cli::authority;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::source;
use crate::config::server::ServerConfig;
use crate::identity::{Kind, Ownership, advice, ends_soon};
use crate::reporting::inspect::{RoundTraining, RunStatus};
use crate::reporting::moment::RunBytes;
use crate::storage::store::Store;
use crate::telemetry::event::{MetricList, short, time};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The federation's folder, or its server.toml.
    fed: PathBuf,
    /// Format of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The result of `status`; docs/reference/monitoring.md describes its keys.
#[derive(Debug, Serialize)]
struct Standing {
    serving: Option<Live>,
    runs: Vec<RunStatus>,
    certificates: Vec<Certificate>,
    /// While the authority is rotated: clients with a certificate of the new one, and of the old one.
    #[serde(skip_serializing_if = "Option::is_none")]
    rotation: Option<Rotation>,
}

#[derive(Debug, Serialize)]
struct Rotation {
    new: usize,
    old: usize,
}

#[derive(Debug, Serialize)]
struct Certificate {
    file: PathBuf,
    /// `2036-11-18`.
    ends: String,
    /// Whether it should have been replaced by now.
    ends_soon: bool,
    /// What is wrong, and what to do, if there is something.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let config = source::config(&args.fed)?;
    let Answer::Status(Status { serving, runs }) = source::ask(&config, &Ask::Status)? else {
        return Err(source::unexpected().into());
    };
    let standing = Standing {
        serving,
        runs,
        certificates: certificates(&config, OffsetDateTime::now_utc()),
        rotation: rotation(&config)?,
    };
    Ok(out::result(&standing, args.format, text)?)
}

/// The rotation in progress: the server's certificate is of the old authority until the end.
fn rotation(config: &ServerConfig) -> Result<Option<Rotation>, Failure> {
    // Both files may be missing on the machine of a person who only reads reports.
    let (Ok(authorities), Ok(own)) = (
        std::fs::read_to_string(&config.authority),
        std::fs::read_to_string(&config.certificate),
    ) else {
        return Ok(None);
    };
    if certificates_of(&authorities).map_or(0, |all| all.len()) < 2 || !Store::is_at(&config.data)? {
        return Ok(None);
    }
    let old = source::issuer(&authorities, &own).ok();
    let clients = authority::clients(config)?;
    let all: usize = clients.values().map(Vec::len).sum();
    let old = clients.get(&old).map_or(0, Vec::len);
    Ok(Some(Rotation { new: all - old, old }))
}

fn certificates(config: &ServerConfig, now: OffsetDateTime) -> Vec<Certificate> {
    let authority = std::fs::read_to_string(&config.authority).ok();
    let own = source::own_files(config)
        .read(|file| std::fs::read_to_string(file))
        .ok();
    let own = own.as_ref().map(|own| own.certificate.as_str());
    let mut all = Vec::new();
    for (kind, file, pem) in [
        (Kind::Authority, &config.authority, authority.as_deref()),
        (Kind::Server, &config.certificate, own),
    ] {
        let Some(lifetime) = pem.and_then(|pem| Lifetime::of_pem(pem).ok()) else {
            continue;
        };
        let ends_soon = ends_soon(kind, &lifetime, now);
        let ends = lifetime.expires.date().to_string();
        let warning = match kind {
            Kind::Server => advice(&lifetime, now, Ownership::of(&config.authority_key))
                .map(|(text, todo, _)| format!("{text}; {todo}")),
            _ => Some(format!(
                "{} ends on {ends}; `fl-server authority rotate` makes another",
                file.display()
            )),
        };
        all.push(Certificate {
            file: file.clone(),
            ends,
            ends_soon,
            warning: warning.filter(|_| ends_soon),
        });
    }
    all
}

fn text(standing: &Standing) -> String {
    let mut out = String::new();
    match &standing.serving {
        Some(live) => {
            let clients = match live.present.len() {
                1 => "1 client".to_owned(),
                n => format!("{n} clients"),
            };
            let _ = writeln!(out, "serving `{}` on {}; {clients} connected", live.run, live.listen);
            for client in &live.present {
                let _ = writeln!(out, "  {client}");
            }
            for paused in &live.paused {
                let _ = writeln!(out, "{paused}");
            }
            if let Some(waiting) = &live.waiting {
                let _ = writeln!(out, "{waiting}");
            }
            if let Some(moved) = &live.moved {
                out.push_str(&moved_text(moved));
            }
            if let Some(round) = &live.round {
                let _ = writeln!(out, "{round}");
            }
            for turned in &live.turned_away {
                let times = match turned.times {
                    1 => String::new(),
                    n => format!("{n} times, "),
                };
                let _ = writeln!(
                    out,
                    "turned away {} ({}; {times}last {}): {}",
                    turned.client,
                    turned.reason,
                    time(turned.at_ms),
                    turned.why
                );
            }
        }
        None => out.push_str("not serving\n"),
    }
    if standing.runs.is_empty() {
        out.push_str("no run yet\n");
    }
    for run in &standing.runs {
        let _ = writeln!(
            out,
            "{}: {}; {} of {} rounds closed",
            run.run, run.state, run.closed, run.planned
        );
        if let Some(RoundTraining { round, loss, metrics }) = &run.training {
            let _ = writeln!(
                out,
                "  round {round} trained: loss {}{}",
                short(*loss),
                MetricList(metrics)
            );
        }
        if let Some(evaluated) = &run.evaluation {
            let _ = writeln!(out, "  model {} evaluated: {evaluated}", evaluated.version);
        }
        for damage in &run.damage {
            let _ = writeln!(out, "  {damage}");
        }
    }
    if let Some(Rotation { new, old }) = &standing.rotation {
        let _ = writeln!(
            out,
            "the authority is rotated: {new} clients have a certificate of the new one, {old} of the old one"
        );
    }
    for warning in standing.certificates.iter().filter_map(|one| one.warning.as_ref()) {
        let _ = writeln!(out, "warning: {warning}");
    }
    out
}

fn moved_text(moved: &RunBytes) -> String {
    let mut out = format!(
        "moved {} up and {} down",
        size(moved.socket_up),
        size(moved.socket_down)
    );
    let pending = moved.pending_up.saturating_add(moved.pending_down);
    if pending > 0 {
        let _ = write!(out, ", {} of it not on disk yet", size(pending));
    }
    if moved.ratio > 0.0 {
        let _ = write!(
            out,
            "; fp32 averaging: {:.2} times as much by round {}",
            moved.ratio, moved.through
        );
    }
    if !moved.balanced {
        out.push_str("; the ledger and the sockets are NOT EQUAL");
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::telemetry::event::{Missing, ModelEvaluation, OpenRound, PausedClient, Waiting};
    use crate::telemetry::turned_away::{TurnedAwayList, TurnedFor};

    fn standing() -> Standing {
        Standing {
            serving: Some(Live {
                run: "digits".into(),
                listen: "127.0.0.1:7070".into(),
                present: vec!["anna".into()],
                paused: Vec::new(),
                waiting: Some(Waiting {
                    present: 1,
                    min: 3,
                    enough: false,
                }),
                moved: Some(RunBytes {
                    socket_up: 2_048,
                    socket_down: 4_096,
                    pending_down: 512,
                    ratio: 20.5,
                    through: 3,
                    balanced: true,
                    ..RunBytes::default()
                }),
                round: None,
                turned_away: Vec::new(),
            }),
            runs: vec![RunStatus {
                run: "digits".into(),
                state: "waiting".into(),
                planned: 10,
                closed: 0,
                training: None,
                evaluation: None,
                damage: Vec::new(),
            }],
            certificates: vec![Certificate {
                file: "fed/server.pem".into(),
                ends: "2027-01-02".into(),
                ends_soon: true,
                warning: Some("fed/server.pem should be renewed; do this".into()),
            }],
            rotation: None,
        }
    }

    #[test]
    fn a_person_reads_who_is_waited_for_and_what_ends_soon() {
        let expected = "serving `digits` on 127.0.0.1:7070; 1 client connected\n  anna\n\
                        waiting for 2 more clients: 1 of min 3 present\n\
                        moved 2.00 KiB up and 4.00 KiB down, 512 B of it not on disk yet; fp32 averaging: 20.50 times as \
                        much by round 3\n\
                        digits: waiting; 0 of 10 rounds closed\n\
                        warning: fed/server.pem should be renewed; do this\n";
        assert_eq!(text(&standing()), expected);
    }

    #[test]
    fn a_person_reads_whom_an_open_round_waits_for_and_who_was_turned_away() {
        let mut turned = TurnedAwayList::default();
        for warns in [true, false] {
            let why = "client `carl` is revoked";
            assert_eq!(turned.add("carl", TurnedFor::Revoked, why, 51_000_000), warns);
        }
        let missing = |client: &str, absent_since_ms| Missing {
            client: client.to_owned(),
            absent_since_ms,
        };
        let mut standing = standing();
        let live = standing.serving.as_mut().unwrap();
        live.waiting = None;
        live.round = Some(OpenRound {
            round: 3,
            attempt: 1,
            asked: 4,
            answered: 2,
            opened_ms: 50_400_000,
            until_ms: 50_700_000,
            waits_for: vec![missing("berta", None)],
            given_up: vec![missing("dora", Some(50_460_000))],
        });
        live.turned_away = turned.list.into();
        live.paused = vec![PausedClient {
            client: "anna".into(),
            reason: "on battery: BAT0".into(),
            until_ms: None,
        }];
        let text = text(&standing);
        let expected = "round 3, attempt 1: 2 of 4 clients have answered; opened 14:00:00Z, waits until 14:05:00Z for berta; \
                        no longer for dora (out since 14:01:00Z)\n\
                        turned away carl (revoked; 2 times, last 14:10:00Z): client `carl` is revoked\n";
        let paused = "1 client connected\n  anna\nanna is paused: on battery: BAT0\n";
        assert!(text.contains(paused), "{text}");
        assert!(text.contains(expected), "{text}");
    }

    fn trained() -> Standing {
        let metrics = |name: &str, mean| BTreeMap::from([(name.to_owned(), mean)]);
        let mut standing = standing();
        standing.runs[0].training = Some(RoundTraining {
            round: 3,
            loss: 2.25,
            metrics: metrics("grad/norm", 0.5),
        });
        standing.runs[0].evaluation = Some(ModelEvaluation {
            version: 2,
            examples: 60,
            accuracy: None,
            perplexity: Some(12.5),
            loss: 2.5,
            metrics: metrics("bleu", 0.25),
        });
        standing
    }

    #[test]
    fn a_person_reads_what_a_run_has_learned() {
        let text = text(&trained());
        let expected = "  round 3 trained: loss 2.2500, grad/norm 0.5000\n  \
                        model 2 evaluated: perplexity 12.5000, loss 2.5000, bleu 0.2500 on 60 examples\n";
        assert!(text.contains(expected), "{text}");
        let found = serde_json::to_value(trained()).unwrap();
        let expected = serde_json::json!({ "round": 3, "loss": 2.25, "metrics": { "grad/norm": 0.5 } });
        assert_eq!(found["runs"][0]["training"], expected);
        let expected = serde_json::json!({
            "version": 2, "examples": 60, "accuracy": null, "perplexity": 12.5, "loss": 2.5, "metrics": { "bleu": 0.25 },
        });
        assert_eq!(found["runs"][0]["evaluation"], expected);
    }

    #[test]
    fn programs_read_the_documented_keys() {
        let expected = serde_json::json!({
            "serving": {
                "run": "digits",
                "listen": "127.0.0.1:7070",
                "present": ["anna"],
                "paused": [],
                "waiting": { "present": 1, "min": 3, "enough": false },
                "moved": {
                    "socket_up": 2_048, "socket_down": 4_096, "pending_up": 0, "pending_down": 512,
                    "ratio": 20.5, "through": 3, "balanced": true,
                },
                "round": null,
                "turned_away": [],
            },
            "runs": [{ "run": "digits", "state": "waiting", "planned": 10, "closed": 0 }],
            "certificates": [{
                "file": "fed/server.pem", "ends": "2027-01-02", "ends_soon": true,
                "warning": "fed/server.pem should be renewed; do this",
            }],
        });
        assert_eq!(serde_json::to_value(standing()).unwrap(), expected);
    }
}
