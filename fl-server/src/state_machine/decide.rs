//! Decides which records and which reply follow from an input. Changes nothing.

use fl_compress::Digest;
use fl_proto::{ClientId, EvaluationReport, Refusal, UpdateReply};

use crate::clock::Millis;
use crate::config::plan::RunPlan;
use crate::state_machine::handout::handed_out;
use crate::state_machine::opening::{after_close, lacks_members, reopening, replacing, waiting};
use crate::state_machine::presence::Presence;
use crate::state_machine::round::Round;
use crate::state_machine::state::{Phase, State};
use crate::storage::record::{Accepted, ClientEvaluation, Limited, Record, RecordedStep, Transfer};

#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Time passed, or a client connected or left.
    Tick,
    /// A frame of this round, verified and durable as a blob, is offered for counting.
    Update {
        client: ClientId,
        round: u64,
        /// The attempt of that round in which the client began it; 0 if unknown.
        attempt: u32,
        /// Its `at` is overwritten with the time of the decision.
        update: Accepted,
        transfer: Option<Transfer>,
    },
    Evaluation {
        client: ClientId,
        report: EvaluationReport,
    },
    /// The work of [`State::pending_work`] is done: the model update's frame is durable as a blob.
    RoundResult {
        round: u64,
        step: RecordedStep,
        limited: Vec<Limited>,
    },
    /// The server started on a run that has records. Sent once, before any other input.
    Resume,
}

/// The reply to the sender of an input, sent once the records are durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    None,
    Update(UpdateReply),
    /// The update cannot be settled yet, and why: the client keeps it and asks again.
    NotNow(&'static str),
    Evaluation {
        /// False if the evaluation was not asked for, came too late, or is impossible. A repeated report gets the same answer
        /// until two more rounds have closed.
        counted: bool,
    },
}

/// The records and the reply that follow from an input.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The caller makes them durable together, then applies them in order.
    pub records: Vec<Record>,
    /// The caller sends it after that.
    pub reply: Reply,
    /// When to decide on an [`Input::Tick`]: at once if there are records. After the records of several decisions are
    /// applied, [`State::wake`] returns the same.
    pub wake: Option<Millis>,
}

/// Decides what follows from `input` at `now`. Pure: the same arguments give the same decision.
pub fn decide(state: &State, plan: &RunPlan, now: Millis, presence: &Presence, input: Input) -> Decision {
    let (mut records, reply) = if !state.is_started() {
        (Vec::new(), unstarted(&input))
    } else {
        match input {
            Input::Tick => (tick(state, plan, now, presence), Reply::None),
            Input::Update {
                client,
                round,
                attempt,
                update,
                transfer,
            } => offered(state, plan, now, &client, (round, attempt), (update, transfer)),
            Input::RoundResult {
                round,
                step,
                mut limited,
            } => {
                if let Phase::Closing(open) = &state.phase {
                    limited.extend(state.bounded_losses(open));
                }
                let closed = Record::RoundClosed {
                    round,
                    step,
                    limited,
                    at: now,
                };
                (round_result(state, plan, now, presence, round, closed), Reply::None)
            }
            Input::Resume if state.phase == Phase::Done => (Vec::new(), Reply::None),
            Input::Resume => {
                let until = now.saturating_add(plan.cohort.deadline);
                (vec![Record::Resumed { at: now, until }], Reply::None)
            }
            Input::Evaluation { client, report } => {
                let version = report.version;
                let asked =
                    state.asks(&client, version) || (presence.is_evaluator(&client) && state.asks_evaluators(version));
                let reported = state.reported(&client, version);
                let record = Record::EvaluationAccepted {
                    version,
                    client,
                    evaluation: ClientEvaluation::new(report, now),
                };
                let wanted = asked && !reported;
                let records = if wanted { vec![record] } else { Vec::new() };
                let counted = wanted || reported;
                (records, Reply::Evaluation { counted })
            }
        }
    };
    let handed_out = handed_out(state, plan, now, &records);
    records.extend(handed_out);
    let wake = if records.is_empty() {
        state.wake(plan, now, presence)
    } else {
        Some(now)
    };
    Decision { records, reply, wake }
}

fn unstarted(input: &Input) -> Reply {
    match input {
        Input::Update { .. } => Reply::Update(refused(Refusal::NotThisRound, "the run has not begun")),
        Input::Evaluation { .. } => Reply::Evaluation { counted: false },
        Input::Tick | Input::RoundResult { .. } | Input::Resume => Reply::None,
    }
}

fn tick(state: &State, plan: &RunPlan, now: Millis, presence: &Presence) -> Vec<Record> {
    match &state.phase {
        Phase::Waiting => waiting(state, plan, now, presence),
        Phase::Training(round) => training(round, plan, now, presence).into_iter().collect(),
        Phase::Evaluating { version, asked, until } => {
            let mut owing = state.owing(asked, *version, *until, &plan.cohort, presence);
            if now >= *until || owing.all(|lost| lost.is_some_and(|at| at <= now)) {
                vec![Record::RunDone { at: now }]
            } else {
                Vec::new()
            }
        }
        Phase::Closing(_) | Phase::Done | Phase::Failed { .. } => Vec::new(),
    }
}

