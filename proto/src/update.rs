//! Updates: their identity, their header, and the server's answer.

use std::sync::Arc;

use bytes::Bytes;
use fl_compress::{Digest, Stages};

use crate::error::ProtocolError;
use crate::evaluation::EvaluationReport;
use crate::fidelity::SectionFidelity;
use crate::foreign_text::foreign_text;
use crate::limits::{MAX_EXAMPLES, MAX_REASON};
use crate::metrics::Metrics;
use crate::names::RunName;
use crate::wire;

/// Identifies the update of one client for one round by its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateId {
    /// The run.
    pub run: RunName,
    /// The round, from 1.
    pub round: u64,
    /// The attempt of the round in which the server asked for the update.
    pub attempt: u32,
    /// Digest of the frame.
    pub digest: Digest,
}

/// The header of an update. The server cannot verify the client's figures; it checks the frame itself.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateHeader {
    /// Identity of the update.
    pub id: UpdateId,
    /// Bytes of the frame, at least 1.
    pub len: u64,
    /// Offset of the first byte that this call sends, at most `len`.
    pub offset: u64,
    /// Examples trained on, which weight the average: 1 to [`MAX_EXAMPLES`].
    pub examples: u64,
    /// Mean training loss.
    pub loss: f64,
    /// Milliseconds of training.
    pub train_ms: u64,
    /// Milliseconds of encoding.
    pub encode_ms: u64,
    /// Bytes after each stage of compression.
    pub stages: Stages,
    /// Figures of the frame's sections, in its order; empty if the client sends none.
    pub fidelity: Vec<SectionFidelity>,
    /// Further figures of the training. Shared, because they travel from the learner to the records unchanged.
    pub metrics: Arc<Metrics>,
    /// The evaluation of the model from which the client trained, if it travels with this header.
    pub evaluation: Option<EvaluationReport>,
}

/// Why an update will never be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The round is closed, not begun, or of another run.
    NotThisRound,
    /// The client is not in the cohort.
    NotSelected,
    /// Another update of this client was accepted in this round.
    AlreadyAccepted,
    /// The frame is broken, of another layout or round, or not finite.
    Invalid,
    /// The frame is longer than the server accepts.
    TooLarge,
}

/// The server's answer to an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdateReply {
    /// Durable, and counted once.
    Accepted,
    /// Unknown: the client is to send the frame from `offset` on.
    Wanted {
        /// Bytes that the server holds already.
        offset: u64,
    },
    /// Never accepted.
    Refused {
        /// Why.
        why: Refusal,
        /// A message for a person.
        message: String,
    },
}

impl From<&UpdateId> for wire::UpdateId {
    fn from(id: &UpdateId) -> Self {
        Self {
            run: id.run.to_string(),
            round: id.round,
            attempt: id.attempt,
            digest: id.digest.0.to_vec().into(),
        }
    }
}

impl TryFrom<wire::UpdateId> for UpdateId {
    type Error = ProtocolError;

    fn try_from(id: wire::UpdateId) -> Result<Self, ProtocolError> {
        Ok(Self {
            run: id.run.parse()?,
            round: id.round,
            attempt: id.attempt,
            digest: digest("digest", &id.digest)?,
        })
    }
}

impl From<&UpdateHeader> for wire::UpdateHeader {
    fn from(header: &UpdateHeader) -> Self {
        Self {
            id: Some((&header.id).into()),
            len: header.len,
            offset: header.offset,
            examples: header.examples,
            loss: header.loss,
            train_ms: header.train_ms,
            encode_ms: header.encode_ms,
            reduced: header.stages.reduced,
            quantized: header.stages.quantized,
            coded: header.stages.coded,
            bound: header.stages.entropy_bound,
            fidelity: wire::Fidelity::from_sections(&header.fidelity),
            metrics: header.metrics.to_wire(),
            evaluation: header.evaluation.clone().map(|report| wire::EvaluationReport {
                run: String::new(),
                ..report.into()
            }),
        }
    }
}

