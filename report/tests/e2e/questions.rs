//! Questions: their sums equal the totals of the report, and unknown rounds or clients are refused by name.

use fl_report::{Costs, CostsPlan, Error, Filter, Flow, QUERIES, Query, Report, Table, Values};
use proptest::prelude::*;

use crate::fixtures::{made, names};

const FLOWS: [&str; 3] = ["round", "client", "participation"];

fn sum(table: &Table, name: &str) -> f64 {
    match &table.column(name).unwrap().values {
        Values::Integers(values) => values.iter().sum::<u64>() as f64,
        Values::Numbers(values) => values.iter().flatten().sum(),
        _ => panic!("{name} is not a number"),
    }
}

/// The sum of a column over the lines in which a text column has this value.
fn part(table: &Table, column: &str, value: &str, name: &str) -> f64 {
    let (Values::Texts(texts), Values::Integers(bytes)) = (
        &table.column(column).unwrap().values,
        &table.column(name).unwrap().values,
    ) else {
        panic!("not a text and integers");
    };
    let lines = texts.iter().zip(bytes).filter(|line| line.0 == value);
    lines.map(|line| *line.1).sum::<u64>() as f64
}

fn ask(report: &Report, by: &str, round: Option<u64>, client: Option<&str>) -> Table {
    let client = client.map(str::to_owned);
    report
        .table(Query::named(by).unwrap(), &Filter { round, client })
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_question_adds_up_to_the_totals(rounds in 0_u64..6, clients in 1_usize..5, seed in any::<u64>()) {
        let report = made(rounds, &names(clients), seed);
        for by in FLOWS {
            let table = ask(&report, by, None, None);
            // The column of the base is left out where no client fetched it.
            let columns = Flow::NAMES.iter().zip(report.totals.fields());
            for (name, total) in columns.filter(|(name, total)| **name != "base" || *total > 0) {
                prop_assert_eq!(sum(&table, name), total as f64, "{} by {:?}", name, by);
            }
        }
        let kinds = ask(&report, "direction", None, None);
        prop_assert_eq!(part(&kinds, "direction", "up", "bytes"), report.totals.socket_up as f64);
        prop_assert_eq!(part(&kinds, "direction", "down", "bytes"), report.totals.socket_down as f64);
        let tensors: u64 = report.tensors.iter().map(|line| line.section.bytes).sum();
        prop_assert_eq!(sum(&ask(&report, "tensor", None, None), "bytes"), tensors as f64);
    }

    #[test]
    fn the_parts_of_a_question_add_up_to_the_whole(rounds in 1_u64..6, clients in 1_usize..5, seed in any::<u64>()) {
        let names = names(clients);
        let report = made(rounds, &names, seed);
        for by in QUERIES.iter().map(|query| query.name) {
            let whole = sum(&ask(&report, by, None, None), if flow(by) { "socket_up" } else { "bytes" });
            let rounds: f64 = (1..=rounds)
                .map(|round| sum(&ask(&report, by, Some(round), None), if flow(by) { "socket_up" } else { "bytes" }))
                .sum();
            prop_assert!((rounds - whole).abs() < 1e-6, "{:?}: {} of rounds, {} in all", by, rounds, whole);
            if flow(by) || by == "direction" {
                let column = if flow(by) { "socket_up" } else { "bytes" };
                let parts: f64 = names.iter().map(|name| sum(&ask(&report, by, None, Some(name)), column)).sum();
                prop_assert_eq!(parts, whole, "{:?}", by);
            }
        }
    }

    #[test]
    fn costs_of_clients_and_of_rounds_are_those_of_the_run(rounds in 0_u64..6, clients in 1_usize..5, seed in any::<u64>()) {
        let report = made(rounds, &names(clients), seed);
        let plan = "carbon_g_per_kwh = 400\n[link]\nprice_per_gb_up = 1\nprice_per_gb_down = 2\nkwh_per_gb = 3\n\
                    [[links]]\nclients = ['client-001']\nprice_per_gb_up = 5";
        let costs = Costs::of(&report, &CostsPlan::from_toml(plan).unwrap());
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        prop_assert!(near(costs.clients.iter().map(|line| line.cost.money).sum(), costs.money));
        prop_assert!(near(costs.rounds.iter().map(|line| line.cost.money).sum(), costs.money));
        prop_assert!(near(costs.rounds.iter().map(|line| line.cost.co2_g).sum(), costs.co2_g));
        prop_assert!(near(costs.rounds.iter().map(|line| line.cost.baseline_money).sum(), costs.baseline_money));
        prop_assert!(near(costs.clients.iter().map(|line| line.cost.baseline_kwh).sum(), costs.baseline_kwh));
        prop_assert!(near(costs.kwh, report.totals.socket() as f64 * 3.0 / 1e9));
        let bytes: u64 = costs.rounds.iter().map(|line| line.cost.bytes).sum();
        prop_assert_eq!(bytes, report.totals.socket());
    }
}

