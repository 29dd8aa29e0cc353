//! Bandwidths that rounds hand out.

use std::collections::BTreeMap;

use fl_proto::ClientId;
use fl_server::plan::RunPlan;
use fl_server::state_machine::{Input, Record, State, Transfer};

use crate::world::World;
use crate::{client, plan};

const HYBRID: (&str, &str) = ("memory = \"none\"\n        default = {}", "preset = \"hybrid\"");

/// Client `i` answers `round` with a link of `(i + 1)` thousand bytes a second.
fn answer(world: &mut World, i: usize, round: u64) {
    let update = world.update(i, round, 0);
    let transfer = Transfer {
        wait: 20_000,
        bytes: 2_000,
        micros: 2_000_000_000 / (1_000 * (i as u64 + 1)),
    };
    world.acknowledged.insert((client(i), round), update.digest);
    world.input(Input::Update {
        client: client(i),
        round,
        attempt: 1,
        update,
        transfer: Some(transfer).filter(|_| i != 3),
    });
}

fn bandwidths(state: &State, plan: &RunPlan) -> BTreeMap<ClientId, u32> {
    let of = |i| Some((client(i), state.view(plan, &client(i), 0).bandwidth?));
    (0..10).filter_map(of).collect()
}

#[test]
fn measured_clients_are_told_their_rates_over_the_median_of_the_cohort() {
    let plan = plan(&[HYBRID]);
    let mut world = World::new(plan.clone());
    world.connect(0..4);
    for round in 1..=3 {
        let handed = bandwidths(&world.state, &plan);
        match round {
            1 => assert!(handed.is_empty(), "nobody is measured yet"),
            _ => {
                let expected = [(0, 500_000), (1, 1_000_000), (2, 1_500_000)];
                assert_eq!(handed, expected.map(|(i, ratio)| (client(i), ratio)).into());
            }
        }
        (0..4).for_each(|i| answer(&mut world, i, round));
        world.step();
    }
    let mut folded = State::new();
    world.records.iter().for_each(|record| folded.apply(record).unwrap());
    assert_eq!(folded, world.state, "a restart hands out the same");
}

#[test]
fn a_client_asked_in_place_of_an_absent_one_is_measured_against_the_cohort() {
    let plan = plan(&[HYBRID, ("size = 4", "size = 3")]);
    let mut world = World::new(plan.clone());
    world.connect(0..3);
    (0..3).for_each(|i| answer(&mut world, i, 1));
    world.step();
    let before = bandwidths(&world.state, &plan);
    world.disconnect([2]);
    world.connect([4]);
    world.pass(10_001);
    let after = bandwidths(&world.state, &plan);
    assert_eq!(before, after, "a newcomer has no measurement");
    assert_eq!(before.len(), 3);
}

#[test]
fn a_run_whose_codec_does_not_ask_measures_nothing() {
    for changes in [
        &[][..],
        &[(
            "default = {}",
            "default = { reduce = { top_k = { density = { by = 'variance' } } } }",
        )],
    ] {
        let plan = plan(changes);
        assert!(!plan.measures_uploads());
        let mut world = World::new(plan.clone());
        world.connect(0..4);
        (0..4).for_each(|i| answer(&mut world, i, 1));
        world.step();
        let is_of_uploads =
            |record: &Record| matches!(record, Record::BandwidthsSet { .. } | Record::UploadMeasured { .. });
        assert!(!world.records.iter().any(is_of_uploads));
        assert!(bandwidths(&world.state, &plan).is_empty());
    }
}

#[test]
fn bandwidths_of_strangers_are_impossible() {
    let mut world = World::new(plan(&[HYBRID]));
    world.connect(0..4);
    let before = world.state.clone();
    let set = |round, i| Record::BandwidthsSet {
        round,
        bandwidths: BTreeMap::from([(client(i), 1)]),
        at: 0,
    };
    for record in [set(1, 9), set(2, 0)] {
        assert!(world.state.apply(&record).is_err(), "{record:?}");
        assert_eq!(world.state, before);
    }
    assert!(world.state.apply(&set(1, 0)).is_ok());
}
