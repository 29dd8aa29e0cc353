//! What was run, and what stands out.

use fl_report::{FrameBudget, Report, StageBytes, bits_per_value, notes, savings, text, words};

use crate::fixtures::plan;
use crate::tiny::tiny;

#[test]
fn settings_are_keys_of_run_toml_without_those_that_are_not_set() {
    let rows = words(Some("mlp"), &plan());
    let expected = [
        ("train", "batch_size 32, epochs 1, learning_rate 0.1"),
        (
            "updates",
            "budget 0.25 to 1 bits, error 0.7, auto > dead_zone > context, memory error-feedback",
        ),
        (
            "model updates",
            "budget 0.25 bits, auto > dead_zone > context, memory error-feedback",
        ),
        ("cohort", "size 3, min 3, target 3"),
        ("aggregator", "mean"),
        ("optimizer", "fedavg, learning_rate 1.0"),
        ("seed", "0"),
        ("learner", "mlp"),
    ];
    assert_eq!(rows, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert!(words(None, &serde_json::Value::Null).is_empty());
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
    report.settings.budget_down = Some(budget);
    report
}

#[test]
fn frames_that_the_limit_of_the_error_makes_longer_than_their_budget_are_named_with_the_key() {
    let limit = |error: Option<&str>| FrameBudget {
        bytes: 250,
        error: error.map(str::to_owned),
    };
    let report = framed(8_000, 900, limit(Some("0.7")));
    assert_eq!(
        notes(&report),
        [
            "0.90 bits per value were sent down where the budget asks for 0.25: the limit of the error, 0.7; `budget` in \
          [compression.downlink] changes it."
        ]
    );
    for budget in [
        limit(None),
        FrameBudget {
            bytes: 880,
            error: Some("0.7".to_owned()),
        },
    ] {
        let report = framed(8_000, 900, budget);
        assert!(notes(&report).is_empty());
    }
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
            error: Some("0.7".to_owned()),
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
