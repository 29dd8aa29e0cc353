//! The message of the `[train]` table.

use fl_compress::{Basis, SpaceSpec};

use super::optimizer::{AdamW, Muon, OptimizerSpec};
use super::schedule::{Decay, Schedule, Span};
use super::settings::{Length, Precision, StatePolicy, Training};
use crate::error::ProtocolError;
use crate::wire;

/// First minor version with every setting from `optimizer` to `precision`.
const SINCE: u32 = 3;
/// First minor version with `space`.
const SPACE_SINCE: u32 = 5;
/// First minor version with `space.blocks`.
const BLOCKS_SINCE: u32 = 9;

impl Training {
    /// The first key of run.toml that a client of this minor version would ignore; `None` if there is none.
    pub fn ignored_by(&self, minor: u32) -> Option<&'static str> {
        let usual = Self::default();
        let keys = [
            (SINCE, "optimizer", self.optimizer != usual.optimizer),
            (SINCE, "state", self.state != usual.state),
            (SINCE, "micro_batch", self.micro_batch != usual.micro_batch),
            (SINCE, "precision", self.precision != usual.precision),
            (SINCE, "warmup", self.warmup != usual.warmup),
            (SINCE, "decay", self.decay != usual.decay),
            (SPACE_SINCE, "space", self.space != usual.space),
            (
                BLOCKS_SINCE,
                "space.blocks",
                self.space.is_some_and(|space| space.blocks() > 1),
            ),
        ];
        let ignored = keys.into_iter().find(|(since, _, differs)| minor < *since && *differs);
        ignored.map(|(_, key, _)| key)
    }
}

impl From<Training> for wire::Training {
    fn from(training: Training) -> Self {
        use wire::schedule::{Constant, Cosine, Kind, Step};
        let kind = match training.schedule {
            Schedule::Constant => Kind::Constant(Constant {}),
            Schedule::Cosine => Kind::Cosine(Cosine {}),
            Schedule::Step { every, factor } => Kind::Step(Step { every, factor }),
        };
        Self {
            length: Some(match training.length {
                Length::Epochs(n) => wire::training::Length::Epochs(n),
                Length::Steps(n) => wire::training::Length::Steps(n),
            }),
            batch_size: training.batch_size,
            learning_rate: training.learning_rate,
            schedule: Some(wire::Schedule { kind: Some(kind) }),
            momentum: training.momentum,
            weight_decay: training.weight_decay,
            clip_norm: training.clip_norm,
            proximal: training.proximal,
            extra: String::new(),
            optimizer: training.optimizer.to_wire(),
            warmup: training.warmup,
            decay: match training.decay {
                Decay::Constant => wire::Decay::Constant,
                Decay::Linear => wire::Decay::Linear,
                Decay::Cosine => wire::Decay::Cosine,
            }
            .into(),
            floor: training.floor,
            over_run: training.span == Span::Run,
            keep_state: training.state == StatePolicy::Kept,
            micro_batch: training.micro_batch.unwrap_or(0),
            precision: match training.precision {
                Precision::F32 => wire::Precision::F32,
                Precision::Bf16 => wire::Precision::Bf16,
            }
            .into(),
            space: training.space.map(Into::into),
        }
    }
}

impl TryFrom<wire::Training> for Training {
    type Error = ProtocolError;

