//! Joining a run: what a client sends, and all that it needs to take part.

use std::time::Duration;

use fl_compress::{Average, Digest, Layout, Role, Spec, TensorSpec};

use crate::error::ProtocolError;
use crate::extra::Extra;
use crate::limits::{MAX_PING_EVERY, MAX_SOFTWARE, MAX_TASKS, PINGS_BEFORE_1_10, PROTOCOL_MAJOR, PROTOCOL_MINOR};
use crate::names::{ClientId, RunName};
use crate::run_digest::RunDigest;
use crate::tensors;
use crate::training::Training;
use crate::update::{UpdateId, UpdateReply, digest};
use crate::wire;

/// What a client sends to join.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JoinRequest {
    /// Tasks for which the client has a learner and data.
    pub tasks: Vec<String>,
    /// The update that the client has pending.
    pub pending: Option<UpdateId>,
    /// Version of the client's program, for the server's list of clients. At most [`MAX_SOFTWARE`] bytes.
    pub software: String,
    /// The client's device as configured, for the same.
    pub device: String,
    /// The run that an earlier reply told of.
    pub known: Option<RunDigest>,
}

impl From<JoinRequest> for wire::JoinRequest {
    fn from(request: JoinRequest) -> Self {
        Self {
            protocol_major: PROTOCOL_MAJOR,
            protocol_minor: PROTOCOL_MINOR,
            tasks: request.tasks,
            pending: request.pending.as_ref().map(Into::into),
            software: request.software,
            device: request.device,
            known: request.known.map_or(0, |known| known.0),
        }
    }
}

impl TryFrom<wire::JoinRequest> for JoinRequest {
    type Error = ProtocolError;

    fn try_from(request: wire::JoinRequest) -> Result<Self, ProtocolError> {
        if request.protocol_major != PROTOCOL_MAJOR {
            let theirs = format!("{}.{}", request.protocol_major, request.protocol_minor);
            let why = format!(
                "the client speaks version {theirs}, this server {PROTOCOL_MAJOR}.{PROTOCOL_MINOR}; update the older of the two"
            );
            return Err(ProtocolError::invalid("protocol_major", why));
        }
        if request.tasks.len() > MAX_TASKS {
            return Err(ProtocolError::invalid(
                "tasks",
                format!("{} is above {MAX_TASKS}", request.tasks.len()),
            ));
        }
        Ok(Self {
            tasks: request.tasks,
            pending: request.pending.map(UpdateId::try_from).transpose()?,
            software: printable(&request.software),
            device: printable(&request.device),
            known: Some(RunDigest(request.known)).filter(|known| known.0 != 0),
        })
    }
}

/// The printable beginning of a text that a client says of itself.
fn printable(text: &str) -> String {
    let mut kept = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if kept.len() + c.len_utf8() > MAX_SOFTWARE {
            break;
        }
        kept.push(c);
    }
    kept
}

/// What a client receives when it has joined.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    /// The client's own name.
    pub client: ClientId,
    /// The run.
    pub run: RunName,
    /// The run's task.
    pub task: String,
    /// The run's number of rounds.
    pub rounds: u64,
    /// The run's seed.
    pub seed: u64,
    /// The model's tensors that travel.
    pub layout: Layout,
    /// The others: local and frozen ones, sorted by name.
    pub aside: Vec<TensorSpec>,
    /// Digest of the frozen ones, if there are any.
    pub base: Option<Digest>,
    /// Whether the server sends them to clients that do not have them.
    pub serves_base: bool,
    /// Settings of local training.
    pub training: Training,
    /// Settings that a trainer gets unread.
    pub extra: Extra,
    /// How updates are compressed.
    pub uplink: Spec,
    /// Largest frame that the server takes, in bytes.
    pub max_frame: u64,
    /// The server's answer to the pending update.
    pub pending: Option<UpdateReply>,
    /// Digest of model version 0.
    pub initial: Digest,
    /// Identifies the run among runs of the same name; drawn when the run was begun.
    pub instance: Digest,
    /// Minor version of the server's protocol; 0 before version 1.4.
    pub minor: u32,
    /// The mean of the last versions that is evaluated beside the newest.
    pub average: Option<Average>,
    /// Time without a byte after which the server sends a ping, [`MAX_PING_EVERY`] at most.
    pub ping_every: Duration,
}

