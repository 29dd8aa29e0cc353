//! Named metrics that a learner reports beside its loss.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::ProtocolError;
use crate::foreign_text::is_printable;
use crate::limits::{MAX_METRIC_NAME, MAX_METRICS};
use crate::wire;

// Names that a report computes itself.
const RESERVED: [&str; 7] = [
    "accuracy",
    "correct",
    "examples",
    "loss",
    "perplexity",
    "round",
    "version",
];

/// A value, and its weight in the mean over clients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The value, finite.
    pub value: f64,
    /// The weight, finite and above 0: usually the number of examples behind the value.
    pub weight: f64,
}

/// Metrics by name; every name and number is valid.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, Metric>")]
pub struct Metrics(BTreeMap<String, Metric>);

impl TryFrom<BTreeMap<String, Metric>> for Metrics {
    type Error = ProtocolError;

    fn try_from(all: BTreeMap<String, Metric>) -> Result<Self, ProtocolError> {
        let mut metrics = Self::new();
        for (name, metric) in all {
            metrics.add(name, metric)?;
        }
        Ok(metrics)
    }
}

impl Metrics {
    /// No metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a metric.
    ///
    /// # Errors
    /// `Invalid`, naming the metric, if the name is not 1 to [`MAX_METRIC_NAME`] bytes of printable characters, is given twice
    /// or is one of `accuracy`, `correct`, `examples`, `loss`, `perplexity`, `round` and `version`; if a number is out of range;
    /// or if there are more than [`MAX_METRICS`]. The metrics are as before then.
    pub fn add(&mut self, name: impl Into<String>, metric: Metric) -> Result<(), ProtocolError> {
        let name = name.into();
        let refused = |why: String| Err(ProtocolError::invalid("metrics", why));
        if name.is_empty() || name.len() > MAX_METRIC_NAME || !name.chars().all(is_printable) {
            let shown = name.chars().take(MAX_METRIC_NAME).collect::<String>();
            let shown = shown.escape_debug();
            return refused(format!(
                "the name `{shown}` must be 1 to {MAX_METRIC_NAME} bytes of printable characters"
            ));
        }
        if RESERVED.contains(&name.as_str()) {
            return refused(format!("`{name}` is computed by the server; choose another name"));
        }
        if !metric.value.is_finite() {
            return refused(format!("`{name}` is {}; it must be finite", metric.value));
        }
        if !(metric.weight > 0.0 && metric.weight.is_finite()) {
            return refused(format!(
                "the weight of `{name}` is {}; it must be finite and above 0",
                metric.weight
            ));
        }
        if self.0.len() == MAX_METRICS {
            return refused(format!("there are more than {MAX_METRICS}"));
        }
        if self.0.contains_key(&name) {
            return refused(format!("`{name}` is given twice"));
        }
        self.0.insert(name, metric);
        Ok(())
    }

    /// The metrics, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Metric)> {
        self.0.iter().map(|(name, metric)| (name.as_str(), *metric))
    }

    /// The metric called `name`.
    pub fn get(&self, name: &str) -> Option<Metric> {
        self.0.get(name).copied()
    }

    /// Number of metrics.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The metrics as messages, sorted by name.
    pub(crate) fn to_wire(&self) -> Vec<wire::Metric> {
        self.iter()
            .map(|(name, metric): (&str, Metric)| wire::Metric {
                name: name.to_owned(),
                value: metric.value,
                weight: metric.weight,
            })
            .collect()
    }

    /// Checks metrics that a peer sent.
    ///
    /// # Errors
    /// As [`Metrics::add`].
    pub(crate) fn from_wire(messages: Vec<wire::Metric>) -> Result<Self, ProtocolError> {
        let mut metrics = Self::new();
        for wire::Metric { name, value, weight } in messages {
            metrics.add(name, Metric { value, weight })?;
        }
        Ok(metrics)
    }
}

/// Two metrics for tests of messages.
#[cfg(test)]
pub(crate) fn sample() -> Metrics {
    let mut metrics = Metrics::new();
    for (name, value, weight) in [("f1", 0.75, 60.0), ("grad/norm.0", -1e-300, 0.5)] {
        metrics.add(name, Metric { value, weight }).expect("a valid metric");
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_out_of_range_are_refused_by_name() {
        let good = Metric {
            value: 0.5,
            weight: 10.0,
        };
        for (name, metric, expected) in [
            ("", good, "`` must be"),
            ("top\n5", good, "`top\\n5` must be"),
            ("\u{202e}5pot", good, "`\\u{202e}5pot` must be"),
            (&"é".repeat(33), good, "must be 1 to 64 bytes"),
            ("loss", good, "`loss` is computed"),
            (
                "f1",
                Metric {
                    value: f64::NAN,
                    ..good
                },
                "`f1` is NaN",
            ),
            ("f1", Metric { weight: 0.0, ..good }, "weight of `f1` is 0"),
            (
                "f1",
                Metric {
                    weight: f64::INFINITY,
                    ..good
                },
                "weight of `f1` is inf",
            ),
        ] {
            let why = Metrics::new().add(name, metric).unwrap_err().to_string();
            assert!(why.contains(expected), "{why}");
        }
        for name in [
            "9lives",
            "top 5",
            "top@5",
            "metrics/mAP50-95(B)",
            "dice_%",
            "préc",
            "\"<b>\\{}",
            &"é".repeat(32),
        ] {
            assert_eq!(
                Metrics::new().add(name, good),
                Ok(()),
                "names are kept as frameworks give them"
            );
        }
        let mut metrics = Metrics::new();
        for at in 0..MAX_METRICS {
            metrics.add(format!("m{at}"), good).unwrap();
        }
        assert!(metrics.add("m0", good).unwrap_err().to_string().contains("more than"));
        let mut metrics = Metrics::new();
        metrics.add("f1/macro", good).unwrap();
        assert!(metrics.add("f1/macro", good).unwrap_err().to_string().contains("twice"));
        assert_eq!(metrics.get("f1/macro"), Some(good));
    }
}
