//! The learner of the run's task: whether its model is the run's, and some steps with the run's settings.

use std::sync::Arc;
use std::time::Duration;

use fl_cli::findings::Line;
use fl_compress::{Digest, FrameKind, snapshot};
use fl_proto::{Joined, Length, Probed};

use crate::cli::check::dry_run::judged;
use crate::client::bind;
use crate::client_file::{ClientFile, LearnerEntry};
use crate::detached::DetachedClient;
use crate::error::Error;
use crate::learner::Learner;
use crate::named::Description;
use crate::tasks::Tasks;
use crate::trainer::{TrainerLearner, WorkFolder};

/// What a dry run has measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trained {
    /// Time of a round's training and encoding; `None` if the number of its steps is not known.
    pub(super) round: Option<Duration>,
    /// Bytes of the update's frame, if it was trained from weights that a learner begins with.
    pub(super) frame: Option<u64>,
}

/// What is known of the learner.
#[derive(Debug, Default)]
pub(super) struct Learned {
    pub(super) lines: Vec<Line>,
    pub(super) trained: Option<Trained>,
    /// Whether it makes the run's first weights, so that the client need not download them.
    pub(super) makes_first: bool,
}

impl Learned {
    fn only(line: Line) -> Self {
        Self {
            lines: vec![line],
            ..Self::default()
        }
    }
}

const LAYOUT: &str = "layout";
const TRAINING: &str = "training";

/// Compares the learner with the run and trains `steps` steps.
pub(super) fn lines(file: &ClientFile, probed: &Probed, steps: Option<u32>) -> Learned {
    let joined = &probed.run;
    let Some(entry) = file.tasks.get(&joined.task) else {
        return Learned::only(Line::failed(LAYOUT, format!("no task `{}`", joined.task)));
    };
    if joined.base.is_some() {
        let line = Line::warning(
            LAYOUT,
            "not compared: the run has frozen tensors, which the client looks for when it has joined",
            "run the client, and look at its log",
        );
        return Learned::only(line);
    }
    let (learner, known) = match (&entry.learner, file.named(&joined.task)) {
        (_, Some(named)) => match named.describe(file.device, "") {
            Ok(Description {
                learner,
                examples,
                classes,
                ..
            }) => (learner, Some((examples, classes))),
            // The group of tasks has reported it.
            Err(_) => return Learned::default(),
        },
        (LearnerEntry::Trainer(trainer), _) if trainer.command.is_some() && steps.is_some() => {
            let started = file.trainer_aside(&joined.task).and_then(TrainerLearner::new);
            match started {
                Ok(learner) => (Box::new(learner) as Box<dyn Learner>, None),
                Err(error) => return Learned::only(Line::failed(LAYOUT, format!("{error:#}"))),
            }
        }
        _ => {
            let line = Line::warning(
                LAYOUT,
                "not compared: only the trainer knows its model",
                "add `--dry-run 3`, which starts the trainer (one with `command`)",
            );
            return Learned::only(line);
        }
    };
    compare(learner, joined, known, steps)
}

/// Number of the learner's examples, and among how many classes it chooses; `None` of a trainer.
type Known = Option<(u64, Option<usize>)>;

fn compare(mut learner: Box<dyn Learner>, joined: &Joined, known: Known, steps: Option<u32>) -> Learned {
    if let Err(error) = bind(learner.as_mut(), joined, None) {
        let text = match error {
            Error::Learner(text) => text,
            error => error.to_string(),
        };
        return Learned::only(Line::failed(LAYOUT, text));
    }
    let text = format!("the learner's {} tensors are the run's", joined.layout.tensors().len());
    let mut lines = vec![Line::good(LAYOUT, text)];
    let own = learner.initial(joined.seed, &Arc::default());
    let own = own.map(|weights| Digest::of_f32(&weights));
    let makes_first = own == Some(joined.initial);
    let Some(steps) = steps else {
        return Learned {
            lines,
            trained: None,
            makes_first,
        };
    };
    let trained = match train(learner, own, joined, known, steps) {
        Ok((line, trained)) => {
            lines.push(line);
            Some(trained)
        }
        Err(error) => {
            lines.push(Line::failed(TRAINING, error.to_string()));
            None
        }
    };
    Learned {
        lines,
        trained,
        makes_first,
    }
}

/// Trains and encodes as in a round, in a folder of its own. `own`: the learner's own first weights, if it makes any.
fn train(
    learner: Box<dyn Learner>,
    own: Option<Digest>,
    joined: &Joined,
    known: Known,
    steps: u32,
) -> Result<(Line, Trained), Error> {
    let folder = WorkFolder::create(&std::env::temp_dir(), None);
    let folder = folder.map_err(|error| Error::Config(format!("{error:#}")))?;
    let mut joined = joined.clone();
    joined.initial = own.unwrap_or(joined.initial);
    let of_round = joined.training.length;
    joined.training.length = Length::Steps(steps);
    let batch = u64::from(joined.training.batch_size);
    let layout = joined.layout.clone();
    let tasks = Tasks::new().with(joined.task.clone(), learner);
    let mut client = DetachedClient::join(&folder.path().join("state"), tasks, joined)?;
    if client.held()?.is_none() {
        let zeros = snapshot(&layout, &vec![0.0; layout.len()], 0);
        let zeros = zeros.map_err(|error| Error::Learner(error.to_string()))?;
        client.apply(0, FrameKind::Snapshot, zeros.into())?;
    }
    let (header, frame) = client.train(1, 1, None, None)?;
    let (training, encoding) = (
        Duration::from_millis(header.train_ms),
        Duration::from_millis(header.encode_ms),
    );
    let each = training.as_secs_f64() / f64::from(steps);
    let steps_of_round = match of_round {
        Length::Steps(steps) => Some(u64::from(steps)),
        Length::Epochs(epochs) => known.map(|(examples, _)| u64::from(epochs) * examples.div_ceil(batch)),
    };
    let text = format!(
        "{steps} steps in {:.2} s, loss {:.4}; an update of {} bytes, encoded in {:.2} s",
        training.as_secs_f64(),
        header.loss,
        frame.len(),
        encoding.as_secs_f64()
    );
    let round = steps_of_round.map(|steps| Duration::from_secs_f64((each * steps as f64).min(1e9)) + encoding);
    let trained = Trained {
        round,
        frame: own.is_some().then_some(frame.len() as u64),
    };
    let line = judged(
        Line::good(TRAINING, text),
        header.loss,
        known.and_then(|(_, classes)| classes),
    );
    Ok((line, trained))
}
