//! Invariants of the state machine under any schedule.

use fl_proto::{EvaluationReport, UpdateReply};
use fl_server::state_machine::{Phase, select};
use proptest::prelude::*;

use crate::world::World;
use crate::{client, plan};

#[derive(Debug, Clone)]
enum Op {
    Connect(usize),
    Disconnect(usize),
    /// Client, rounds before the open one, variant of the bytes.
    Submit(usize, u64, u8),
    Pass(u64),
    /// Sets the clock back.
    Back(u64),
    Step,
    Crash,
    Evaluate(usize, u64),
    Exclude(usize),
    /// Number of versions before the newest.
    RollBack(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..7usize).prop_map(Op::Connect),
        1 => (0..7usize).prop_map(Op::Disconnect),
        8 => (0..7usize, prop_oneof![6 => Just(0), 1 => Just(1)], prop_oneof![4 => Just(0), 1 => Just(1)])
            .prop_map(|(i, behind, variant)| Op::Submit(i, behind, variant)),
        2 => (0..30_000u64).prop_map(Op::Pass),
        1 => (0..1_000u64).prop_map(Op::Back),
        3 => Just(Op::Step),
        1 => Just(Op::Crash),
        1 => (0..7usize, 0..2u64).prop_map(|(i, behind)| Op::Evaluate(i, behind)),
        1 => (0..3usize).prop_map(Op::Exclude),
        1 => (1..4u64).prop_map(Op::RollBack),
    ]
}

fn run(world: &mut World, op: &Op) {
    match *op {
        Op::Connect(i) => world.connect([i]),
        Op::Disconnect(i) => world.disconnect([i]),
        Op::Submit(i, behind, variant) => {
            let round = world.round().saturating_sub(behind);
            let first = world.submit(i, round, variant);
            let records = world.records.len();
            let closing = matches!(world.state.phase(), Phase::Closing(_));
            let second = world.submit(i, round, variant);
            if first == UpdateReply::Accepted || !closing {
                assert_eq!(second, first, "asked twice");
            }
            assert_eq!(world.records.len(), records, "asked twice");
        }
        Op::Pass(millis) => world.pass(millis),
        Op::Back(millis) => {
            world.now = world.now.saturating_sub(millis);
            world.settle();
        }
        Op::Step => world.step(),
        Op::Crash => world.crash(),
        Op::Exclude(i) => world.exclude(i),
        Op::RollBack(behind) => {
            let to = world.state.version().saturating_sub(behind);
            world.roll_back(to);
        }
        Op::Evaluate(i, behind) => {
            let (client, version) = (client(i), world.state.version().saturating_sub(behind));
            let input = || fl_server::state_machine::Input::Evaluation {
                client: client.clone(),
                report: EvaluationReport {
                    run: "laws".parse().unwrap(),
                    version,
                    examples: 4,
                    loss: 0.5,
                    correct: Some(2.0),
                    language: false,
                    metrics: Default::default(),
                },
            };
            let first = world.input(input());
            assert_eq!(world.decide(input()).records, [], "evaluated twice");
            drop(first);
        }
    }
}

/// Events of updates: clients begin them when they are asked, and they arrive, possibly repeatedly, at any later time.
#[derive(Debug, Clone)]
enum Connections {
    World(Op),
    /// The client encodes an update for the current attempt, if it is asked.
    Begin(usize),
    /// An update that was begun arrives, or its status is queried.
    Arrive(prop::sample::Index),
}

fn traffic() -> impl Strategy<Value = Connections> {
    let disturbance = prop_oneof![
        3 => (0..7usize).prop_map(Op::Connect),
        2 => (0..7usize).prop_map(Op::Disconnect),
        4 => (0..70_000u64).prop_map(Op::Pass),
        1 => Just(Op::Crash),
        2 => Just(Op::Step),
    ];
    prop_oneof![
        2 => disturbance.prop_map(Connections::World),
        2 => (0..7usize).prop_map(Connections::Begin),
        3 => any::<prop::sample::Index>().prop_map(Connections::Arrive),
    ]
}

