//! A simulated run: the state machine, a clock, the connected clients, and records in memory.

use std::collections::BTreeMap;

use fl_compress::{Digest, Stages};
use fl_proto::{ClientId, EvaluationReport, UpdateReply};
use fl_server::history::History;
use fl_server::plan::RunPlan;
use fl_server::state_machine::{
    Accepted, Decision, Input, Millis, PendingWork, Phase, Presence, Record, RecordedRound, RecordedRounds,
    RecordedStep, Reply, State, decide,
};

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: RunPlan,
    pub(crate) state: State,
    pub(crate) records: Vec<Record>,
    pub(crate) presence: Presence,
    pub(crate) now: Millis,
    /// Acknowledged updates by client and round.
    pub(crate) acknowledged: BTreeMap<(ClientId, u64), Digest>,
}

impl World {
    pub(crate) fn new(plan: RunPlan) -> Self {
        let mut world = Self {
            plan,
            state: State::new(),
            records: Vec::new(),
            presence: Presence::default(),
            now: 1_000,
            acknowledged: BTreeMap::new(),
        };
        let started = Record::Started {
            plan: world.plan.digest(),
            model: Digest::of(b"initial"),
            at: world.now,
        };
        world.commit(vec![started]);
        world
    }

    fn commit(&mut self, records: Vec<Record>) {
        for record in records {
            self.state.apply(&record).unwrap();
            self.records.push(record);
        }
    }

    pub(crate) fn decide(&self, input: Input) -> Decision {
        decide(&self.state, &self.plan, self.now, &self.presence, input)
    }

    pub(crate) fn input(&mut self, input: Input) -> Reply {
        let Decision { records, reply, wake } = self.decide(input);
        assert!(records.is_empty() || wake == Some(self.now));
        self.commit(records);
        self.settle();
        reply
    }

