//! Budgets that rounds hand out.

use std::collections::BTreeMap;

use fl_compress::Layout;
use fl_proto::ClientId;
use fl_server::plan::RunPlan;
use fl_server::state_machine::{Input, Record, State, Transfer};

use crate::contains::assert_contains;
use crate::world::World;
use crate::{client, plan};

/// Two bits for each of 40,000 values.
const REFERENCE: u64 = 10_000;

const ALIGN: (&str, &str) = ("min = 2", "align = true\nmin = 2");

fn aligned() -> RunPlan {
    let layout = Layout::new([("w", vec![200, 200])]).unwrap();
    plan(&[ALIGN, ("default = {}", "budget = \"2 bits\"")]).with_layout(&layout)
}

/// Bytes a second of the client with this number.
fn rate(i: usize) -> u64 {
    125_000 << (2 * i)
}

/// Client `i` answers `round`; its upload of its budget takes as long as its rate makes it.
fn answer(world: &mut World, i: usize, round: u64, measured: bool) {
    let mut update = world.update(i, round, 0);
    update.len = budgets(&world.state).get(&client(i)).copied().unwrap_or(REFERENCE);
    let transfer = Transfer {
        wait: 20_000,
        bytes: update.len,
        micros: update.len * 1_000_000 / rate(i),
    };
    world.acknowledged.insert((client(i), round), update.digest);
    world.input(Input::Update {
        client: client(i),
        round,
        attempt: 1,
        update,
        transfer: Some(transfer).filter(|_| measured),
    });
}

fn of_run() -> RunPlan {
    let layout = Layout::new([("w", vec![200, 200])]).unwrap();
    let changes = [
        ("rounds = 3", "rounds = 5"),
        ("default = {}", "budget = { run = \"50 kB\" }"),
    ];
    plan(&changes).with_layout(&layout)
}

fn budgets(state: &State) -> BTreeMap<ClientId, u64> {
    let plan = plan(&[]);
    let name = |i| {
        let client = client(i);
        Some((client.clone(), state.view(&plan, &client, 0).budget?))
    };
    (0..10).filter_map(name).collect()
}

#[test]
fn a_cohort_is_measured_first_and_its_budgets_then_follow_the_links() {
    let mut world = World::new(aligned());
    world.connect(0..4);
    for round in 1..=3 {
        let handed = budgets(&world.state);
        let total: u64 = handed.values().sum();
        match round {
            1 => assert!(handed.is_empty()),
            _ => {
                assert_eq!(handed.len(), 4);
                assert!(total <= 4 * REFERENCE, "{handed:?}");
                assert!(total * 100 >= 97 * 4 * REFERENCE, "{handed:?}");
                assert!(handed.values().is_sorted());
            }
        }
        if round == 3 {
            // The fastest has reached its share: its link has 64 of 85 parts.
            let slowest = handed[&client(0)];
            assert!(slowest < REFERENCE / 4, "{handed:?}");
            assert!(handed[&client(3)] > 2 * REFERENCE, "{handed:?}");
        }
        (0..4).for_each(|i| answer(&mut world, i, round, true));
        world.step();
    }
    let mut folded = State::new();
    world.records.iter().for_each(|record| folded.apply(record).unwrap());
    assert_eq!(folded, world.state);
}

#[test]
fn a_client_without_a_measurement_has_a_budget_like_the_median() {
    let mut world = World::new(aligned());
    world.connect(0..4);
    (0..4).for_each(|i| answer(&mut world, i, 1, i != 2));
    world.step();
    let handed = budgets(&world.state);
    assert_eq!(handed[&client(2)], handed[&client(1)]);
    assert!(handed[&client(3)] > handed[&client(2)]);
}

#[test]
fn a_run_without_alignment_has_no_record_of_it() {
    let mut world = World::new(plan(&[]));
    world.connect(0..4);
    (0..4).for_each(|i| answer(&mut world, i, 1, true));
    world.step();
    assert_eq!(world.state.version(), 1);
    let of_budgets = |record: &&Record| matches!(record, Record::BudgetsSet { .. } | Record::UploadMeasured { .. });
    assert_eq!(world.records.iter().filter(of_budgets).count(), 0);
    assert!(budgets(&world.state).is_empty());
}

