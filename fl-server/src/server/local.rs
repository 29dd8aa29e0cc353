//! A run in memory: the decisions, the aggregation and the messages of a server, without sockets, files and tasks. Its caller
//! carries the messages and gives the time.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fl_compress::{Digest, Layout};
use fl_proto::{
    ClientId, EvaluationReport, FetchRequest, FramePart, Joined, ModelHeader, Refusal, RoundState, UpdateHeader,
    UpdateReply,
};

use crate::accounting::ledger::Flow;
use crate::config::plan::RunPlan;
use crate::config::server::Tuning;
use crate::error::ServeError;
use crate::model::decoded_updates::DecodedUpdate;
use crate::model::kept_snapshots::KeptSnapshots;
use crate::model::run_metadata::Aside;
use crate::model::space::first_weights;
use crate::model::{GlobalModel, ModelError};
use crate::reporting::history::History;
use crate::rpc::fetch::{Form, form, smaller};
use crate::rpc::verify::{Requirements, VerifyError, unusable, verify};
use crate::rpc::{join, push, submit, watch};
use crate::state_machine::{
    ClientEvaluation, Input, Millis, Presence, Record, Reply, Standing, State, Transfer, decide,
};
use crate::telemetry::event::Event;

/// A run in memory. Every client that joins stays connected.
#[derive(Debug)]
pub struct LocalRun {
    plan: RunPlan,
    layout: Arc<Layout>,
    aside: Aside,
    initial: Digest,
    instance: Digest,
    state: State,
    presence: Presence,
    global: GlobalModel,
    history: History,
    /// The updates of the open round, all model updates, and the kept snapshots.
    frames: BTreeMap<Digest, Bytes>,
    /// Snapshots of a run that rounds versions.
    snapshots: KeptSnapshots,
    clients: BTreeMap<ClientId, KnownClient>,
}

/// What the server of a connection knows of its client.
#[derive(Debug, Default)]
struct KnownClient {
    view: Option<RoundState>,
    /// The newest version that the client was sent.
    brought: Option<u64>,
}

impl LocalRun {
    /// Begins the run of `plan`, whose file of first weights is read. `instance`: identifies the run among those of its name.
    ///
    /// # Errors
    /// `Weights` or `FirstModel` if the first weights cannot be used.
    pub fn begin(plan: RunPlan, instance: Digest, now: Millis) -> Result<Self, ServeError> {
        let first = first_weights(&plan)?;
        let aside = Aside {
            tensors: first.aside,
            base: first.base.map(|base| base.digest),
        };
        let layout = Arc::new(first.layout);
        let plan = plan.with_layout(&layout);
        let global = GlobalModel::initial(Arc::clone(&layout), first.values, &plan).map_err(ServeError::FirstModel)?;
        let mut run = Self {
            layout,
            aside,
            initial: global.digest(),
            instance,
            state: State::new(),
            presence: Presence::default(),
            global,
            history: History::default(),
            frames: BTreeMap::new(),
            snapshots: KeptSnapshots::default(),
            clients: BTreeMap::new(),
            plan,
        };
        run.apply(&[Record::Started {
            plan: run.plan.digest(),
            model: run.initial,
            at: now,
        }])?;
        Ok(run)
    }

    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    pub fn version(&self) -> u64 {
        self.state.version()
    }

    pub fn model(&self) -> Digest {
        self.state.model()
    }

    /// Whether clients need a file of frozen tensors that the server of this run would send.
    pub fn serves_base(&self) -> bool {
        self.plan.serve_base && self.aside.base.is_some()
    }

    pub fn is_over(&self) -> bool {
        self.state.is_over()
    }

    pub fn join(&self, client: &ClientId) -> Joined {
        let run = join::Run {
            plan: &self.plan,
            layout: &self.layout,
            aside: &self.aside,
            initial: self.initial,
            instance: self.instance,
            ping_every: Tuning::default().ping_every,
        };
        run.joined(client.clone(), &self.state, None)
    }

    /// A client that joined begins to watch. A round opens only with [`LocalRun::tick`].
    pub fn arrive(&mut self, client: ClientId) {
        self.presence.arrived(client.clone());
        self.clients.entry(client).or_default();
    }

    /// Decides what follows from the time.
    ///
    /// # Errors
    /// `Records` if the run contradicts itself.
    pub fn tick(&mut self, now: Millis) -> Result<(), ServeError> {
        loop {
            let decision = decide(&self.state, &self.plan, now, &self.presence, Input::Tick);
            if decision.records.is_empty() {
                return Ok(());
            }
            self.apply(&decision.records)?;
        }
    }

