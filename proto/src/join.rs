//! Joining a run: what a client sends, and all that it needs to take part.

use std::time::Duration;

use fl_compress::{Average, Digest, Layout, Role, Spec, TensorSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ProtocolError;
use crate::extra::Extra;
use crate::foreign_text::foreign_text;
use crate::limits::{MAX_PING_EVERY, MAX_SOFTWARE, MAX_TASK, MAX_TASKS, PROTOCOL_MAJOR, PROTOCOL_MINOR};
use crate::names::{ClientId, RunName};
use crate::run_digest::RunDigest;
use crate::tensors;
use crate::training::{TrainTable, Training};
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
    /// For each of `tasks`, a digest of the names of its classes; 0 if the client does not know them. May be shorter.
    pub classes: Vec<u64>,
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
            classes: request.classes,
        }
    }
}

impl TryFrom<wire::JoinRequest> for JoinRequest {
    type Error = ProtocolError;

    fn try_from(request: wire::JoinRequest) -> Result<Self, ProtocolError> {
        check_version(request.protocol_major, request.protocol_minor)?;
        if request.classes.len() > request.tasks.len() {
            let why = format!("{} digests for {} tasks", request.classes.len(), request.tasks.len());
            return Err(ProtocolError::invalid("classes", why));
        }
        Ok(Self {
            classes: request.classes,
            tasks: read_tasks(&request.tasks)?,
            pending: request.pending.map(UpdateId::try_from).transpose()?,
            software: foreign_text(&request.software, MAX_SOFTWARE),
            device: foreign_text(&request.device, MAX_SOFTWARE),
            known: Some(RunDigest(request.known)).filter(|known| known.0 != 0),
        })
    }
}

/// Refuses a client of another major version.
pub(crate) fn check_version(major: u32, minor: u32) -> Result<(), ProtocolError> {
    if major == PROTOCOL_MAJOR {
        return Ok(());
    }
    let why = format!(
        "the client speaks version {major}.{minor}, this server {PROTOCOL_MAJOR}.{PROTOCOL_MINOR}; update the older of the two"
    );
    Err(ProtocolError::invalid("protocol_major", why))
}

pub(crate) fn read_tasks(tasks: &[String]) -> Result<Vec<String>, ProtocolError> {
    if tasks.len() > MAX_TASKS {
        return Err(ProtocolError::invalid(
            "tasks",
            format!("{} is above {MAX_TASKS}", tasks.len()),
        ));
    }
    Ok(tasks.iter().map(|task| foreign_text(task, MAX_TASK)).collect())
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
    /// Minor version of the server's protocol.
    pub minor: u32,
    /// The mean of the last versions that is evaluated beside the newest.
    pub average: Option<Average>,
    /// Time without a byte after which the server sends a ping, [`MAX_PING_EVERY`] at most.
    pub ping_every: Duration,
}

impl Joined {
    /// What all clients of the run are told alike.
    ///
    /// # Errors
    /// `Invalid` if a table cannot be written as JSON.
    pub(crate) fn run_to_wire(&self) -> Result<wire::Run, ProtocolError> {
        let train = TrainTable {
            training: self.training,
            extra: self.extra.clone(),
        };
        Ok(wire::Run {
            protocol_minor: self.minor,
            name: self.run.to_string(),
            task: self.task.clone(),
            rounds: self.rounds,
            seed: self.seed,
            instance: self.instance.0.to_vec().into(),
            layout: tensors::layout_to_wire(&self.layout),
            aside: tensors::aside_to_wire(&self.aside),
            initial: self.initial.0.to_vec().into(),
            base: self.base.map_or_else(Default::default, |base| base.0.to_vec().into()),
            serves_base: self.serves_base,
            train: to_json("train", &train)?,
            uplink: to_json("uplink", &self.uplink)?,
            average: to_json("average", &self.average)?,
            max_frame: self.max_frame,
            ping_every_ms: self.ping_every.as_millis() as u64,
        })
    }

