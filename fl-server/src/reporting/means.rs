//! Named metrics of a run, averaged by name over the clients that report them.
//!
//! Names and values are claims of clients, so the number of names that a run keeps is bounded: a client could invent new ones in
//! every round.

use std::collections::BTreeMap;
use std::sync::Arc;

use fl_proto::{Metric, Metrics};

use crate::config::limits::mean_metric;

/// Names that a run shows of its trainings, and as many of its evaluations.
const SHOWN: usize = 32;
// More than are shown: a name that is reported often later must have been counted before.
const COUNTED: usize = 256;

pub(crate) type Means = BTreeMap<Arc<str>, f64>;

/// The names of a run's metrics, of its trainings or of its evaluations.
#[derive(Debug, Clone, Default)]
pub(crate) struct MetricNames {
    counted: BTreeMap<Arc<str>, Reports>,
    /// Names seen so far.
    seen: u64,
}

#[derive(Debug, Clone, Copy)]
struct Reports {
    count: u64,
    /// Place among all names, in the order in which they were first reported.
    place: u64,
}

impl MetricNames {
    /// Counts the reports of a round or a version, and averages the names that the run shows. `reports`: one of each client, in
    /// the order of the clients' names.
    pub(crate) fn settle<'a>(&mut self, reports: impl Iterator<Item = &'a Metrics>) -> Means {
        let mut by_name = BTreeMap::<&str, Vec<Metric>>::new();
        for (name, metric) in reports.flat_map(Metrics::iter) {
            by_name.entry(name).or_default().push(metric);
        }
        for (name, reports) in &by_name {
            if let Some(counted) = self.counted.get_mut(*name) {
                counted.count += reports.len() as u64;
                continue;
            }
            let reports = Reports {
                count: reports.len() as u64,
                place: self.seen,
            };
            self.counted.insert((*name).into(), reports);
            self.seen += 1;
        }
        if self.counted.len() > COUNTED {
            self.counted = self.ranked().into_iter().take(COUNTED).collect();
        }
        self.shown()
            .filter_map(|name| Some((Arc::clone(&name), mean_metric(by_name.get(&*name)?))))
            .collect()
    }

    /// The names that the run shows: those with the most reports, of equal ones those reported first.
    pub(crate) fn shown(&self) -> impl Iterator<Item = Arc<str>> {
        self.ranked().into_iter().take(SHOWN).map(|(name, _)| name)
    }

    fn ranked(&self) -> Vec<(Arc<str>, Reports)> {
        let mut all: Vec<_> = self
            .counted
            .iter()
            .map(|(name, reports)| (Arc::clone(name), *reports))
            .collect();
        all.sort_by_key(|(_, reports)| (std::cmp::Reverse(reports.count), reports.place));
        all
    }
}

/// Means with their names as texts, for events and reports.
pub(crate) fn named(means: &Means) -> BTreeMap<String, f64> {
    means.iter().map(|(name, mean)| (name.to_string(), *mean)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(names: impl IntoIterator<Item = String>) -> Metrics {
        let mut out = Metrics::new();
        for name in names {
            let (value, weight) = (0.5, 10.0);
            out.add(name, Metric { value, weight }).unwrap();
        }
        out
    }

    #[test]
    fn a_name_is_averaged_over_the_clients_that_report_it() {
        let of = |pairs: &[(&str, f64, f64)]| {
            let mut out = Metrics::new();
            for &(name, value, weight) in pairs {
                out.add(name, Metric { value, weight }).unwrap();
            }
            out
        };
        let reports = [
            of(&[("f1", 0.5, 10.0), ("top5", 0.25, 30.0)]),
            of(&[("f1", 1.0, 30.0)]),
            of(&[("top5", 0.75, 10.0)]),
            of(&[]),
        ];
        let means = MetricNames::default().settle(reports.iter());
        assert_eq!(
            named(&means),
            BTreeMap::from([("f1".into(), 0.875), ("top5".into(), 0.375)])
        );
    }

    #[test]
    fn a_client_that_invents_names_neither_hides_those_of_others_nor_fills_the_memory() {
        let mut names = MetricNames::default();
        let honest = metrics(["top5".to_owned(), "zeta".to_owned()]);
        for round in 0..1_000 {
            let invented = metrics((0..32).map(|at| format!("a{round}/{at}")));
            let means = names.settle([&invented, &honest, &honest, &honest].into_iter());
            assert!(
                means.contains_key("top5") && means.contains_key("zeta"),
                "round {round}: {means:?}"
            );
            assert!(means.len() <= SHOWN);
        }
        assert!(names.counted.len() <= COUNTED);
        // A metric that two clients add later is shown, too.
        let later = metrics(["later".to_owned()]);
        assert!(names.settle([&later, &later].into_iter()).contains_key("later"));
        assert_eq!(names.shown().count(), SHOWN);
    }
}