/// What time does to an open round.
fn training(round: &Round, plan: &RunPlan, now: Millis, presence: &Presence) -> Option<Record> {
    let closing = Record::RoundClosing {
        round: round.number,
        at: now,
    };
    if closes(round, plan, now, false) {
        return Some(closing);
    }
    if lacks_members(round, plan, presence.available()) || now >= round.deadline {
        return Some(reopening(round, plan, now, presence));
    }
    replacing(round, plan, now, presence).or_else(|| closes_without(round, plan, now, presence).then_some(closing))
}

/// The close rule {min, target, grace, deadline} for the round at `now`, or with one more update.
fn closes(round: &Round, plan: &RunPlan, now: Millis, one_more: bool) -> bool {
    let cohort = &plan.cohort;
    let answered = round.updates.len() + usize::from(one_more);
    let grace_ends = round
        .grace_ends(cohort)
        .or((answered >= cohort.target).then(|| cohort.grace_from(now)));
    // A cohort from which clients were excluded may be smaller than `min`.
    let enough = round.excluded.is_empty() || answered >= cohort.min;
    (answered == round.cohort.len() && enough)
        || grace_ends.is_some_and(|at| at <= now)
        || (answered >= cohort.min && now >= round.deadline)
}

/// Whether the round closes without its missing clients: `min` have answered, and the others are absent for too long. Called
/// when no client can replace them.
fn closes_without(round: &Round, plan: &RunPlan, now: Millis, presence: &Presence) -> bool {
    let cohort = &plan.cohort;
    let mut members = round.cohort.iter();
    round.updates.len() >= cohort.min && !members.any(|client| round.waits_for(client, presence, cohort.absent, now))
}

fn offered(
    state: &State,
    plan: &RunPlan,
    now: Millis,
    client: &ClientId,
    (round, attempt): (u64, u32),
    (update, transfer): (Accepted, Option<Transfer>),
) -> (Vec<Record>, Reply) {
    let open = match state.standing(client, round, attempt, update.digest) {
        Standing::Wanted(open) => open,
        Standing::Settled(reply) => return (Vec::new(), Reply::Update(reply)),
        Standing::NotNow(why) => return (Vec::new(), Reply::NotNow(why)),
    };
    let update = Accepted { at: now, ..update };
    let mut records = vec![Record::UpdateAccepted {
        round,
        client: client.clone(),
        update,
    }];
    if let Some(transfer) = transfer.filter(|_| plan.measures_uploads()) {
        records.push(Record::UploadMeasured {
            round,
            client: client.clone(),
            transfer,
            at: now,
        });
    }
    if closes(open, plan, now, true) {
        records.push(Record::RoundClosing { round, at: now });
    }
    (records, Reply::Update(UpdateReply::Accepted))
}

fn round_result(
    state: &State,
    plan: &RunPlan,
    now: Millis,
    presence: &Presence,
    round: u64,
    closed: Record,
) -> Vec<Record> {
    match &state.phase {
        Phase::Closing(open) if open.number == round => {
            let mut records = vec![closed];
            records.extend(after_close(state, plan, now, presence, open));
            records
        }
        _ => Vec::new(),
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Standing<'a> {
    /// The update would count in this round.
    Wanted(&'a Round),
    /// The update has a final outcome.
    Settled(UpdateReply),
    /// Its round is interrupted; the outcome follows when the round opens again.
    NotNow(&'static str),
}

impl State {
    /// The status of the update with this identity. `Settled` is final, so that a client can ask again for a lost receipt.
    /// `attempt`: the attempt in which the update was begun; 0 if unknown.
    pub fn standing(&self, client: &ClientId, round: u64, attempt: u32, digest: Digest) -> Standing<'_> {
        let settled = self.accepted(client);
        if settled == Some((round, digest)) {
            return Standing::Settled(UpdateReply::Accepted);
        }
        if settled.is_some_and(|(of, _)| of == round) {
            let why = "another update of this client was accepted in this round";
            return Standing::Settled(refused(Refusal::AlreadyAccepted, why));
        }
        match (&self.phase, &self.held) {
            (Phase::Training(open), _) if open.number == round => match open.wants(client, attempt) {
                Ok(()) => Standing::Wanted(open),
                Err(why) => Standing::Settled(refused(Refusal::NotSelected, why)),
            },
            (Phase::Training(open), _) => {
                let message = format!("round {round} is not open; round {} is", open.number);
                Standing::Settled(UpdateReply::Refused {
                    why: Refusal::NotThisRound,
                    message,
                })
            }
            // A member may keep its place when the round opens again, and a refusal is final.
            (_, Some(held)) if held.number == round => match held.wants(client, attempt) {
                Ok(()) => Standing::NotNow("the round is interrupted and will be tried again"),
                Err(why) => Standing::Settled(refused(Refusal::NotSelected, why)),
            },
            _ => Standing::Settled(refused(Refusal::NotThisRound, "no round takes updates now")),
        }
    }
}

impl Round {
    /// Whether an update of `client` that was begun in `attempt` can count.
    fn wants(&self, client: &ClientId, attempt: u32) -> Result<(), &'static str> {
        match self.asked_in.get(client) {
            None => Err("this client is not in the cohort of the round, or was replaced in it"),
            Some(since) if attempt != *since => {
                Err("the update was begun in another attempt, and the client was replaced since")
            }
            Some(_) => Ok(()),
        }
    }
}

fn refused(why: Refusal, message: &str) -> UpdateReply {
    UpdateReply::Refused {
        why,
        message: message.to_owned(),
    }
}
