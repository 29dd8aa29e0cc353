//! A client's evaluation of one model version.

use std::sync::Arc;

use crate::error::ProtocolError;
use crate::limits::MAX_EXAMPLES;
use crate::metrics::Metrics;
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
    /// Examples classified correctly, at most `examples`; `None` if the model does not classify.
    pub correct: Option<u64>,
    /// Further figures of the evaluation.
    pub metrics: Arc<Metrics>,
}

impl From<EvaluationReport> for wire::EvaluationReport {
    fn from(report: EvaluationReport) -> Self {
        Self {
            run: report.run.to_string(),
            version: report.version,
            examples: report.examples,
            loss: report.loss,
            correct: report.correct,
            metrics: report.metrics.to_wire(),
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
            metrics,
        } = report;
        if examples == 0 || examples > MAX_EXAMPLES {
            return Err(ProtocolError::invalid(
                "examples",
                format!("{examples} must be 1 to {MAX_EXAMPLES}"),
            ));
        }
        if let Some(correct) = correct.filter(|correct| *correct > examples) {
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
            metrics: Metrics::from_wire(metrics)?.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(correct: Option<u64>) -> EvaluationReport {
        EvaluationReport {
            run: "r".parse().unwrap(),
            version: 3,
            examples: 20,
            loss: 2.5,
            correct,
            metrics: crate::metrics::sample().into(),
        }
    }

    #[test]
    fn reports_survive_the_wire_whether_the_model_classifies_or_not() {
        for correct in [None, Some(0), Some(20)] {
            let sent = wire::EvaluationReport::from(report(correct));
            assert_eq!(EvaluationReport::try_from(sent).unwrap(), report(correct));
        }
    }

    #[test]
    fn impossible_reports_are_refused_by_field() {
        let refused = |change: fn(&mut wire::EvaluationReport)| {
            let mut wire = wire::EvaluationReport::from(report(Some(5)));
            change(&mut wire);
            EvaluationReport::try_from(wire).unwrap_err().to_string()
        };
        assert!(refused(|r| r.examples = 0).contains("`examples`"));
        assert!(refused(|r| r.correct = Some(21)).contains("21 is more than"));
        assert!(refused(|r| r.loss = f64::NAN).contains("`loss`"));
        assert!(refused(|r| r.metrics[0].value = f64::INFINITY).contains("`f1` is inf"));
        assert!(refused(|r| r.metrics[0].name = "top 5".into()).contains("`top 5` must be"));
    }
}