    fn try_from(training: wire::Training) -> Result<Self, ProtocolError> {
        use wire::schedule::Kind;
        let schedule = training
            .schedule
            .and_then(|s| s.kind)
            .ok_or(ProtocolError::Missing("schedule"))?;
        let decay = match wire::Decay::try_from(training.decay) {
            Ok(wire::Decay::Constant) => Decay::Constant,
            Ok(wire::Decay::Linear) => Decay::Linear,
            Ok(wire::Decay::Cosine) => Decay::Cosine,
            Err(_) => {
                let why = format!("{} is unknown to this client; update it", training.decay);
                return Err(ProtocolError::invalid("decay", why));
            }
        };
        let precision = match wire::Precision::try_from(training.precision) {
            Ok(wire::Precision::F32) => Precision::F32,
            Ok(wire::Precision::Bf16) => Precision::Bf16,
            Err(_) => {
                let why = format!("{} is unknown to this client; update it", training.precision);
                return Err(ProtocolError::invalid("precision", why));
            }
        };
        Self {
            length: match training.length.ok_or(ProtocolError::Missing("length"))? {
                wire::training::Length::Epochs(n) => Length::Epochs(n),
                wire::training::Length::Steps(n) => Length::Steps(n),
            },
            batch_size: training.batch_size,
            learning_rate: training.learning_rate,
            schedule: match schedule {
                Kind::Constant(_) => Schedule::Constant,
                Kind::Cosine(_) => Schedule::Cosine,
                Kind::Step(step) => Schedule::Step {
                    every: step.every,
                    factor: step.factor,
                },
            },
            momentum: training.momentum,
            weight_decay: training.weight_decay,
            clip_norm: training.clip_norm,
            proximal: training.proximal,
            optimizer: training
                .optimizer
                .map_or(Ok(OptimizerSpec::Sgd), OptimizerSpec::from_wire)?,
            warmup: training.warmup,
            decay,
            floor: training.floor,
            span: if training.over_run { Span::Run } else { Span::Round },
            state: if training.keep_state {
                StatePolicy::Kept
            } else {
                StatePolicy::Fresh
            },
            micro_batch: Some(training.micro_batch).filter(|micro| *micro > 0),
            precision,
            space: training.space.map(space_from_wire).transpose()?,
        }
        .checked()
    }
}

impl From<SpaceSpec> for wire::Space {
    fn from(space: SpaceSpec) -> Self {
        use wire::space::Kind;
        let kind = match space {
            SpaceSpec::Shared { values, .. } => Kind::Shared(values),
            SpaceSpec::LowRank { rank, basis } => Kind::LowRank(wire::LowRankSpace {
                rank,
                basis: match basis {
                    Basis::Random => wire::Basis::Random,
                    Basis::Dct => wire::Basis::Dct,
                }
                .into(),
            }),
        };
        Self {
            kind: Some(kind),
            blocks: Some(space.blocks()).filter(|blocks| *blocks > 1).unwrap_or_default(),
        }
    }
}

fn space_from_wire(space: wire::Space) -> Result<SpaceSpec, ProtocolError> {
    use wire::space::Kind;
    let unknown = || ProtocolError::invalid("space", "it is unknown to this client; update the client");
    Ok(match space.kind.ok_or_else(unknown)? {
        Kind::Shared(values) => SpaceSpec::Shared {
            values,
            blocks: space.blocks.max(1),
        },
        Kind::LowRank(wire::LowRankSpace { rank, basis }) => SpaceSpec::LowRank {
            rank,
            basis: match wire::Basis::try_from(basis) {
                Ok(wire::Basis::Random) => Basis::Random,
                Ok(wire::Basis::Dct) => Basis::Dct,
                Err(_) => return Err(unknown()),
            },
        },
    })
}

impl OptimizerSpec {
    /// The message; absent for SGD, as in messages of older programs.
    fn to_wire(self) -> Option<wire::LocalOptimizer> {
        use wire::local_optimizer::Kind;
        let kind = match self {
            Self::Sgd => return None,
            Self::AdamW(adamw) => Kind::Adamw(adamw.into()),
            Self::Muon(muon) => Kind::Muon(wire::Muon {
                momentum: muon.momentum,
                nesterov: muon.nesterov,
                adamw: Some(muon.adamw.into()),
            }),
        };
        Some(wire::LocalOptimizer { kind: Some(kind) })
    }

    fn from_wire(optimizer: wire::LocalOptimizer) -> Result<Self, ProtocolError> {
        use wire::local_optimizer::Kind;
        match optimizer.kind {
            Some(Kind::Adamw(adamw)) => Ok(Self::AdamW(adamw.into())),
            Some(Kind::Muon(muon)) => Ok(Self::Muon(Muon {
                momentum: muon.momentum,
                nesterov: muon.nesterov,
                adamw: muon.adamw.ok_or(ProtocolError::Missing("optimizer.muon.adamw"))?.into(),
            })),
            None => {
                let why = "it is unknown to this client; update the client";
                Err(ProtocolError::invalid("optimizer", why))
            }
        }
    }
}

impl From<AdamW> for wire::AdamW {
    fn from(AdamW { beta1, beta2, eps }: AdamW) -> Self {
        Self { beta1, beta2, eps }
    }
}