fn flow(by: &str) -> bool {
    FLOWS.contains(&by)
}

#[test]
fn a_round_that_the_run_does_not_have_is_said_with_those_it_has() {
    let ask = |rounds, round| {
        let filter = Filter {
            round: Some(round),
            client: None,
        };
        let error = made(rounds, &names(1), 1)
            .table(Query::named("tensor").unwrap(), &filter)
            .unwrap_err();
        error.to_string()
    };
    assert_eq!(ask(4, 9), "the run has no round 9; it has rounds 1 to 4");
    assert_eq!(ask(1, 0), "the run has no round 0; it has only round 1");
    assert_eq!(ask(0, 1), "the run has no round 1; no round was opened yet");
}

#[test]
fn a_client_that_the_run_does_not_have_is_said_with_the_nearest_names() {
    let ask = |clients, name: &str| {
        let filter = Filter {
            round: None,
            client: Some(name.to_owned()),
        };
        let error = made(1, &names(clients), 1)
            .table(Query::named("client").unwrap(), &filter)
            .unwrap_err();
        error.to_string()
    };
    assert_eq!(
        ask(2, "bob"),
        "the run has no client \"bob\"; it has \"client-000\", \"client-001\""
    );
    let said = ask(30, "client-17");
    assert!(
        said.starts_with("the run has no client \"client-17\"; the nearest of its 30 are \"client-017\""),
        "{said}"
    );
    assert_eq!(said.matches("client-0").count(), 5);
    let hostile = ask(1, &"\u{1b}[2J\n".repeat(10_000));
    assert!(hostile.len() < 600 && !hostile.contains(['\u{1b}', '\n']), "{hostile}");
}

#[test]
fn tensors_of_a_client_are_refused_and_its_stages_are_there() {
    let report = made(3, &names(2), 1);
    let filter = Filter {
        round: None,
        client: Some("client-000".into()),
    };
    assert!(
        matches!(report.table(Query::named("tensor").unwrap(), &filter), Err(Error::NotKept(why)) if why.contains("by stage"))
    );
    let stages = report.table(Query::named("stage").unwrap(), &filter).unwrap();
    assert_eq!(part_of_stage(&stages, "up", "framed"), report.clients[0].framed as f64);
    assert_eq!(
        part_of_stage(&stages, "down", "sent"),
        report.clients[0].flow.frames_down() as f64
    );
    let updates = report.clients[0].updates;
    assert_eq!(
        part_of_stage(&stages, "up", "fp32"),
        (4 * report.run.parameters * updates) as f64
    );
}

fn part_of_stage(table: &Table, direction: &str, stage: &str) -> f64 {
    let column = |name| &table.column(name).unwrap().values;
    let (Values::Texts(directions), Values::Texts(stages), Values::Numbers(bytes)) =
        (column("direction"), column("stage"), column("bytes"))
    else {
        panic!("columns of another type");
    };
    let row = (0..stages.len()).find(|row| directions[*row] == direction && stages[*row] == stage);
    bytes[row.unwrap()].unwrap()
}

#[test]
fn a_round_and_a_client_together_are_one_participation() {
    let report = made(3, &names(2), 1);
    for by in FLOWS {
        let table = ask(&report, by, Some(2), Some("client-001"));
        assert_eq!(table.len(), 1);
        assert!(table.column("updated").is_some());
    }
}

#[test]
fn an_estimate_as_text_begins_with_the_size_and_its_bytes() {
    let report = made(4, &names(2), 1);
    let scaled = report.scaled("devices=1000,rounds=300".parse().unwrap(), None).unwrap();
    let text = scaled.text();
    assert!(text.starts_with("With 1,000 devices and 300 rounds: "), "{text}");
    assert!(
        text.contains("Estimated from 4 closed rounds with 2 devices, of which 100.00 %"),
        "{text}"
    );
    assert_eq!(text.lines().filter(|line| line.starts_with("up ")).count(), 7);
}
