//! The state and behavior of the scripted server: a run of one client, with faults on request.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use fl_compress::{Average, Digest, Encoder, Frame, FrameHeader, FrameKind, Layout, Spec, snapshot};
use fl_proto::{
    Availability, Departure, EvaluationReport, FramePart, Phase, Refusal, RoundState, Training, UpdateHeader,
};
use tokio::sync::watch;

/// A call that the server received.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    Join {
        pending: Option<u64>,
    },
    Fetch {
        held: Option<u64>,
        want: u64,
    },
    Offer {
        round: u64,
    },
    /// An update on the watch stream.
    Push {
        round: u64,
    },
    Submit {
        round: u64,
        offset: u64,
    },
    Evaluate {
        version: u64,
    },
    Leave(Departure),
    /// The client says whether it is available.
    Reports(Availability),
    /// The fault has occurred; no further call is answered.
    Taken,
}

/// The fault of the next upload.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Keeps the first bytes, then reports that it is stopping.
    CutAfter(usize),
    /// Keeps the first bytes, then never answers.
    HangAfter(usize),
    /// Accepts the update, but the receipt is lost.
    LoseReceipt,
    /// Rejects the update.
    Refuse(Refusal),
    /// Reports that another process with this certificate has taken over.
    Displace,
}

/// The fault of a fetched model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tamper {
    /// The model updates belong to another model.
    Steps,
    /// The model updates and the snapshot do.
    Everything,
}

/// Receives every call before it is answered.
pub type Hook = Box<dyn FnMut(&Call) + Send>;

pub struct World {
    pub layout: Arc<Layout>,
    pub instance: Digest,
    /// The name in the client's certificate, as the server says.
    pub client: &'static str,
    pub spec: Spec,
    pub training: Training,
    pub rounds: u64,
    pub round: u64,
    /// The attempt in which the client is asked.
    pub attempt: u32,
    pub phase: Phase,
    pub evaluate: bool,
    /// Whether each version is to be evaluated.
    pub evaluate_all: bool,
    /// The version whose evaluation the server requests once, of a client that is not in the cohort, without an answer to it.
    pub hang_evaluating: Option<u64>,
    /// Whether the run ends only after the final model is evaluated.
    pub evaluate_at_end: bool,
    /// Model of each version, and the model update that led to it.
    pub versions: Vec<(Vec<f32>, Vec<u8>)>,
    pub accepted: Vec<(u64, Digest, Vec<u8>)>,
    pub refused: Vec<Digest>,
    pub partial: BTreeMap<[u8; 32], Vec<u8>>,
    pub calls: Vec<Call>,
    /// Headers of all uploads, and evaluations.
    pub headers: Vec<UpdateHeader>,
    pub evaluations: Vec<EvaluationReport>,
    /// Whether small updates and model updates travel on the watch stream. Otherwise the server answers no update there, and the
    /// client takes the calls.
    pub pushes: bool,
    pub average: Option<Average>,
    pub faults: VecDeque<Fault>,
    pub tamper: Option<Tamper>,
    /// Whether model updates on the watch stream are broken.
    pub tamper_pushes: bool,
    /// Whether the server ends the watch of a run that is over or has failed.
    pub ends: bool,
    /// Budget of the client's updates.
    pub budget: Option<u64>,
    /// The digest of the classes in each `Join`, and the digest that is refused.
    pub classes: Vec<Vec<u64>>,
    pub refused_classes: Option<u64>,
    /// With which status the server refuses to let the client join.
    pub denies: Option<tonic::Code>,
    /// Receives every call before it is answered.
    pub hook: Option<Hook>,
    pub state: watch::Sender<RoundState>,
}

impl World {
    pub fn new(rounds: u64) -> Self {
        let layout = super::layout();
        let first: Vec<f32> = (0..layout.len()).map(|i| i as f32 / 4.0).collect();
        let state = RoundState {
            round: 1,
            phase: Phase::Training,
            selected: true,
            attempt: 1,
            accepted: None,
            version: 0,
            model: Digest::of_f32(&first).into(),
            evaluate: false,
            left: None,
            message: String::new(),
            step: Bytes::new(),
            budget: None,
            bandwidth: None,
        };
        Self {
            layout,
            instance: Digest::of(b"one"),
            client: "alpha",
            pushes: false,
            average: None,
            spec: super::spec(),
            training: Training::default(),
            rounds,
            round: 1,
            attempt: 1,
            phase: Phase::Training,
            evaluate: false,
            evaluate_all: false,
            hang_evaluating: None,
            evaluate_at_end: false,
            versions: vec![(first, Vec::new())],
            accepted: Vec::new(),
            refused: Vec::new(),
            partial: BTreeMap::new(),
            calls: Vec::new(),
            headers: Vec::new(),
            evaluations: Vec::new(),
            faults: VecDeque::new(),
            tamper: None,
            tamper_pushes: false,
            ends: false,
            budget: None,
            classes: Vec::new(),
            refused_classes: None,
            denies: None,
            hook: None,
            state: watch::Sender::new(state),
        }
    }

