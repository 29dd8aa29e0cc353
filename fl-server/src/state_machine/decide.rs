//! What follows from an input. Nothing is changed here: the records say what is to change.

use fl_compress::{Digest, Stages};
use fl_proto::{ClientId, Refusal, UpdateReply};

use crate::clock::Millis;
use crate::config::limits::MAX_LOSS;
use crate::config::plan::RunPlan;
use crate::state_machine::evaluated::Evaluated;
use crate::state_machine::opening::{after_close, lacks_members, reopening, replacing, waiting};
use crate::state_machine::presence::Presence;
use crate::state_machine::round::Round;
use crate::state_machine::state::{Phase, State};
use crate::storage::record::{Accepted, Record};

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Input<'a> {
    /// Time passed, or somebody came or went.
    Tick,
    /// A frame of this round, verified and durable as a blob, is offered for counting.
    Update {
        /// Whose.
        client: &'a ClientId,
        /// The round that it answers.
        round: u64,
        /// The attempt of that round in which it was begun; 0 if the client does not say.
        attempt: u32,
        /// What; `at` is overwritten with the time of the decision.
        update: Accepted,
    },
    /// A client evaluated a model version.
    Evaluation {
        /// Whose.
        client: &'a ClientId,
        /// The version.
        version: u64,
        /// Held-out examples.
        examples: u64,
        /// Mean loss over them.
        loss: f64,
        /// How many were classified correctly.
        correct: u64,
    },
    /// What [`State::pending_work`] named is done: the step's frame is durable as a blob.
    Stepped {
        /// The round.
        round: u64,
        /// Digest of the step's frame.
        frame: Digest,
        /// Its bytes.
        frame_len: u64,
        /// Its bytes after each stage.
        stages: Stages,
        /// Digest of the new model.
        model: Digest,
    },
    /// The server was started on a run that has records. Sent once, before any other input.
    Resume,
}

/// What the sender of an input is told, once the records are durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// Nothing.
    None,
    /// What became of the update.
    Update(UpdateReply),
    /// What becomes of the update is not known before the run goes on, and why: the client keeps it and asks again.
    NotNow(&'static str),
    /// Whether the evaluation counts.
    Evaluation {
        /// False if it was not asked for, came too late, or cannot be true; sent again it is true until two more rounds have
        /// closed.
        counted: bool,
    },
}

/// What follows from an input.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// To be made durable together and applied in order.
    pub records: Vec<Record>,
    /// To be sent after that.
    pub reply: Reply,
    /// When to decide on a [`Input::Tick`]: at once if anything changed. After applying the records of several
    /// decisions, [`State::wake`] says the same.
    pub wake: Option<Millis>,
}

/// Decides what follows from `input` at `now` with the clients that are there. The same arguments, the same decision.
pub fn decide(state: &State, plan: &RunPlan, now: Millis, presence: &Presence, input: Input<'_>) -> Decision {
    let (records, reply) = if !state.is_started() {
        (Vec::new(), unstarted(&input))
    } else {
        match input {
            Input::Tick => (tick(state, plan, now, presence), Reply::None),
            Input::Update {
                client,
                round,
                attempt,
                update,
            } => offered(state, plan, now, client, (round, attempt), update),
            Input::Stepped {
                round,
                frame,
                frame_len,
                stages,
                model,
            } => {
                let closed = Record::RoundClosed {
                    round,
                    frame,
                    frame_len,
                    stages,
                    model,
                    at: now,
                };
                (stepped(state, plan, now, presence, round, closed), Reply::None)
            }
            Input::Resume if state.phase == Phase::Done => (Vec::new(), Reply::None),
            Input::Resume => {
                let until = now.saturating_add(plan.cohort.deadline);
                (vec![Record::Resumed { at: now, until }], Reply::None)
            }
            Input::Evaluation {
                client,
                version,
                examples,
                loss,
                correct,
            } => {
                let (asked, reported) = (state.asks(client, version), state.reported(client, version));
                let sane = Evaluated::is_sane(examples, loss, correct);
                // An evaluation that cannot be true is an answer without an example, so that nobody waits for another one.
                let (examples, loss, correct) = if sane { (examples, loss, correct) } else { (0, 0.0, 0) };
                let record = Record::EvaluationAccepted {
                    version,
                    client: client.clone(),
                    examples,
                    loss,
                    correct,
                    at: now,
                };
                let wanted = asked && !reported;
                let records = if wanted { vec![record] } else { Vec::new() };
                (
                    records,
                    Reply::Evaluation {
                        counted: (wanted && sane) || reported,
                    },
                )
            }
        }
    };
    let wake = if records.is_empty() {
        state.wake(plan, now, presence)
    } else {
        Some(now)
    };
    Decision { records, reply, wake }
}

fn unstarted(input: &Input<'_>) -> Reply {
    match input {
        Input::Update { .. } => Reply::Update(refused(Refusal::NotThisRound, "the run has not begun")),
        Input::Evaluation { .. } => Reply::Evaluation { counted: false },
        Input::Tick | Input::Stepped { .. } | Input::Resume => Reply::None,
    }
}