    /// Ticks until there is no more pending work.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10 {
            let Decision { records, wake, .. } = self.decide(Input::Tick);
            if records.is_empty() {
                assert!(
                    wake.is_none_or(|at| at > self.now),
                    "{wake:?} at {}: {:?}",
                    self.now,
                    self.state.phase()
                );
                return;
            }
            self.commit(records);
        }
        panic!("it never settles: {:?}", self.state.phase());
    }

    pub(crate) fn pass(&mut self, millis: Millis) {
        self.now += millis;
        self.settle();
    }

    pub(crate) fn connect(&mut self, clients: impl IntoIterator<Item = usize>) {
        for i in clients {
            self.presence.arrived(crate::client(i));
            self.settle();
        }
    }

    pub(crate) fn disconnect(&mut self, clients: impl IntoIterator<Item = usize>) {
        for i in clients {
            self.presence.left(&crate::client(i), self.now);
            self.settle();
        }
    }

    /// The update of this client in this round: a function of client, round and model.
    pub(crate) fn update(&self, i: usize, round: u64, variant: u8) -> Accepted {
        let digest = Digest::of(format!("{i} {round} {} {variant}", self.state.model()).as_bytes());
        let (examples, loss) = (10 + i as u64, 1.0 / (i + 1) as f64);
        Accepted {
            digest,
            len: 100,
            examples,
            loss,
            train_ms: 5,
            encode_ms: 1,
            stages: Stages::default(),
            at: 0,
            metrics: Default::default(),
        }
    }

    pub(crate) fn submit(&mut self, i: usize, round: u64, variant: u8) -> UpdateReply {
        let (attempt, update) = (self.asked_in(i), self.update(i, round, variant));
        let reply = self.send(i, (round, attempt), update);
        reply.expect("its outcome is known")
    }

    /// Delivers an update that was begun in this round and attempt; `None` if its outcome is not known yet.
    pub(crate) fn send(&mut self, i: usize, (round, attempt): (u64, u32), update: Accepted) -> Option<UpdateReply> {
        let client = crate::client(i);
        let (known, sent) = (self.records.len(), update.digest);
        let input = Input::Update {
            client: client.clone(),
            round,
            attempt,
            update,
            transfer: None,
        };
        let reply = match self.input(input) {
            Reply::Update(reply) => reply,
            Reply::NotNow(_) => return None,
            other => panic!("{other:?}"),
        };
        // Queried again, an update that was removed meanwhile is still acknowledged as accepted.
        let taken = |record: &Record| matches!(record, Record::UpdateAccepted { .. });
        if reply == UpdateReply::Accepted && self.records[known..].iter().any(taken) {
            let before = self.acknowledged.insert((client, round), sent);
            assert!(
                before.is_none_or(|digest| digest == sent),
                "two updates acknowledged in one round"
            );
        }
        Some(reply)
    }

    /// The attempt in which the client is asked; for other clients, the attempt of the round.
    pub(crate) fn asked_in(&self, i: usize) -> u32 {
        let round = self.state.round();
        let asked = round.and_then(|round| round.asked_in.get(&crate::client(i)).copied());
        asked.unwrap_or_else(|| self.attempt())
    }

    /// Performs the pending work: the digest of the new model is that of the old one and the updates.
    pub(crate) fn step(&mut self) {
        let Some(PendingWork { round, updates, .. }) = self.state.pending_work() else {
            return;
        };
        for part in &updates {
            assert_eq!(
                self.acknowledged.get(&(part.client.clone(), round)),
                Some(&part.frame),
                "not acknowledged"
            );
        }
        let known = self.acknowledged.keys().filter(|(_, of)| *of == round).count();
        assert_eq!(
            updates.len(),
            known,
            "an acknowledged update is missing in the close of its round"
        );
        let text = format!("{} {round} {updates:?}", self.state.model());
        let (frame, model) = (
            Digest::of(text.as_bytes()),
            Digest::of(format!("model {text}").as_bytes()),
        );
        self.input(Input::RoundResult {
            round,
            step: RecordedStep {
                frame,
                frame_len: 50,
                stages: Stages::default(),
                model,
            },
            limited: Vec::new(),
        });
    }

    /// Rolls the model back, if there is an earlier version.
    pub(crate) fn roll_back(&mut self, to: u64) {
        let Ok(record) = self.state.roll_back(to, self.now) else {
            return;
        };
        let Record::RolledBack { version, .. } = record else {
            panic!()
        };
        self.commit(vec![record]);
        // Acknowledged updates of the open round are rolled back too.
        self.acknowledged.retain(|(_, round), _| *round != version);
        self.settle();
    }

    /// Excludes a client from the open round, if there is one.
    pub(crate) fn exclude(&mut self, i: usize) {
        let client = crate::client(i);
        let Ok(record) = self.state.exclude(&client, self.now) else {
            return;
        };
        let Record::Excluded { round, .. } = record else {
            panic!()
        };
        self.commit(vec![record]);
        self.acknowledged.remove(&(client, round));
        self.settle();
    }

    /// The updates of these clients, then the pending work.
    pub(crate) fn train(&mut self, clients: impl IntoIterator<Item = usize>, round: u64) {
        self.submit_all(clients, round);
        self.step();
    }

    pub(crate) fn submit_all(&mut self, clients: impl IntoIterator<Item = usize>, round: u64) {
        for i in clients {
            self.submit(i, round, 0);
        }
    }

    /// An evaluation on ten examples, half of them right; whether it was counted.
    pub(crate) fn evaluate(&mut self, i: usize, version: u64, loss: f64) -> bool {
        self.evaluate_on(10, i, version, loss, 5.0)
    }

    pub(crate) fn evaluate_on(&mut self, examples: u64, i: usize, version: u64, loss: f64, correct: f64) -> bool {
        let input = Input::Evaluation {
            client: crate::client(i),
            report: EvaluationReport {
                run: "laws".parse().unwrap(),
                version,
                examples,
                loss,
                correct: Some(correct),
                language: false,
                metrics: Default::default(),
            },
        };
        match self.input(input) {
            Reply::Evaluation { counted } => counted,
            other => panic!("{other:?}"),
        }
    }

    /// Kills and restarts the server: only the records remain.
    pub(crate) fn crash(&mut self) {
        self.state = self.fold();
        self.presence = Presence::default();
        self.input(Input::Resume);
    }

    /// The state after decoding the bytes of the records.
    pub(crate) fn fold(&self) -> State {
        let mut state = State::new();
        for record in &self.records {
            state.apply(&Record::from_bytes(&record.to_bytes()).unwrap()).unwrap();
        }
        state
    }

    pub(crate) fn round(&self) -> u64 {
        self.state.round().map_or(0, |round| round.number)
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.state.round().map_or(0, |round| round.attempt)
    }

    pub(crate) fn cohort(&self) -> Vec<ClientId> {
        self.state
            .round()
            .map_or_else(Vec::new, |round| round.cohort.iter().cloned().collect())
    }

    pub(crate) fn is_training(&self) -> bool {
        matches!(self.state.phase(), Phase::Training(_))
    }

    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.state.phase(), Phase::Closing(_))
    }

    pub(crate) fn is_evaluating(&self) -> bool {
        matches!(self.state.phase(), Phase::Evaluating { .. })
    }

    pub(crate) fn is_done(&self) -> bool {
        *self.state.phase() == Phase::Done
    }

    /// Closed rounds without the times of their updates.
    pub(crate) fn outcome(&self) -> Vec<RecordedRound> {
        let rounds = RecordedRounds::of(self.records.iter().cloned().map(Ok::<_, String>));
        let closed = rounds.map(Result::unwrap).filter(|round| round.step.is_some());
        closed
            .map(|mut round| {
                round.updates.values_mut().for_each(|update| update.at = 0);
                round
            })
            .collect()
    }

    pub(crate) fn history(&self) -> History {
        let mut history = History::default();
        self.records.iter().for_each(|record| history.add(record));
        history
    }
}