impl Joined {
    /// The message.
    ///
    /// # Errors
    /// `Invalid` if the spec cannot be written as JSON.
    pub fn to_wire(&self) -> Result<wire::JoinReply, ProtocolError> {
        Ok(wire::JoinReply {
            client: self.client.to_string(),
            run: self.run.to_string(),
            task: self.task.clone(),
            rounds: self.rounds,
            seed: self.seed,
            layout: tensors::layout_to_wire(&self.layout),
            training: Some(wire::Training {
                extra: self.extra.to_wire(),
                ..self.training.into()
            }),
            uplink: serde_json::to_string(&self.uplink).map_err(|e| ProtocolError::invalid("uplink", e.to_string()))?,
            max_frame: self.max_frame,
            pending: self.pending.clone().map(Into::into),
            initial: self.initial.0.to_vec().into(),
            instance: self.instance.0.to_vec().into(),
            aside: tensors::aside_to_wire(&self.aside),
            base: self.base.map_or_else(Default::default, |base| base.0.to_vec().into()),
            serves_base: self.serves_base,
            protocol_minor: self.minor,
            average_last: match self.average {
                Some(Average::Last(versions)) => versions,
                _ => 0,
            },
            average_ema: match self.average {
                Some(Average::Ema(decay)) => decay,
                _ => 0.0,
            },
            ping_every_ms: self.ping_every.as_millis() as u64,
            ..wire::JoinReply::default()
        })
    }
}

impl TryFrom<wire::JoinReply> for Joined {
    type Error = ProtocolError;