impl TryFrom<wire::UpdateHeader> for UpdateHeader {
    type Error = ProtocolError;

    fn try_from(header: wire::UpdateHeader) -> Result<Self, ProtocolError> {
        let id = UpdateId::try_from(header.id.ok_or(ProtocolError::Missing("id"))?)?;
        if header.len == 0 || header.offset > header.len {
            let why = format!("{} bytes from offset {} are impossible", header.len, header.offset);
            return Err(ProtocolError::invalid("len", why));
        }
        if header.examples == 0 || header.examples > MAX_EXAMPLES {
            let why = format!("{} must be 1 to {MAX_EXAMPLES}", header.examples);
            return Err(ProtocolError::invalid("examples", why));
        }
        if !header.loss.is_finite() {
            return Err(ProtocolError::invalid("loss", format!("{} is not finite", header.loss)));
        }
        if !header.bound.is_finite() || header.bound < 0.0 {
            return Err(ProtocolError::invalid(
                "bound",
                format!("{} is not a size", header.bound),
            ));
        }
        let evaluation = header.evaluation.map(|report| {
            EvaluationReport::try_from(wire::EvaluationReport {
                run: id.run.to_string(),
                ..report
            })
        });
        Ok(Self {
            evaluation: evaluation.transpose()?,
            id,
            len: header.len,
            offset: header.offset,
            examples: header.examples,
            loss: header.loss,
            train_ms: header.train_ms,
            encode_ms: header.encode_ms,
            stages: Stages {
                fp32: 0,
                reduced: header.reduced,
                quantized: header.quantized,
                coded: header.coded,
                framed: header.len,
                entropy_bound: header.bound,
            },
            fidelity: wire::Fidelity::sections(header.fidelity)?,
            metrics: Metrics::from_wire(header.metrics)?.into(),
        })
    }
}

impl From<UpdateReply> for wire::UpdateReply {
    fn from(reply: UpdateReply) -> Self {
        let mut out = Self::default();
        match reply {
            UpdateReply::Accepted => out.set_verdict(wire::Verdict::Accepted),
            UpdateReply::Wanted { offset } => {
                out.set_verdict(wire::Verdict::Wanted);
                out.offset = offset;
            }
            UpdateReply::Refused { why, message } => {
                out.set_verdict(wire::Verdict::Refused);
                out.set_refusal(match why {
                    Refusal::NotThisRound => wire::Refusal::NotThisRound,
                    Refusal::NotSelected => wire::Refusal::NotSelected,
                    Refusal::AlreadyAccepted => wire::Refusal::AlreadyAccepted,
                    Refusal::Invalid => wire::Refusal::Invalid,
                    Refusal::TooLarge => wire::Refusal::TooLarge,
                });
                out.message = message;
            }
        }
        out
    }
}

impl TryFrom<wire::UpdateReply> for UpdateReply {
    type Error = ProtocolError;

    fn try_from(reply: wire::UpdateReply) -> Result<Self, ProtocolError> {
        Ok(match reply.verdict() {
            wire::Verdict::Unspecified => return Err(ProtocolError::Missing("verdict")),
            wire::Verdict::Accepted => Self::Accepted,
            wire::Verdict::Wanted => Self::Wanted { offset: reply.offset },
            wire::Verdict::Refused => {
                let why = match reply.refusal() {
                    wire::Refusal::Unspecified => return Err(ProtocolError::Missing("refusal")),
                    wire::Refusal::NotThisRound => Refusal::NotThisRound,
                    wire::Refusal::NotSelected => Refusal::NotSelected,
                    wire::Refusal::AlreadyAccepted => Refusal::AlreadyAccepted,
                    wire::Refusal::Invalid => Refusal::Invalid,
                    wire::Refusal::TooLarge => Refusal::TooLarge,
                };
                Self::Refused {
                    why,
                    message: foreign_text(&reply.message, MAX_REASON),
                }
            }
        })
    }
}

