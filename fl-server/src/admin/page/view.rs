//! The live view of a served run: `live.json`. docs/reference/monitoring.md describes its fields.

use std::collections::BTreeSet;

use fl_proto::{ClientId, Lifetime};
use serde::Serialize;

use crate::clock::{Millis, moment};
use crate::config::plan::RunPlan;
use crate::identity::{Kind, ends_soon, renewal};
use crate::reporting::moment::RunBytes;
use crate::state_machine::{Phase, Round, State};
use crate::telemetry::event::{PausedClient, Waiting};
use crate::telemetry::status::{LogEntry, StatusSnapshot};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct View {
    pub(crate) now_ms: Millis,
    /// The time of day at `now_ms`: the clock of the run does not follow when it is set.
    #[serde(skip)]
    pub(crate) wall_ms: Millis,
    pub(crate) run: String,
    pub(crate) phase: &'static str,
    /// The phase, as a sentence.
    pub(crate) message: String,
    pub(crate) round: u64,
    pub(crate) planned: u64,
    pub(crate) attempt: u32,
    pub(crate) opened_ms: Option<Millis>,
    pub(crate) deadline_ms: Option<Millis>,
    /// When the round closes without the missing clients.
    pub(crate) until_ms: Option<Millis>,
    pub(crate) cohort: Vec<Member>,
    pub(crate) present: Vec<String>,
    /// Connected clients that take part in no round for now.
    pub(crate) paused: Vec<PausedClient>,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) throughput: Throughput,
    /// Bytes that the run has moved, equal to the report of the same moment; `None` while the server stops.
    pub(crate) moved: Option<RunBytes>,
    pub(crate) alerts: Vec<LogEntry>,
    pub(crate) events: Vec<LogEntry>,
    pub(crate) certificates: Vec<Certificate>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Member {
    pub(crate) client: String,
    /// `training`, `sending`, `done`, `paused` or `absent`.
    pub(crate) state: &'static str,
    /// Whether enough others have answered.
    pub(crate) late: bool,
    /// Bytes of the frame received.
    pub(crate) received: u64,
    /// Bytes of the whole frame; 0 before the upload.
    pub(crate) total: u64,
    pub(crate) finished_ms: Option<Millis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Throughput {
    pub(crate) up_per_s: u64,
    pub(crate) down_per_s: u64,
    pub(crate) socket_up: u64,
    pub(crate) socket_down: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Certificate {
    pub(crate) name: String,
    /// `authority`, `server` or `client`.
    pub(crate) kind: &'static str,
    pub(crate) ends_ms: i64,
    /// When it is to be replaced: at two thirds of its lifetime; an authority 60 days before its end.
    pub(crate) renewal_ms: i64,
    /// `2027-01-02`.
    pub(crate) ends: String,
    pub(crate) ends_soon: bool,
}

impl Certificate {
    fn new(name: &str, kind: Kind, lifetime: &Lifetime, now: Millis) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.as_str(),
            ends_ms: lifetime.expires.unix_timestamp().saturating_mul(1000),
            renewal_ms: renewal(kind, lifetime).unix_timestamp().saturating_mul(1000),
            ends: lifetime.expires.date().to_string(),
            ends_soon: ends_soon(kind, lifetime, moment(now)),
        }
    }
}

/// The inputs of a view beside the state.
#[derive(Debug)]
pub(crate) struct ViewContext<'a> {
    pub(crate) plan: &'a RunPlan,
    pub(crate) now: Millis,
    /// The time of day, for the expiry of certificates.
    pub(crate) wall: Millis,
    pub(crate) known: StatusSnapshot,
    pub(crate) present: BTreeSet<ClientId>,
    pub(crate) paused: Vec<PausedClient>,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) throughput: Throughput,
    pub(crate) moved: Option<RunBytes>,
    pub(crate) certificates: Vec<(ClientId, Lifetime)>,
    /// Those of the authority's and the server's.
    pub(crate) own: &'a [(Kind, Lifetime)],
}

impl View {
    pub(crate) fn new(state: &State, around: ViewContext<'_>) -> Self {
        let plan = around.plan;
        let known = around.known;
        let present = around.present;
        let paused: BTreeSet<&str> = around.paused.iter().map(|paused| paused.client.as_str()).collect();
        let open = state.round();
        let (phase, message) = phase(state, plan);
        let reached = open.and_then(|round| round.reached(plan.cohort.target));
        let deadline_ms = match state.phase() {
            Phase::Training(round) => Some(round.deadline),
            Phase::Evaluating { until, .. } => Some(*until),
            _ => None,
        };
        let until_ms = match state.phase() {
            Phase::Training(round) => Some(round.closes_at(&plan.cohort)),
            _ => deadline_ms,
        };
        let cohort = open.map_or_else(Vec::new, |round| {
            let members = round.cohort.iter();
            members
                .map(|client| member(client, round, &known, (&present, &paused), reached.is_some()))
                .collect()
        });
        let mut certificates = Vec::new();
        for (kind, lifetime) in around.own {
            certificates.push(Certificate::new(kind.as_str(), *kind, lifetime, around.wall));
        }
        for (client, lifetime) in &around.certificates {
            certificates.push(Certificate::new(client.as_str(), Kind::Client, lifetime, around.wall));
        }
        Self {
            now_ms: around.now,
            wall_ms: around.wall,
            run: plan.name.to_string(),
            phase,
            message,
            round: open.map_or(state.version(), |round| round.number),
            planned: plan.rounds,
            attempt: open.map_or(0, |round| round.attempt),
            opened_ms: open.map(|round| round.opened),
            deadline_ms,
            until_ms,
            cohort,
            present: present.iter().map(ToString::to_string).collect(),
            paused: around.paused,
            waiting: around.waiting,
            throughput: around.throughput,
            moved: around.moved,
            alerts: known.alerts.into(),
            events: known.events.into(),
            certificates,
        }
    }
}

