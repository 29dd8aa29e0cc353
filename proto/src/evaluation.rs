//! A client's evaluation of one model version.

use crate::error::ProtocolError;
use crate::limits::MAX_EXAMPLES;
use crate::names::RunName;
use crate::wire;

/// The result of evaluating a model version on a client's held-out examples.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationReport {
    /// The run.
    pub run: RunName,
    /// The model version.
    pub version: u64,
    /// Examples, at least 1.
    pub examples: u64,
    /// Mean loss, finite.
    pub loss: f64,
    /// Examples classified correctly, at most `examples`.
    pub correct: u64,
}

impl From<EvaluationReport> for wire::EvaluationReport {
    fn from(report: EvaluationReport) -> Self {
        Self {
            run: report.run.to_string(),
            version: report.version,
            examples: report.examples,
            loss: report.loss,
            correct: report.correct,
        }
    }
}

impl TryFrom<wire::EvaluationReport> for EvaluationReport {
    type Error = ProtocolError;

    fn try_from(report: wire::EvaluationReport) -> Result<Self, ProtocolError> {
        let wire::EvaluationReport {
            run,
            version,
            examples,
            loss,
            correct,
        } = report;
        if examples == 0 || examples > MAX_EXAMPLES {
            return Err(ProtocolError::invalid(
                "examples",
                format!("{examples} must be 1 to {MAX_EXAMPLES}"),
            ));
        }
        if correct > examples {
            return Err(ProtocolError::invalid(
                "correct",
                format!("{correct} is more than the {examples} examples"),
            ));
        }
        if !loss.is_finite() {
            return Err(ProtocolError::invalid("loss", format!("{loss} is not finite")));
        }
        Ok(Self {
            run: run.parse()?,
            version,
            examples,
            loss,
            correct,
        })
    }
}