/// An encoded update.
#[derive(Debug, Clone)]
struct Begun {
    i: usize,
    round: u64,
    attempt: u32,
    update: fl_server::state_machine::Accepted,
    answers: Vec<UpdateReply>,
}

/// Clients from this index on use protocol version 1.0, which does not report the attempt of an update.
const OLD: usize = 5;

/// Runs to the end with all clients connected.
fn finish(world: &mut World) {
    for _ in 0..100 {
        if matches!(world.state.phase(), Phase::Failed { .. }) {
            world.crash();
        }
        world.connect(0..7);
        let round = world.round();
        (0..7).for_each(|i| drop(world.submit(i, round, 0)));
        world.step();
        world.pass(60_000);
        if world.is_done() {
            return;
        }
    }
    panic!("it never ends: {:?}", world.state.phase());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn acknowledged_updates_are_in_exactly_one_close(ops in prop::collection::vec(op(), 0..120)) {
        let mut world = World::new(plan(&[]));
        for op in &ops {
            // World::step checks that a close has exactly the acknowledged updates.
            run(&mut world, op);
            prop_assert_eq!(&world.fold(), &world.state, "after {:?}", op);
        }
        finish(&mut world);
        prop_assert_eq!(&world.fold(), &world.state);
        let (rounds, history) = (world.outcome(), world.history());
        let closed: usize = rounds.iter().map(|round| round.updates.len()).sum();
        prop_assert_eq!(closed, world.acknowledged.len());
        let versions = world.state.versions();
        for (at, version) in versions.made().iter().enumerate() {
            let number = version.round;
            prop_assert_eq!(number, at as u64 + 1);
            if let Some(to) = version.base {
                prop_assert_eq!(versions.model(to), Some(version.model));
                continue;
            }
            let round = rounds.iter().find(|round| round.round == number).unwrap();
            let (asked, answered) = (history.rounds[&number].cohort, round.updates.len());
            // Four clients, and at most one replacement for each.
            prop_assert!((2..=asked).contains(&answered) && asked <= 7);
        }
    }

    /// A slow upload of attempt 1 may arrive in attempt 4, when its client is asked again. It was rejected in between,
    /// and the client has returned its content to the residual.
    #[test]
    fn no_update_is_answered_both_refused_and_accepted(ops in prop::collection::vec(traffic(), 0..160)) {
        let mut world = World::new(plan(&[("retries = 2", "retries = 6")]));
        world.connect(0..4);
        let mut begun: Vec<Begun> = Vec::new();
        for op in &ops {
            match op {
                Connections::World(op) => run(&mut world, op),
                Connections::Begin(i) => {
                    let view = world.state.view(&world.plan, &client(*i), world.now);
                    if view.phase == fl_proto::Phase::Training && view.selected && view.accepted.is_none() {
                        let attempt = if *i < OLD { view.attempt } else { 0 };
                        let mut update = world.update(*i, view.round, 0);
                        update.digest = fl_compress::Digest::of(&begun.len().to_le_bytes());
                        begun.push(Begun { i: *i, round: view.round, attempt, update, answers: Vec::new() });
                    }
                }
                Connections::Arrive(which) if !begun.is_empty() => {
                    let at = which.index(begun.len());
                    let Begun { i, round, attempt, .. } = begun[at];
                    let update = begun[at].update.clone();
                    let reply = world.send(i, (round, attempt), update);
                    // A client never queries an update of a round before its last accepted one, as it is no longer
                    // pending.
                    let later = world.acknowledged.keys().any(|(of, number)| *of == client(i) && *number > round);
                    begun[at].answers.extend(reply.filter(|_| !later));
                }
                Connections::Arrive(_) => {}
            }
        }
        for Begun { i, round, attempt, answers, .. } in &begun {
            let accepted = answers.iter().filter(|answer| **answer == UpdateReply::Accepted).count();
            prop_assert!(
                accepted == 0 || accepted == answers.len(),
                "client {} in round {}, attempt {}: {:?}", i, round, attempt, answers
            );
        }
    }

    #[test]
    fn the_model_does_not_depend_on_arrival_or_crashes(
        orders in prop::collection::vec(Just((0..4usize).collect::<Vec<_>>()).prop_shuffle(), 3),
        returns in prop::collection::vec(Just((0..6usize).collect::<Vec<_>>()).prop_shuffle(), 16),
        crashes in prop::collection::vec(any::<bool>(), 16),
        pauses in prop::collection::vec(0..1_500u64, 16),
    ) {
        let mut calm = World::new(plan(&[]));
        calm.connect(0..6);
        // Round 1 starts with the first four clients; then all six are connected.
        while !calm.is_done() {
            let (round, cohort) = (calm.round(), calm.cohort());
            (0..6).filter(|&i| cohort.contains(&client(i))).for_each(|i| drop(calm.submit(i, round, 0)));
            calm.step();
            if matches!(calm.state.phase(), Phase::Evaluating { .. }) {
                calm.pass(60_000);
            }
        }

        let mut wild = World::new(plan(&[]));
        wild.connect(0..6);
        let mut events = crashes.iter().zip(&pauses).zip(&returns).cycle();
        let mut disturb = |world: &mut World, wanted: usize| {
            for ((&crash, &pause), order) in events.by_ref().take(wanted) {
                if crash {
                    world.crash();
                    world.pass(pause);
                    world.connect(order.iter().copied());
                }
            }
        };
        while !wild.is_done() {
            let (round, cohort) = (wild.round(), wild.cohort());
            for &at in &orders[(round - 1) as usize] {
                disturb(&mut wild, 1);
                let i = (0..6).find(|&i| client(i) == cohort[at]).unwrap();
                prop_assert_eq!(wild.submit(i, round, 0), UpdateReply::Accepted);
            }
            disturb(&mut wild, 2);
            wild.step();
            if wild.round() == round {
                prop_assert!(false, "round {} is still open", round);
            }
            // A client may reconnect slowly; the next round waits for all that were connected.
            wild.connect(0..6);
            if matches!(wild.state.phase(), Phase::Evaluating { .. }) {
                wild.pass(60_000);
            }
        }
        prop_assert_eq!(wild.outcome(), calm.outcome());
        prop_assert_eq!(wild.state.model(), calm.state.model());
    }

    #[test]
    fn a_cohort_is_the_same_in_any_order(
        names in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(), size in 1..12usize, seed: u64, round: u64,
    ) {
        let sorted: Vec<_> = (0..12).map(client).collect();
        let shuffled: Vec<_> = names.into_iter().map(client).collect();
        let chosen = select(shuffled.iter(), size, seed, round, 1);
        prop_assert_eq!(&chosen, &select(sorted.iter(), size, seed, round, 1));
        prop_assert_eq!(chosen.len(), size);
    }
}

/// A crash between the last update and the close, and no client is connected at the close: the next round waits.
#[test]
fn a_crash_while_closing_leaves_the_next_cohort_as_it_was() {
    let mut calm = World::new(plan(&[]));
    let mut wild = World::new(plan(&[]));
    for world in [&mut calm, &mut wild] {
        world.connect(0..4);
        world.connect(4..6);
        (0..4).for_each(|i| drop(world.submit(i, 1, 0)));
    }
    calm.step();
    assert_eq!(calm.round(), 2);
    // The server sees six clients after the first restart, and must wait for as many after the second.
    let cohort = calm.cohort();
    let all: Vec<_> = (0..6).filter(|&i| cohort.contains(&client(i))).collect();
    all.iter().for_each(|&i| drop(calm.submit(i, 2, 0)));
    calm.step();

    wild.step();
    all.iter().for_each(|&i| drop(wild.submit(i, 2, 0)));
    wild.crash();
    wild.step();
    assert_eq!(wild.state.phase(), &Phase::Waiting);
    wild.connect([5, 4, 0, 1, 2]);
    assert_eq!(wild.state.phase(), &Phase::Waiting);
    wild.connect([3]);
    assert_eq!((wild.round(), wild.cohort()), (3, calm.cohort()));
}