    /// When the next [`LocalRun::tick`] is due, if nothing else happens before.
    pub fn wake(&self, now: Millis) -> Option<Millis> {
        self.state.wake(&self.plan, now, &self.presence)
    }

    /// The next message of the client's stream, with the model update that travels with it; `None` without news.
    pub fn news(&mut self, client: &ClientId, now: Millis) -> Option<RoundState> {
        let view = self.state.view(&self.plan, client, now);
        let told = self.clients.get_mut(client)?;
        if told.view.as_ref().is_some_and(|last| !watch::is_news(last, &view)) {
            return None;
        }
        let part = push::due(&self.state, &view, told.brought);
        let step = part.and_then(|part| self.frames.get(&part.digest).cloned());
        if step.is_some() {
            told.brought = Some(view.version);
        }
        told.view = Some(view.clone());
        Some(RoundState {
            step: step.unwrap_or_default(),
            ..view
        })
    }

    /// The frames of a fetch of the newest version, and their header.
    ///
    /// # Errors
    /// `Model` if the request cannot be answered.
    pub fn fetch(&mut self, client: &ClientId, asked: &FetchRequest) -> Result<(ModelHeader, Vec<Bytes>), ServeError> {
        let kept = self.snapshots.parts();
        let form = form(&self.state, self.layout.len(), asked, kept).map_err(ModelError::Start)?;
        let (header, made) = match form {
            Form::Steps(parts) => (ModelHeader::steps(parts), None),
            Form::Older(snapshot, after) => (ModelHeader::after_snapshot(snapshot, after), None),
            Form::Smaller(steps) => {
                let (part, frame) = self.snapshot()?;
                self.keep(part, &frame);
                (smaller(steps, part), Some(frame))
            }
        };
        let frames = match made {
            Some(frame) if header.is_snapshot() => vec![frame],
            _ => {
                let frames = header.frames().iter();
                let found: Option<Vec<Bytes>> = frames.map(|part| self.frames.get(&part.digest).cloned()).collect();
                found.ok_or_else(|| ModelError::Start("a model update is missing".to_owned()))?
            }
        };
        if let Some(told) = self.clients.get_mut(client) {
            told.brought = told.brought.max(Some(asked.want));
        }
        Ok((header, frames))
    }

    /// Keeps a snapshot, as the server of a run that rounds versions does.
    fn keep(&mut self, part: FramePart, frame: &Bytes) {
        if self.plan.rounded.is_none() {
            return;
        }
        for stale in self.snapshots.add(part) {
            self.frames.remove(&stale.digest);
        }
        self.frames.insert(part.digest, frame.clone());
    }

    fn snapshot(&self) -> Result<(FramePart, Bytes), ServeError> {
        let frame = Bytes::from(self.global.snapshot()?);
        let part = FramePart {
            version: self.global.version(),
            len: frame.len() as u64,
            digest: Digest::of(&frame),
        };
        Ok((part, frame))
    }

    /// The model updates that the average of the newest version needs, with the version that each made, oldest first; none
    /// if the run averages no versions.
    pub fn averaged_updates(&self) -> Vec<(u64, Bytes)> {
        let version = self.version();
        let count = self.plan.average.map_or(0, |average| average.updates(version));
        let digests = self.state.versions().steps(version).unwrap_or_default();
        let made = (0..=version).rev().zip(digests.iter().rev()).take(count);
        let kept = made.filter_map(|(version, digest)| Some((version, self.frames.get(digest)?.clone())));
        let mut updates: Vec<_> = kept.collect();
        updates.reverse();
        updates
    }

    /// Takes a client's evaluation. Returns whether it counts.
    ///
    /// # Errors
    /// `Records` if the run contradicts itself.
    pub fn evaluate(&mut self, client: &ClientId, report: EvaluationReport, now: Millis) -> Result<bool, ServeError> {
        let client = client.clone();
        let input = Input::Evaluation { client, report };
        let reply = self.decide(input, now)?;
        Ok(matches!(reply, Reply::Evaluation { counted: true }))
    }

    pub fn has_evaluation(&self, client: &ClientId) -> bool {
        self.history.has_evaluation(self.version(), client)
    }