impl From<wire::AdamW> for AdamW {
    fn from(wire::AdamW { beta1, beta2, eps }: wire::AdamW) -> Self {
        Self { beta1, beta2, eps }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    fn full() -> Training {
        Training {
            optimizer: OptimizerSpec::Muon(Muon {
                nesterov: false,
                ..Muon::default()
            }),
            warmup: 7,
            decay: Decay::Cosine,
            floor: 0.125,
            span: Span::Run,
            state: StatePolicy::Kept,
            micro_batch: Some(8),
            precision: Precision::Bf16,
            space: Some(SpaceSpec::shared(9)),
            ..Training::default()
        }
    }

    #[test]
    fn every_setting_survives_the_wire() {
        let trainings = OptimizerSpec::ALL.map(|make| Training {
            optimizer: make(),
            ..Training::default()
        });
        let dct = SpaceSpec::LowRank {
            rank: 3,
            basis: Basis::Dct,
        };
        let dct = Training {
            space: Some(dct),
            ..full()
        };
        let blocks = Training {
            space: Some(SpaceSpec::Shared { values: 9, blocks: 3 }),
            ..Training::default()
        };
        assert_eq!(
            [8, 9].map(|minor| blocks.ignored_by(minor)),
            [Some("space.blocks"), None]
        );
        for training in trainings.into_iter().chain([full(), dct, blocks]) {
            let bytes = wire::Training::from(training).encode_to_vec();
            let read = wire::Training::decode(bytes.as_slice()).unwrap();
            assert_eq!(Training::try_from(read), Ok(training));
        }
    }

    /// Written by version 1.2.
    #[test]
    fn settings_at_their_defaults_are_the_bytes_of_version_1_2() {
        let bytes = b"\x08\x01\x18\x20\x25\xcd\xcc\x4c\x3d\x2a\x02\x0a\x00";
        assert_eq!(wire::Training::from(Training::default()).encode_to_vec(), bytes);
        let read = wire::Training::decode(bytes.as_slice()).unwrap();
        assert_eq!(Training::try_from(read), Ok(Training::default()));
    }

    #[test]
    fn an_older_client_would_ignore_what_differs_from_the_defaults() {
        assert_eq!(Training::default().ignored_by(2), None);
        let ignored = [2, 3, 4, 5].map(|minor| full().ignored_by(minor));
        assert_eq!(ignored, [Some("optimizer"), Some("space"), Some("space"), None]);
        let micro = Training {
            micro_batch: Some(2),
            ..Training::default()
        };
        assert_eq!(micro.ignored_by(1), Some("micro_batch"));
    }

    #[test]
    fn what_this_program_does_not_know_or_is_out_of_range_is_refused_by_name() {
        let wire = || wire::Training::from(full());
        let refused = |training: wire::Training| Training::try_from(training).unwrap_err().to_string();
        let unknown = Some(wire::LocalOptimizer { kind: None });
        assert!(
            refused(wire::Training {
                optimizer: unknown,
                ..wire()
            })
            .contains("update the client")
        );
        assert!(refused(wire::Training { decay: 9, ..wire() }).contains("decay"));
        let space = |kind| wire::Training {
            space: Some(wire::Space { kind, blocks: 0 }),
            ..wire()
        };
        assert!(refused(space(None)).contains("update the client"));
        let zero = wire::space::Kind::Shared(0);
        assert!(refused(space(Some(zero))).contains("`space.shared` is 0"));
        let many = Some(wire::Space {
            kind: Some(wire::space::Kind::Shared(5)),
            blocks: 65,
        });
        assert!(refused(wire::Training { space: many, ..wire() }).contains("`space.blocks` is 65"));
        let basis = wire::space::Kind::LowRank(wire::LowRankSpace { rank: 1, basis: 9 });
        assert!(refused(space(Some(basis))).contains("space"));
        assert!(refused(wire::Training { precision: 9, ..wire() }).contains("precision"));
        assert!(
            refused(wire::Training {
                micro_batch: 33,
                ..wire()
            })
            .contains("micro_batch")
        );
        assert!(
            refused(wire::Training {
                floor: f32::NAN,
                ..wire()
            })
            .contains("floor")
        );
    }
}