    pub fn called(&mut self, call: Call) {
        if let Some(hook) = &mut self.hook {
            hook(&call);
        }
        self.calls.push(call);
    }

    /// The calls that fetch a model.
    pub fn fetches(&self) -> Vec<Call> {
        let fetches = self.calls.iter().filter(|call| matches!(call, Call::Fetch { .. }));
        fetches.cloned().collect()
    }

    /// Times that a client has joined.
    pub fn joins(&self) -> usize {
        let joins = self.calls.iter().filter(|call| matches!(call, Call::Join { .. }));
        joins.count()
    }

    /// What travels with the state of a round, from a server that pushes.
    fn step(&self) -> Bytes {
        match self.pushes {
            true if self.tamper_pushes && self.versions.len() > 1 => Bytes::from_static(b"no frame"),
            true => Bytes::from(self.versions.last().unwrap().1.clone()),
            false => Bytes::new(),
        }
    }

    /// Sends the state of the run to the client.
    pub fn publish(&self) {
        let version = self.versions.len() as u64 - 1;
        let accepted = self
            .accepted
            .iter()
            .find(|(round, ..)| *round == self.round)
            .map(|(_, digest, _)| *digest);
        self.state.send_replace(RoundState {
            round: self.round,
            phase: self.phase,
            selected: self.hang_evaluating != Some(version),
            attempt: self.attempt,
            accepted,
            version,
            model: Digest::of_f32(&self.versions.last().unwrap().0).into(),
            evaluate: self.evaluate,
            left: None,
            message: String::new(),
            step: self.step(),
            budget: self.budget,
            bandwidth: None,
        });
    }

    fn model_update(&self, round: u64, update: &[f32]) -> Vec<u8> {
        let header = FrameHeader {
            kind: FrameKind::ModelUpdate,
            round,
            seed: 0,
        };
        let mut encoder = Encoder::new(Arc::clone(&self.layout), &Spec::exact()).unwrap();
        encoder.encode(&mut update.to_vec(), header).unwrap().frame
    }

    /// Closes the round with a model update that adds `update`, and opens the next round.
    pub fn advance(&mut self, update: &[f32]) {
        let version = self.versions.len() as u64;
        let step = self.model_update(version, update);
        let mut model = self.versions.last().unwrap().0.clone();
        Frame::parse(&step, &self.layout)
            .unwrap()
            .accumulate(1.0, &mut model)
            .unwrap();
        self.versions.push((model, step));
        self.evaluate |= self.evaluate_all || self.hang_evaluating == Some(version);
        self.round += 1;
        if self.round > self.rounds {
            self.round = self.rounds;
            (self.phase, self.evaluate) = if self.evaluate_at_end {
                (Phase::Evaluating, true)
            } else {
                (Phase::Done, false)
            };
        }
        self.publish();
    }

    pub fn accept(&mut self, round: u64, digest: Digest, frame: Vec<u8>) {
        let mut update = vec![0.0; self.layout.len()];
        let parsed = Frame::parse(&frame, &self.layout).unwrap();
        parsed.accumulate(1.0, &mut update).unwrap();
        if let Some(named) = parsed.predictor() {
            let (_, step) = self.versions.last().unwrap();
            assert_eq!(named, Digest::of(step).short(), "round {round}");
            let step = Frame::parse(step, &self.layout).unwrap();
            step.accumulate(1.0, &mut update).unwrap();
        }
        self.accepted.push((round, digest, frame));
        self.advance(&update);
    }

    /// Header and frames of a fetch.
    pub fn fetched(&self, held: Option<u64>, want: u64) -> (fl_proto::ModelHeader, Vec<Vec<u8>>) {
        let part = |version: u64, frame: &Vec<u8>| FramePart {
            version,
            len: frame.len() as u64,
            digest: Digest::of(frame),
        };
        let another = vec![1.0; self.layout.len()];
        let Some(held) = held.filter(|held| *held < want) else {
            let model = if self.tamper == Some(Tamper::Everything) {
                &another
            } else {
                &self.versions[want as usize].0
            };
            let frame = snapshot(&self.layout, model, want).unwrap();
            return (fl_proto::ModelHeader::snapshot(part(want, &frame)), vec![frame]);
        };
        let frames: Vec<Vec<u8>> = (held + 1..=want)
            .map(|version| match self.tamper {
                None => self.versions[version as usize].1.clone(),
                Some(_) => self.model_update(version, &another),
            })
            .collect();
        let parts = (held + 1..=want)
            .zip(&frames)
            .map(|(version, frame)| part(version, frame))
            .collect();
        (fl_proto::ModelHeader::steps(parts), frames)
    }
}