    /// What `client` is told. `pending`: the answer to its pending update.
    ///
    /// # Errors
    /// `Invalid`, with the field.
    pub(crate) fn of_wire(
        client: ClientId,
        pending: Option<UpdateReply>,
        run: wire::Run,
    ) -> Result<Self, ProtocolError> {
        let layout = tensors::layout(run.layout)?;
        let aside = tensors::aside(run.aside, &layout)?;
        let has_base = aside.iter().any(|tensor| tensor.role == Role::Frozen);
        if has_base == run.base.is_empty() {
            return Err(ProtocolError::invalid(
                "base",
                "there is a digest of the frozen tensors if and only if there are any",
            ));
        }
        let base = has_base.then(|| digest("base", &run.base)).transpose()?;
        let TrainTable { training, extra } = from_json("train", &run.train)?;
        Ok(Self {
            client,
            run: run.name.parse()?,
            task: run.task,
            rounds: run.rounds,
            seed: run.seed,
            layout,
            aside,
            base,
            serves_base: run.serves_base && has_base,
            training,
            extra,
            uplink: from_json("uplink", &run.uplink)?,
            max_frame: run.max_frame,
            pending,
            initial: digest("initial", &run.initial)?,
            instance: digest("instance", &run.instance)?,
            minor: run.protocol_minor,
            average: from_json("average", &run.average)?,
            ping_every: Duration::from_millis(run.ping_every_ms).min(MAX_PING_EVERY),
        })
    }
}

fn to_json(field: &'static str, table: &impl Serialize) -> Result<String, ProtocolError> {
    serde_json::to_string(table).map_err(|error| ProtocolError::invalid(field, error.to_string()))
}

/// A table of run.toml. One with a key or a value that this program does not know is refused.
fn from_json<T: DeserializeOwned>(field: &'static str, text: &str) -> Result<T, ProtocolError> {
    serde_json::from_str(text).map_err(|error| {
        let why = format!("{error}; if this client is older than the server, update it");
        ProtocolError::invalid(field, why)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

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

    fn read(run: wire::Run) -> Result<Joined, ProtocolError> {
        Joined::of_wire(joined().client, joined().pending, run)
    }

    fn refused(change: impl FnOnce(&mut wire::Run)) -> String {
        let mut run = joined().run_to_wire().unwrap();
        change(&mut run);
        read(run).unwrap_err().to_string()
    }

    #[test]
    fn replies_survive_the_wire() {
        let averages = [None, Some(Average::Ema(0.1 + 0.2))];
        for joined in averages.map(|average| Joined { average, ..joined() }) {
            assert_eq!(read(joined.run_to_wire().unwrap()).unwrap(), joined);
        }
    }

    #[test]
    fn another_major_version_is_refused_with_both_named() {
        let mut request = wire::JoinRequest::from(JoinRequest::default());
        request.protocol_minor = 99;
        assert!(JoinRequest::try_from(request.clone()).is_ok());
        request.protocol_major = 7;
        let text = JoinRequest::try_from(request).unwrap_err().to_string();
        let ours = format!("{PROTOCOL_MAJOR}.{PROTOCOL_MINOR}");
        assert!(text.contains("7.99") && text.contains(&ours), "{text}");
    }

    #[test]
    fn frozen_tensors_and_their_digest_come_together() {
        assert!(refused(|run| run.base = Default::default()).contains("base"));
        assert!(refused(|run| run.aside.clear()).contains("base"));
    }

    #[test]
    fn what_is_out_of_range_or_unknown_to_this_client_is_refused_by_name() {
        for average in [
            r#"{"last":1}"#,
            r#"{"ema":1.0}"#,
            r#"{"last":5,"ema":0.8}"#,
            "",
            r#"{"median":3}"#,
        ] {
            let text = refused(|run| run.average = average.to_owned());
            assert!(
                text.contains("average") && text.contains("update it"),
                "{average}: {text}"
            );
        }
        assert!(refused(|run| run.layout[0].dims = vec![u64::MAX, 2]).contains("layout"));
        for (table, key) in [
            (r#"{"batch_size":0}"#, "batch_size"),
            (r#"{"sharpness":0.1}"#, "sharpness"),
            (r#"{"optimizer":"lion"}"#, "lion"),
            (r#"{"extra":{"a":null}}"#, "train.extra"),
        ] {
            let text = refused(|run| run.train = table.to_owned());
            assert!(text.contains("`train`") && text.contains(key), "{table}: {text}");
        }
        assert!(refused(|run| run.uplink = r#"{"codec":{}}"#.to_owned()).contains("`uplink`"));
    }

    proptest! {
        #[test]
        fn every_number_of_the_training_keeps_its_bits(bits in 1u32..0x7f80_0000, decay in 0x0080_0000u32..0x3f80_0000) {
            let training = Training {
                learning_rate: f32::from_bits(bits),
                weight_decay: f32::from_bits(decay),
                ..Training::default()
            };
            let joined = Joined { training, ..joined() };
            prop_assert_eq!(read(joined.run_to_wire().unwrap()).unwrap(), joined);
        }
    }
}