    fn try_from(reply: wire::JoinReply) -> Result<Self, ProtocolError> {
        let layout = tensors::layout(reply.layout)?;
        let aside = tensors::aside(reply.aside, &layout)?;
        let has_base = aside.iter().any(|tensor| tensor.role == Role::Frozen);
        if has_base == reply.base.is_empty() {
            return Err(ProtocolError::invalid(
                "base",
                "there is a digest of the frozen tensors if and only if there are any".to_owned(),
            ));
        }
        let base = has_base.then(|| digest("base", &reply.base)).transpose()?;
        let training = reply.training.ok_or(ProtocolError::Missing("training"))?;
        let average = match (reply.average_last, reply.average_ema) {
            (0, 0.0) => None,
            (versions, 0.0) => Some(Average::last(versions)),
            (0, decay) => Some(Average::ema(decay)),
            _ => Some(Err("both keys are set".to_owned())),
        };
        Ok(Self {
            client: reply.client.parse()?,
            run: reply.run.parse()?,
            task: reply.task,
            rounds: reply.rounds,
            seed: reply.seed,
            layout,
            aside,
            base,
            serves_base: reply.serves_base && has_base,
            extra: Extra::from_wire(&training.extra)?,
            training: training.try_into()?,
            uplink: serde_json::from_str(&reply.uplink).map_err(|e| ProtocolError::invalid("uplink", e.to_string()))?,
            max_frame: reply.max_frame,
            pending: reply.pending.map(UpdateReply::try_from).transpose()?,
            initial: digest("initial", &reply.initial)?,
            instance: digest("instance", &reply.instance)?,
            minor: reply.protocol_minor,
            average: average
                .transpose()
                .map_err(|why| ProtocolError::invalid("average", why))?,
            ping_every: match reply.ping_every_ms {
                0 => PINGS_BEFORE_1_10,
                millis => Duration::from_millis(millis).min(MAX_PING_EVERY),
            },
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::training::Schedule;

    pub(crate) fn joined() -> Joined {
        Joined {
            client: "camera-07".parse().unwrap(),
            run: "fashion".parse().unwrap(),
            task: "mlp".into(),
            rounds: 10,
            seed: 42,
            layout: Layout::new([("b", vec![2]), ("a", vec![3, 4])]).unwrap(),
            aside: vec![TensorSpec {
                name: "base".to_owned(),
                shape: vec![5],
                dtype: fl_compress::Dtype::F16,
                role: Role::Frozen,
            }],
            base: Some(Digest::of(b"frozen")),
            serves_base: true,
            training: Training {
                schedule: Schedule::Step { every: 3, factor: 0.5 },
                ..Training::default()
            },
            extra: Extra::new([("augment".to_owned(), true.into())].into_iter().collect()).unwrap(),
            uplink: Spec::default(),
            max_frame: 1 << 20,
            pending: Some(UpdateReply::Wanted { offset: 3 }),
            initial: Digest::of(b"first"),
            instance: Digest::of(b"drawn"),
            minor: PROTOCOL_MINOR,
            average: Some(Average::Last(5)),
            ping_every: Duration::from_millis(1_500),
        }
    }

    #[test]
    fn replies_survive_the_wire() {
        assert_eq!(Joined::try_from(joined().to_wire().unwrap()).unwrap(), joined());
    }

    #[test]
    fn another_major_version_is_refused_with_both_named() {
        let mut request = wire::JoinRequest::from(JoinRequest {
            tasks: vec![],
            pending: None,
            ..JoinRequest::default()
        });
        request.protocol_minor = 99;
        assert!(JoinRequest::try_from(request.clone()).is_ok());
        request.protocol_major = 7;
        let text = JoinRequest::try_from(request).unwrap_err().to_string();
        let ours = format!("{PROTOCOL_MAJOR}.{PROTOCOL_MINOR}");
        assert!(text.contains("7.99") && text.contains(&ours), "{text}");
    }

    #[test]
    fn frozen_tensors_and_their_digest_come_together() {
        let mut reply = joined().to_wire().unwrap();
        reply.base = Default::default();
        assert!(Joined::try_from(reply).unwrap_err().to_string().contains("base"));
        let mut reply = joined().to_wire().unwrap();
        reply.aside.clear();
        assert!(Joined::try_from(reply).unwrap_err().to_string().contains("base"));
    }

    #[test]
    fn averages_survive_the_wire_and_impossible_ones_are_refused() {
        for average in [None, Some(Average::Ema(0.8))] {
            let joined = Joined { average, ..joined() };
            assert_eq!(Joined::try_from(joined.to_wire().unwrap()).unwrap(), joined);
        }
        for (last, ema) in [(1, 0.0), (u32::MAX, 0.0), (0, f64::NAN), (0, 1.0), (0, -0.5), (5, 0.8)] {
            let mut reply = joined().to_wire().unwrap();
            (reply.average_last, reply.average_ema) = (last, ema);
            let text = Joined::try_from(reply).unwrap_err().to_string();
            assert!(text.contains("average"), "{last} {ema}: {text}");
        }
    }

    #[test]
    fn a_server_says_how_often_it_pings_if_it_is_new_enough() {
        for (millis, every) in [
            (0, PINGS_BEFORE_1_10),
            (1, Duration::from_millis(1)),
            (u64::MAX, MAX_PING_EVERY),
        ] {
            let mut reply = joined().to_wire().unwrap();
            reply.ping_every_ms = millis;
            assert_eq!(Joined::try_from(reply).unwrap().ping_every, every);
        }
    }

    #[test]
    fn a_layout_or_training_out_of_range_is_refused() {
        let mut reply = joined().to_wire().unwrap();
        reply.layout[0].dims = vec![u64::MAX, 2];
        assert!(Joined::try_from(reply).unwrap_err().to_string().contains("layout"));
        let mut reply = joined().to_wire().unwrap();
        reply.training = Some(wire::Training {
            batch_size: 0,
            ..Training::default().into()
        });
        assert!(Joined::try_from(reply).unwrap_err().to_string().contains("batch_size"));
    }
}
