//! Metric families, built for each response: the numbers live elsewhere.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};

pub(super) type Labels = Vec<(&'static str, String)>;

/// The metrics of one answer. A family without a series is left out.
#[derive(Debug, Default)]
pub(super) struct Metrics(Registry);

impl Metrics {
    /// Adds counters; the unit and `_total` are appended to the name.
    pub(super) fn counters(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        self.family(name, help, unit, values, |metric: &Counter<f64, AtomicU64>, value| {
            metric.inc_by(value);
        });
    }

    /// Adds gauges; the unit is appended to the name.
    pub(super) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        self.family(name, help, unit, values, |metric: &Gauge<f64, AtomicU64>, value| {
            metric.set(value);
        });
    }

    /// A gauge without a unit or labels.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauges(name, help, None, one(value));
    }

    /// A counter without a unit or labels.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.counters(name, help, None, one(value));
    }

    /// One metric for each set of labels. One without labels is registered directly, so that its name has no empty braces.
    fn family<M: Metric + TypedMetric + EncodeMetric + Default + Clone>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        values: impl IntoIterator<Item = (Labels, f64)>,
        set: impl Fn(&M, f64),
    ) {
        let family = Family::<Labels, M>::default();
        let mut series = 0;
        for (labels, value) in values {
            if labels.is_empty() {
                let metric = M::default();
                set(&metric, value);
                return self.register(name, help, unit, metric);
            }
            set(&family.get_or_create(&labels), value);
            series += 1;
        }
        if series > 0 {
            self.register(name, help, unit, family);
        }
    }

    /// OpenMetrics text.
    ///
    /// # Errors
    /// None in practice: writing to a string does not fail.
    pub(super) fn text(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        encode(&mut out, &self.0)?;
        Ok(out)
    }

    fn register(&mut self, name: &str, help: &str, unit: Option<Unit>, family: impl Metric) {
        match unit {
            Some(unit) => self.0.register_with_unit(name, help, unit, family),
            None => self.0.register(name, help, family),
        }
    }
}

pub(super) fn one(value: f64) -> [(Labels, f64); 1] {
    [(Labels::new(), value)]
}

/// As [`one`], if there is a value.
pub(super) fn any(value: Option<f64>) -> impl Iterator<Item = (Labels, f64)> {
    value.map(|value| (Labels::new(), value)).into_iter()
}

pub(super) fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, value.to_owned())]
}

pub(super) fn labels(first: (&'static str, &str), second: (&'static str, &str)) -> Labels {
    vec![(first.0, first.1.to_owned()), (second.0, second.1.to_owned())]
}

pub(super) fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}
