//! What was run, what stands out, and when the run ends.

use fl_report::{FrameBudget, Report, StageBytes, bits_per_value, notes, savings, settings, text};

use crate::fixtures::{made, names, plan};
use crate::tiny::tiny;

#[test]
fn settings_are_keys_of_run_toml_without_those_that_are_not_set() {
    let rows: Vec<(String, String)> = settings(Some("mlp"), &plan())
        .into_iter()
        .map(|row| (row.name, row.value))
        .collect();
    let expected = [
        ("train", "learning_rate 0.1, epochs 1, batch_size 32"),
        (
            "updates",
            "budget 0.25 to 1 bits, error 0.7, auto > dead_zone > context, memory error-feedback",
        ),
        (
            "model updates",
            "budget 0.25 bits, auto > dead_zone > context, or another, memory error-feedback",
        ),
        ("cohort", "size 3, min 3, target 3, deadline 1800 s"),
        ("aggregator", "mean"),
        ("optimizer", "fedavg, learning_rate 1.0"),
        ("seed", "0"),
        ("learner", "mlp"),
    ];
    assert_eq!(rows, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert!(settings(None, &serde_json::Value::Null).is_empty());
}

fn framed(values: u64, bytes: u64, budget: FrameBudget) -> Report {
    let mut report = tiny();
    report.run.parameters = values;
    let stages = StageBytes {
        fp32: 4 * values,
        framed: bytes,
        ..StageBytes::default()
    };
    report.rounds[0].closed = true;
    (report.rounds[0].updates, report.rounds[0].up, report.rounds[0].down) = (1, stages, stages);
    (report.participations[0].updated, report.participations[0].stages) = (true, stages);
    report.totals.steps = bytes;
    report.budget_down = Some(budget);
    report
}

#[test]
fn frames_that_the_limit_of_the_error_makes_longer_than_their_budget_are_named_with_the_key() {
    let limit = |error| FrameBudget { bytes: 250, error };
    let report = framed(8_000, 900, limit(Some(0.7)));
    assert_eq!(
        notes(&report),
        [
            "0.90 bits per value were sent down where the budget asks for 0.25: the limit of the error, 0.7; `budget` in \
          [compression.downlink] changes it."
        ]
    );
    let change = |report: &Report| {
        let found = savings(report);
        found
            .into_iter()
            .find(|line| line.cost == "model updates")
            .unwrap()
            .change
    };
    assert!(
        change(&report).starts_with("Allow a larger error than 0.7"),
        "{}",
        change(&report)
    );
    for budget in [
        limit(None),
        FrameBudget {
            bytes: 880,
            error: Some(0.7),
        },
    ] {
        let report = framed(8_000, 900, budget);
        assert!(notes(&report).is_empty() && change(&report).starts_with("Lower `budget`"));
    }
    let mut report = report;
    report.notes = notes(&report);
    assert!(
        text(&report)
            .split("\nRounds\n")
            .next()
            .unwrap()
            .contains("the limit of the error, 0.7")
    );
}

#[test]
fn frames_of_a_few_values_are_bytes_and_have_no_bits() {
    let report = framed(
        8,
        73,
        FrameBudget {
            bytes: 256,
            error: Some(0.7),
        },
    );
    let found = savings(&report);
    let updates = found.iter().find(|line| line.cost == "updates").unwrap();
    assert_eq!(updates.why, "Clients sent 1 updates of 73 B each.");
    assert!(updates.change.starts_with("Do more work in each round"), "{updates:?}");
    assert!(notes(&report).is_empty());
    assert_eq!((bits_per_value(73, 1, 8), bits_per_value(0, 0, 8)), (None, None));
    assert_eq!(
        bits_per_value(4_100, 1, 1_000),
        Some(32.8),
        "exact values with their header"
    );
}

#[test]
fn a_trend_and_a_client_that_falls_behind_are_notes() {
    let with = |accuracies: &[f64]| {
        let mut report = made(accuracies.len() as u64, &names(3), 7);
        report.budget_up = None;
        let lines = report.rounds.iter_mut().zip(accuracies);
        lines.for_each(|(line, accuracy)| line.accuracy = Some(*accuracy));
        report
    };
    let report = with(&[0.5, 0.8, 0.85, 0.9]);
    assert_eq!(
        notes(&report),
        ["Accuracy still rose at the end, by 40.0 points in 3 rounds: more `rounds` may raise it further."]
    );
    let fell = &notes(&with(&[0.5, 0.9, 0.85, 0.8]))[0];
    assert!(
        fell.starts_with("Accuracy fell from 90.0 % in round 2 to 80.0 %"),
        "{fell}"
    );
    let mut level = with(&[0.9, 0.9, 0.9, 0.9]);
    assert!(notes(&level).is_empty());
    let clients = level.clients.iter_mut().zip([0.95, 0.6, 0.94]);
    clients
        .for_each(|(line, accuracy)| (line.evaluated, line.evaluated_version, line.accuracy) = (9, 4, Some(accuracy)));
    let behind = "client-001 has an accuracy of 60.0 %, the median client 94.0 %: look at the data of this client.";
    assert_eq!(notes(&level), [behind]);
    level.clients[1].evaluated_version = 1;
    assert!(
        notes(&level).is_empty(),
        "an old evaluation says nothing of the newest model"
    );
}

#[test]
fn the_end_is_expected_as_the_last_rounds_took_once_one_has_closed() {
    let mut report = made(6, &names(2), 7);
    assert_eq!(report.seconds_left(), None, "the run is over");
    (report.run.state, report.run.planned) = ("round 7".to_owned(), 10);
    report.rounds[0].seconds = 3_000.0;
    assert_eq!(report.seconds_left(), Some(4.0 * 3.5));
    assert!(text(&report).contains("; ~14.0 s left, as the last rounds took\n"));
    report.rounds.iter_mut().for_each(|line| line.closed = false);
    assert_eq!(report.seconds_left(), None);
}