#[test]
fn a_client_asked_in_place_of_an_absent_one_has_a_budget_too() {
    let mut world = World::new(aligned());
    world.connect(0..4);
    (0..4).for_each(|i| answer(&mut world, i, 1, true));
    world.step();
    world.disconnect([3]);
    world.connect([4]);
    world.pass(10_001);
    let handed = budgets(&world.state);
    assert!(handed.contains_key(&client(4)), "{handed:?}");
    assert!(handed.contains_key(&client(3)), "{handed:?}");
}

#[test]
fn budgets_and_measurements_of_strangers_are_impossible() {
    let mut world = World::new(aligned());
    world.connect(0..4);
    let before = world.state.clone();
    let transfer = Transfer {
        wait: 1,
        bytes: 1,
        micros: 1,
    };
    let measured = |round, i| Record::UploadMeasured {
        round,
        client: client(i),
        transfer,
        at: 0,
    };
    let set = |round, i| Record::BudgetsSet {
        round,
        budgets: BTreeMap::from([(client(i), 1)]),
        at: 0,
    };
    for record in [set(1, 9), set(2, 0), measured(1, 0), measured(1, 9), measured(2, 0)] {
        assert!(world.state.apply(&record).is_err(), "{record:?}");
        assert_eq!(world.state, before);
    }
    assert!(world.state.apply(&set(1, 0)).is_ok());
}

#[test]
fn alignment_needs_a_budget_without_a_limit_of_the_error() {
    for (uplink, named) in [
        ("", "without `error`"),
        ("budget = \"0.25 to 1 bits, error 0.7\"", "without `error`"),
        ("default = {}", "needs `compression.uplink.budget`"),
    ] {
        let text = crate::text(&[ALIGN, ("default = {}", uplink)]);
        let error = RunPlan::from_toml(&text, std::path::Path::new(""))
            .unwrap_err()
            .to_string();
        assert!(error.contains("cohort.align"), "{uplink}: {error}");
        assert!(error.contains(named), "{uplink}: {error}");
    }
    let (plain, aligned) = (plan(&[]), aligned());
    assert_ne!(plain.digest(), aligned.digest());
    let handout = aligned.handout.unwrap();
    assert_eq!((handout.reference, handout.most), (REFERENCE, 80_000));
    assert_eq!(handout.least, REFERENCE / 8);
}

#[test]
fn a_budget_for_a_run_is_spread_over_its_rounds_with_what_is_left_over() {
    let mut world = World::new(of_run());
    world.connect(0..4);
    let mut sent = [0; 4];
    for round in 1..=5 {
        let handed = budgets(&world.state);
        for (i, sent) in sent.iter_mut().enumerate() {
            let budget = handed.get(&client(i)).copied().unwrap_or(REFERENCE);
            assert_eq!(budget, (50_000 - *sent) / (6 - round), "round {round}");
            // The first client uses all of it, the others ever less; the last one is away once.
            let used = budget - budget * i as u64 / 10;
            if (i, round) == (3, 2) {
                continue;
            }
            let mut update = world.update(i, round, 0);
            update.len = used;
            *sent += used;
            world.acknowledged.insert((client(i), round), update.digest);
            world.input(Input::Update {
                client: client(i),
                round,
                attempt: 1,
                update,
                transfer: None,
            });
        }
        world.pass(10_000);
        world.step();
    }
    assert_eq!(sent[0], 50_000);
    assert!(sent.iter().all(|sent| (40_000..=50_000).contains(sent)), "{sent:?}");
}

#[test]
fn a_budget_for_a_run_is_part_of_the_plan_and_refused_where_it_cannot_be_kept() {
    let plan = of_run();
    assert_eq!(plan.run_budget, Some(50_000));
    assert_eq!(plan.uplink.budget.unwrap().bytes(0), 10_000);
    assert!(
        String::from_utf8(plan.to_bytes())
            .unwrap()
            .contains("\"run_budget\":50000")
    );
    let uplink = |text| ("default = {}", text);
    for (changes, named) in [
        (
            vec![uplink("budget = { run = \"2 B\" }")],
            "no byte for each of 3 rounds",
        ),
        (
            vec![ALIGN, uplink("budget = { run = \"2 MB\" }")],
            "cannot be combined with a budget for a run",
        ),
        (
            vec![uplink("budget = \"1 bits\""), uplink("budget = { run = \"2 MB\" }")],
            "compression.downlink.budget",
        ),
    ] {
        let error = RunPlan::from_toml(&crate::text(&changes), std::path::Path::new(""))
            .unwrap_err()
            .to_string();
        assert_contains(&error, named);
    }
}
