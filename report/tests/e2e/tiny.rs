//! The smallest meaningful report.

use fl_report::{Baseline, Flow, Participation, Report, RoundLine, Run, SCHEMA, Settings, TensorLine};

/// A report with one line in most tables.
pub(crate) fn tiny() -> Report {
    let flow = Flow {
        update: 10,
        socket_up: 20,
        ..Flow::default()
    };
    Report {
        schema: SCHEMA,
        run: Run {
            name: "digits".into(),
            ..Run::default()
        },
        settings: Settings::default(),
        totals: flow,
        pending: Flow::default(),
        metered_up: 20,
        metered_down: 0,
        balanced: true,
        baselines: vec![Baseline {
            name: "fedavg-fp32".into(),
            ..Baseline::default()
        }],
        rounds: vec![RoundLine {
            round: 1,
            accuracy: Some(0.5),
            flow,
            ..RoundLine::default()
        }],
        clients: Vec::new(),
        participations: vec![Participation {
            round: 1,
            client: "anna".into(),
            flow,
            ..Participation::default()
        }],
        tensors: vec![TensorLine::default()],
        savings: Vec::new(),
        costs: None,
    }
}
