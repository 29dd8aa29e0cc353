//! How each version of the model was made.

use fl_compress::Digest;

use crate::state_machine::log::Log;
use crate::storage::record::Record;

/// A version after 0: made by a closed round, or by a rollback, which has no frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    /// Rounds behind the model, without those that were rolled back.
    pub depth: u64,
    /// For a rollback: the version whose model it has.
    pub base: Option<u64>,
    /// Its number, which is that of the round.
    pub round: u64,
    /// Digest of the model update's frame.
    pub frame: Digest,
    pub frame_len: u64,
    pub model: Digest,
}

/// The versions of a run: a fold of its records. A copy takes constant time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Versions {
    /// Digest of the model of version 0.
    initial: Option<Digest>,
    /// The one at index `i` is version `i + 1`.
    made: Log<Version>,
}

impl Versions {
    /// Adds the version that a record makes, if it makes one. Records of a run must be added in order.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::Started { model, .. } => self.initial = Some(*model),
            Record::RoundClosed { round, step, .. } => self.made.push(Version {
                depth: self.depth(self.newest()) + 1,
                base: None,
                round: *round,
                frame: step.frame,
                frame_len: step.frame_len,
                model: step.model,
            }),
            Record::RolledBack { version, to, model, .. } => self.made.push(Version {
                depth: self.depth(*to),
                base: Some(*to),
                round: *version,
                frame: Digest([0; 32]),
                frame_len: 0,
                model: *model,
            }),
            _ => {}
        }
    }

    /// All after version 0, in order.
    pub fn made(&self) -> &Log<Version> {
        &self.made
    }

    /// The newest after version 0.
    pub fn last(&self) -> Option<&Version> {
        self.get(self.newest())
    }

    fn get(&self, version: u64) -> Option<&Version> {
        self.made.get(usize::try_from(version.checked_sub(1)?).ok()?)
    }

    /// The newest version: the number of rounds closed and of rollbacks.
    pub fn newest(&self) -> u64 {
        self.made.len() as u64
    }

    /// Rounds behind a version, without those that were rolled back.
    pub fn depth(&self, version: u64) -> u64 {
        self.get(version).map_or(0, |made| made.depth)
    }

    /// The newest version that a round made, not a rollback. 0 if there is none.
    pub fn last_closed(&self) -> u64 {
        let mut version = self.newest();
        while self.get(version).is_some_and(|made| made.base.is_some()) {
            version -= 1;
        }
        version
    }

    /// The newest rollback: its version, and the version whose model it is.
    pub fn rolled_back(&self) -> Option<(u64, u64)> {
        let rollbacks = self.made.iter().filter_map(|made| Some((made.round, made.base?)));
        rollbacks.last()
    }

    pub fn model(&self, version: u64) -> Option<Digest> {
        match version {
            0 => self.initial,
            version => self.get(version).map(|made| made.model),
        }
    }

    /// Frames of the model updates whose sum with version 0 is this version; `None` if there is no such version.
    pub fn steps(&self, version: u64) -> Option<Vec<Digest>> {
        let mut steps = Vec::new();
        let mut at = version;
        while at > 0 {
            let made = self.get(at)?;
            at = match made.base {
                // A record that names a later version would have no end.
                Some(to) if to >= at => return None,
                Some(to) => to,
                None => {
                    steps.push(made.frame);
                    at - 1
                }
            };
        }
        steps.reverse();
        Some(steps)
    }
}
