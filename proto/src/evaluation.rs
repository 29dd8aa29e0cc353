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
    /// Examples classified correctly, 0 to `examples`: a fraction where examples have weights. `None` if the model does not
    /// classify.
    pub correct: Option<f64>,
    /// Whether `loss` is of tokens, so that its exponential is the perplexity of a language model.
    pub language: bool,
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
            language: report.language,
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
            language,
        } = report;
        if examples == 0 || examples > MAX_EXAMPLES {
            return Err(ProtocolError::invalid(
                "examples",
                format!("{examples} must be 1 to {MAX_EXAMPLES}"),
            ));
        }
        if let Some(correct) = correct.filter(|correct| !(0.0..=examples as f64).contains(correct)) {
            return Err(ProtocolError::invalid(
                "correct",
                format!("{correct} is not 0 to the {examples} examples"),
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
            language,
            metrics: Metrics::from_wire(metrics)?.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(correct: Option<f64>) -> EvaluationReport {
        EvaluationReport {
            run: "r".parse().unwrap(),
            version: 3,
            examples: 20,
            loss: 2.5,
            correct,
            language: correct.is_none(),
            metrics: crate::metrics::sample().into(),
        }
    }

    #[test]
    fn reports_survive_the_wire_whether_the_model_classifies_or_not() {
        for correct in [None, Some(0.0), Some(2.5), Some(20.0)] {
            let sent = wire::EvaluationReport::from(report(correct));
            assert_eq!(EvaluationReport::try_from(sent).unwrap(), report(correct));
        }
    }

    #[test]
    fn impossible_reports_are_refused_by_field() {
        let refused = |change: fn(&mut wire::EvaluationReport)| {
            let mut wire = wire::EvaluationReport::from(report(Some(5.0)));
            change(&mut wire);
            EvaluationReport::try_from(wire).unwrap_err().to_string()
        };
        assert!(refused(|r| r.examples = 0).contains("`examples`"));
        for correct in [20.5, -0.5, f64::NAN] {
            let why = refused(match correct {
                20.5 => |r| r.correct = Some(20.5),
                -0.5 => |r| r.correct = Some(-0.5),
                _ => |r| r.correct = Some(f64::NAN),
            });
            assert!(why.contains(&format!("{correct} is not 0 to the 20 examples")), "{why}");
        }
        assert!(refused(|r| r.loss = f64::NAN).contains("`loss`"));
        assert!(refused(|r| r.metrics[0].value = f64::INFINITY).contains("`f1` is inf"));
        assert!(refused(|r| r.metrics[0].name = "top\n5".into()).contains("`top\\n5` must be"));
    }
}