fn tick(state: &State, plan: &RunPlan, now: Millis, presence: &Presence) -> Vec<Record> {
    let absent = plan.cohort.absent;
    match &state.phase {
        Phase::Waiting => waiting(state, plan, now, presence),
        Phase::Training(round) if closes(round, plan, now, false) => {
            vec![Record::RoundClosing {
                round: round.number,
                at: now,
                limited: true,
            }]
        }
        Phase::Training(round) if lacks_members(round, plan, presence.connected()) => {
            vec![reopening(round, plan, now, presence)]
        }
        Phase::Training(round) if now >= round.deadline => vec![reopening(round, plan, now, presence)],
        Phase::Training(round) => match replacing(round, plan, now, presence) {
            Some(replaced) => vec![replaced],
            None if closes_without(round, plan, now, presence) => vec![Record::RoundClosing {
                round: round.number,
                at: now,
                limited: true,
            }],
            None => Vec::new(),
        },
        Phase::Evaluating { version, asked, until } => {
            let start = until.saturating_sub(plan.cohort.deadline);
            let lost = |client: &ClientId| presence.lost_at(client, start, absent).is_some_and(|at| at <= now);
            let mut owing = asked.iter().filter(|client| !state.reported(client, *version));
            if now >= *until || owing.all(lost) {
                vec![Record::RunDone { at: now }]
            } else {
                Vec::new()
            }
        }
        Phase::Closing(_) | Phase::Done | Phase::Failed { .. } => Vec::new(),
    }
}

/// The close rule {min, target, grace, deadline}, for the round as it is or with one more update at `now`.
fn closes(round: &Round, plan: &RunPlan, now: Millis, one_more: bool) -> bool {
    let cohort = &plan.cohort;
    let answered = round.updates.len() + usize::from(one_more);
    let reached = round
        .reached(cohort.target)
        .or((answered >= cohort.target).then_some(now));
    // A cohort from which clients were excluded may be smaller than `min`.
    let enough = round.excluded.is_empty() || answered >= cohort.min;
    (answered == round.cohort.len() && enough)
        || reached.is_some_and(|at| at.saturating_add(cohort.grace) <= now)
        || (answered >= cohort.min && now >= round.deadline)
}

/// Whether the round closes without those that are missing: `min` have answered, and the rest is absent for too long.
/// Asked once nobody is there to take their places.
fn closes_without(round: &Round, plan: &RunPlan, now: Millis, presence: &Presence) -> bool {
    let cohort = &plan.cohort;
    round.updates.len() >= cohort.min && round.waited_for(presence, cohort.absent, now).next().is_none()
}

fn offered(
    state: &State,
    plan: &RunPlan,
    now: Millis,
    client: &ClientId,
    (round, attempt): (u64, u32),
    update: Accepted,
) -> (Vec<Record>, Reply) {
    let open = match state.standing(client, round, attempt, update.digest) {
        Standing::Wanted(open) => open,
        Standing::Settled(reply) => return (Vec::new(), Reply::Update(reply)),
        Standing::NotNow(why) => return (Vec::new(), Reply::NotNow(why)),
    };
    let update = Accepted {
        at: now,
        loss: believed(update.loss),
        ..update
    };
    let mut records = vec![Record::UpdateAccepted {
        round,
        client: client.clone(),
        update,
    }];
    if closes(open, plan, now, true) {
        records.push(Record::RoundClosing {
            round,
            at: now,
            limited: true,
        });
    }
    (records, Reply::Update(UpdateReply::Accepted))
}

/// A training loss that a mean can hold: only displays look at it, so one that cannot be true is no reason to refuse an update.
fn believed(loss: f64) -> f64 {
    if loss.is_nan() {
        MAX_LOSS
    } else {
        loss.clamp(-MAX_LOSS, MAX_LOSS)
    }
}

fn stepped(state: &State, plan: &RunPlan, now: Millis, presence: &Presence, round: u64, closed: Record) -> Vec<Record> {
    match &state.phase {
        Phase::Closing(open) if open.number == round => {
            let mut records = vec![closed];
            records.extend(after_close(state, plan, now, presence, open));
            records
        }
        _ => Vec::new(),
    }
}

/// What an update meets.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing<'a> {
    /// It would count in this round.
    Wanted(&'a Round),
    /// Its fate is known, and stays.
    Settled(UpdateReply),
    /// Its round is interrupted; what becomes of the update follows when the round opens again.
    NotNow(&'static str),
}

impl State {
    /// What an update of this identity would meet. Once settled it stays so, however often it is asked and whatever
    /// happens in between, so that a lost receipt can be asked for again. `attempt`: the one in which it was begun; 0 if
    /// the client does not say.
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
            // A member may keep its place when the round opens again: a refusal now could not be taken back then.
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
            // A client that names no attempt may have been refused before it was asked again.
            Some(_) if attempt == 0 && self.replaced.contains(client) => {
                Err("this client was replaced in the round, and its update does not say in which attempt it was begun")
            }
            Some(since) if attempt != 0 && attempt != *since => {
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