fn member(
    client: &ClientId,
    round: &Round,
    known: &StatusSnapshot,
    (present, paused): (&BTreeSet<ClientId>, &BTreeSet<&str>),
    enough: bool,
) -> Member {
    let taken = round.updates.get(client);
    let (received, total) = match taken {
        Some(update) => (update.len, update.len),
        None => known.uploads.get(client).copied().unwrap_or_default(),
    };
    let state = match taken {
        Some(_) => "done",
        None if received > 0 => "sending",
        None if paused.contains(client.as_str()) => "paused",
        None if present.contains(client) => "training",
        None => "absent",
    };
    Member {
        client: client.to_string(),
        state,
        late: enough && taken.is_none(),
        received,
        total,
        finished_ms: taken.map(|update| update.at),
    }
}

fn phase(state: &State, plan: &RunPlan) -> (&'static str, String) {
    match state.phase() {
        Phase::Waiting => ("waiting", "waiting for clients".to_owned()),
        Phase::Training(round) => (
            "training",
            format!(
                "{} of {} clients have answered",
                round.updates.len(),
                round.cohort.len()
            ),
        ),
        Phase::Closing(round) => ("closing", format!("averaging {} updates", round.updates.len())),
        Phase::Evaluating { version, .. } => ("evaluating", format!("evaluating model {version}, the last")),
        Phase::Done => ("done", format!("all {} rounds are done", plan.rounds)),
        Phase::Failed { round, why } => ("failed", format!("gave up in round {round}: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fl_compress::Digest;

    use super::*;
    use crate::storage::record::samples::{opened, started};
    use crate::storage::record::{Accepted, Record};

    fn plan() -> RunPlan {
        let text = "name = \"t\"\ntask = \"t\"\nrounds = 3\nmodel = \"m\"\n\
                    [cohort]\nmin = 1\ntarget = 1\ngrace = \"10s\"\ndeadline = \"1min\"";
        RunPlan::from_toml(text, Path::new("")).unwrap()
    }

    fn around(plan: &RunPlan, known: StatusSnapshot) -> ViewContext<'_> {
        ViewContext {
            plan,
            now: 5_000,
            wall: 5_000,
            known,
            present: ["anna", "berta"].map(|name| name.parse().unwrap()).into(),
            paused: vec![PausedClient {
                client: "berta".into(),
                reason: "on battery".into(),
                until_ms: None,
            }],
            waiting: None,
            throughput: Throughput::default(),
            moved: None,
            certificates: Vec::new(),
            own: &[],
        }
    }

    #[test]
    fn everyone_asked_is_training_sending_done_or_absent_and_late_once_enough_answered() {
        let (plan, digest, mut state) = (plan(), Digest::of(b""), State::new());
        let opened = opened(1, 1, &["anna", "berta", "carl", "dora"], 1_000, 61_000);
        [started(), opened]
            .iter()
            .for_each(|record| state.apply(record).unwrap());
        let mut known = StatusSnapshot::default();
        known.uploads.insert("carl".parse().unwrap(), (5, 10));
        let view = View::new(&state, around(&plan, known.clone()));
        assert_eq!((view.phase, view.round, view.until_ms), ("training", 1, Some(61_000)));
        let states: Vec<_> = view.cohort.iter().map(|member| (member.state, member.late)).collect();
        let expected = [
            ("training", false),
            ("paused", false),
            ("sending", false),
            ("absent", false),
        ];
        assert_eq!(states, expected);
        let mut update = Accepted::sample(digest);
        update.at = 4_000;
        let client = "anna".parse().unwrap();
        let taken = Record::UpdateAccepted {
            round: 1,
            client,
            update,
        };
        state.apply(&taken).unwrap();
        let view = View::new(&state, around(&plan, known));
        assert_eq!(
            view.until_ms,
            Some(14_000),
            "the grace counts from when enough had answered"
        );
        let late: Vec<_> = view.cohort.iter().map(|member| member.late).collect();
        assert_eq!(late, [false, true, true, true]);
    }
}