    /// Counts an evaluation that nobody asked for in [`LocalRun::evaluated`], and in nothing else.
    pub fn measure(&mut self, client: &ClientId, report: EvaluationReport, now: Millis) {
        self.history.add(&Record::EvaluationAccepted {
            version: report.version,
            client: client.clone(),
            evaluation: ClientEvaluation::new(report, now),
        });
    }

    /// The client has no evaluation of the newest version.
    ///
    /// # Errors
    /// `Records` if the run contradicts itself.
    pub fn skips_evaluation(&mut self, client: &ClientId, now: Millis) -> Result<(), ServeError> {
        self.presence.will_not_evaluate(client.clone(), self.version());
        self.tick(now)
    }

    /// Takes a whole update, with the evaluation that travels with it, and closes the round if it is the last one. `transfer`: how
    /// its upload went.
    ///
    /// # Errors
    /// `Records` if the run contradicts itself; `Model` if the round cannot be closed.
    pub fn submit(
        &mut self,
        client: &ClientId,
        mut header: UpdateHeader,
        frame: Bytes,
        transfer: Option<Transfer>,
        now: Millis,
    ) -> Result<UpdateReply, ServeError> {
        if let Some(report) = header.evaluation.take() {
            self.evaluate(client, report, now)?;
        }
        let round = header.id.round;
        let attempt = header.id.attempt;
        let digest = header.id.digest;
        if let Standing::Settled(reply) = self.state.standing(client, round, attempt, digest) {
            return Ok(reply);
        }
        match self.verify(&frame, round) {
            Ok(update) => self.global.decoded().keep(digest, update),
            Err(VerifyError::Unusable(why)) => return Ok(unusable(&why)),
            Err(VerifyError::Blob(error)) => return Err(error.into()),
        }
        let input = Input::Update {
            client: client.clone(),
            round,
            attempt,
            update: submit::accepted(&header, &self.layout, now),
            transfer,
        };
        self.frames.insert(digest, frame);
        let reply = self.decide(input, now)?;
        self.close(now)?;
        Ok(match reply {
            Reply::Update(reply) => reply,
            _ => UpdateReply::Refused {
                why: Refusal::NotThisRound,
                message: "the update has no answer".to_owned(),
            },
        })
    }

    /// Closes the round whose updates are complete, if there is one.
    ///
    /// # Errors
    /// As [`LocalRun::submit`].
    pub fn close(&mut self, now: Millis) -> Result<(), ServeError> {
        let Some(work) = self.state.pending_work() else {
            return Ok(());
        };
        let frames = &self.frames;
        let closed = self.global.close(
            work.round,
            &work.updates,
            |digest: &Digest, bytes: &mut Vec<u8>| match frames.get(digest) {
                Some(frame) => {
                    bytes.clear();
                    bytes.extend_from_slice(frame);
                    Ok(())
                }
                None => Err("the frame is missing"),
            },
        )?;
        for update in &work.updates {
            self.frames.remove(&update.frame);
        }
        let input = Input::RoundResult {
            round: work.round,
            step: closed.step,
            limited: closed.limited,
        };
        self.frames.insert(closed.step.frame, closed.frame.into());
        if self.global.is_rounded() {
            let (part, frame) = self.snapshot()?;
            self.keep(part, &frame);
        }
        self.decide(input, now)?;
        Ok(())
    }

    /// The event of a closed round. `flow`: its bytes.
    pub fn round_closed(&self, round: u64, flow: Flow) -> Option<Event> {
        let summary = self.history.summary(round, flow, self.layout.len())?;
        Some(Event::RoundClosed(summary))
    }

    pub fn evaluated(&self, version: u64) -> Option<Event> {
        self.history.evaluated(version).map(Event::Evaluated)
    }

    fn verify(&self, frame: &[u8], round: u64) -> Result<DecodedUpdate, VerifyError> {
        let decoded = self.global.decoded();
        let required = Requirements::of((&self.state, &self.plan), &self.layout, round, decoded);
        verify(frame, &required, |step| match decoded.model_update(step) {
            Some(values) => Ok(values.largest()),
            None => Err(VerifyError::Unusable("its predictor is missing".to_owned())),
        })
    }

    fn decide(&mut self, input: Input, now: Millis) -> Result<Reply, ServeError> {
        let decision = decide(&self.state, &self.plan, now, &self.presence, input);
        self.apply(&decision.records)?;
        self.tick(now)?;
        Ok(decision.reply)
    }

    fn apply(&mut self, records: &[Record]) -> Result<(), ServeError> {
        for record in records {
            self.history.add(record);
            self.state.apply(record)?;
        }
        Ok(())
    }
}
