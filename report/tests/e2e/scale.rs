//! Estimates of a run at another size.

use fl_report::{ClientLine, CostsPlan, Flow, Participation, Report, RoundLine, Scale};

use crate::tiny::tiny;

/// Two clients: 700 B of transport to join, then 100 B up and 50 B down per round.
fn run(rounds: u64) -> Report {
    let mut report = tiny();
    report.run.parameters = 1_000;
    let client = |client: &str| ClientLine {
        client: client.into(),
        asked: rounds,
        ..ClientLine::default()
    };
    report.clients = vec![client("a"), client("b")];
    report.participations = vec![Participation {
        round: 0,
        client: "a".into(),
        flow: Flow {
            transport_up: 400,
            socket_up: 400,
            ..Flow::default()
        },
        ..Participation::default()
    }];
    let round = |round: u64| RoundLine {
        round,
        closed: true,
        asked: 2,
        flow: Flow {
            update: 200,
            transport_up: if round == 1 { 1_000 } else { 0 },
            steps: 100,
            ..Flow::default()
        },
        ..RoundLine::default()
    };
    report.rounds = (1..=rounds).map(round).collect();
    report
}

#[test]
fn coming_is_paid_once_by_a_device_and_a_round_each_time_it_is_asked() {
    let scale = "devices=1000, rounds=300".parse().unwrap();
    let plan = CostsPlan::from_toml("[link]\nprice_per_gb_up = 2\nkwh_per_gb = 1").unwrap();
    let found = run(4).scaled(scale, Some(&plan)).unwrap();
    assert_eq!((found.asked, found.up), (1.0, 1_000.0 * (700.0 + 300.0 * 100.0)));
    assert_eq!(found.down, 1_000.0 * 300.0 * 50.0);
    assert_eq!(found.baseline, 300_000.0 * 8_000.0);
    assert_eq!(found.money, Some(found.up / 1e9 * 2.0));
    let same = run(4).scaled(Scale { devices: 2, rounds: 4 }, None).unwrap();
    assert_eq!(
        (same.up, same.down),
        (2_200.0, 400.0),
        "at its own size a run costs what it cost"
    );
}

#[test]
fn one_round_counts_for_all_and_none_for_nothing() {
    let scale = Scale {
        devices: 10,
        rounds: 10,
    };
    let found = run(1).scaled(scale, None).unwrap();
    assert!(found.notes[1].starts_with("Only one round"));
    assert_eq!(found.up, 100.0 * 800.0);
    assert_eq!(run(0).scaled(scale, None), None);
}

#[test]
fn what_is_no_scale_is_refused_with_an_example() {
    for (text, said) in [
        ("devices=10", "both are needed"),
        ("clients=3,rounds=2", "`clients` is neither"),
        ("devices=0,rounds=2", "`devices` must be a number from 1"),
        ("devices=x,rounds=2", "`devices` must be"),
        ("devices=1,devices=2,rounds=3", "twice"),
        ("", "neither"),
    ] {
        let error = text.parse::<Scale>().unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
}