pub(crate) fn digest(field: &'static str, bytes: &Bytes) -> Result<Digest, ProtocolError> {
    let bytes: &[u8] = bytes;
    let digest = <[u8; 32]>::try_from(bytes);
    digest
        .map(Digest)
        .map_err(|_| ProtocolError::invalid(field, format!("{} bytes, not 32", bytes.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> UpdateHeader {
        UpdateHeader {
            id: UpdateId {
                run: "r".parse().unwrap(),
                round: 2,
                attempt: 3,
                digest: Digest::of(b"f"),
            },
            len: 100,
            offset: 4,
            examples: 60,
            loss: 0.5,
            train_ms: 7,
            encode_ms: 1,
            stages: Stages {
                fp32: 0,
                reduced: 80,
                quantized: 30,
                coded: 20,
                framed: 100,
                entropy_bound: 19.5,
            },
            fidelity: SectionFidelity::of(&[fl_compress::Fidelity {
                cosine: 0.5,
                kept: 0.25,
                nonzeros: 7,
                age: 0,
            }]),
            metrics: crate::metrics::sample().into(),
            evaluation: Some(EvaluationReport {
                run: "r".parse().unwrap(),
                version: 1,
                examples: 5,
                loss: 0.25,
                correct: Some(4.0),
                language: false,
                metrics: Arc::default(),
            }),
        }
    }

    #[test]
    fn headers_survive_the_wire() {
        assert_eq!(
            UpdateHeader::try_from(wire::UpdateHeader::from(&header())).unwrap(),
            header()
        );
    }

    #[test]
    fn claims_out_of_range_are_refused_by_field() {
        let refused = |change: fn(&mut wire::UpdateHeader)| {
            let mut wire = wire::UpdateHeader::from(&header());
            change(&mut wire);
            UpdateHeader::try_from(wire).unwrap_err().to_string()
        };
        assert!(refused(|h| h.id = None).contains("`id`"));
        assert!(refused(|h| h.len = 0).contains("`len`"));
        assert!(refused(|h| h.offset = 101).contains("`len`"));
        assert!(refused(|h| h.examples = 0).contains("`examples`"));
        assert!(refused(|h| h.examples = u64::MAX).contains("`examples`"));
        assert!(refused(|h| h.loss = f64::NAN).contains("`loss`"));
        assert!(refused(|h| h.bound = -1.0).contains("`bound`"));
        assert!(refused(|h| h.fidelity.as_mut().unwrap().cosine[0] = 1001).contains("`fidelity`"));
        assert!(refused(|h| h.metrics[0].value = f64::NAN).contains("`f1` is NaN"));
        assert!(refused(|h| h.metrics[1].name = "loss".into()).contains("`loss` is computed"));
        assert!(refused(|h| h.metrics[1].name = "f1".into()).contains("`f1` is given twice"));
        assert!(refused(|h| h.metrics[0].weight = -1.0).contains("weight of `f1`"));
        assert!(refused(|h| h.evaluation.as_mut().unwrap().correct = Some(6.0)).contains("`correct`"));
        assert!(refused(|h| h.metrics = vec![h.metrics[0].clone(); 5_000]).contains("`metrics`"));
    }

    #[test]
    fn replies_survive_the_wire() {
        let whys = [
            Refusal::NotThisRound,
            Refusal::NotSelected,
            Refusal::AlreadyAccepted,
            Refusal::Invalid,
            Refusal::TooLarge,
        ];
        let refusals = whys.map(|why| UpdateReply::Refused {
            why,
            message: "m".into(),
        });
        for reply in [UpdateReply::Accepted, UpdateReply::Wanted { offset: 9 }]
            .into_iter()
            .chain(refusals)
        {
            assert_eq!(
                UpdateReply::try_from(wire::UpdateReply::from(reply.clone())).unwrap(),
                reply
            );
        }
        assert!(UpdateReply::try_from(wire::UpdateReply::default()).is_err());
    }
}
