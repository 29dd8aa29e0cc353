//! Rules: when rounds open and close, which clients are asked, and the acknowledgements.

use std::collections::BTreeSet;

use fl_compress::Digest;
use fl_proto::{Refusal, UpdateReply};
use fl_server::state_machine::{
    ClientEvaluation, Decision, Input, Phase, Presence, Record, RecordedStep, Reply, Standing, State,
};

use crate::contains::assert_contains;
use crate::world::World;
use crate::{client, plan};

fn refusal(reply: UpdateReply) -> Refusal {
    match reply {
        UpdateReply::Refused { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

const ACCEPTED: Standing = Standing::Settled(UpdateReply::Accepted);

/// A world in round 1 with the cohort of clients 0 to 3.
fn training() -> World {
    let mut world = World::new(plan(&[]));
    world.connect(0..4);
    assert_eq!(world.round(), 1);
    world
}

#[test]
fn a_run_waits_for_a_full_cohort_or_for_grace() {
    let mut world = World::new(plan(&[]));
    world.connect(0..1);
    world.pass(1_000_000);
    assert_eq!(world.state.phase(), &Phase::Waiting);
    world.connect(1..2);
    world.pass(9_999);
    assert_eq!(world.round(), 0);
    world.disconnect(1..2);
    world.connect(1..2);
    world.pass(9_999);
    assert_eq!(world.round(), 0, "grace restarts if clients leave");
    world.pass(1);
    assert_eq!((world.round(), world.cohort().len()), (1, 2));
    assert_eq!(training().cohort().len(), 4, "a full cohort begins at once");
}

#[test]
fn a_round_closes_by_min_target_grace_and_deadline() {
    // (updates, milliseconds since the last of them, whether the round closes)
    let table = [
        (4, 0, true),
        (3, 0, false),
        (3, 9_999, false),
        (3, 10_000, true),
        (2, 10_000, false),
        (2, 59_999, false),
        (2, 60_000, true),
        (1, 59_999, false),
    ];
    for (answers, pass, closing) in table {
        let mut world = training();
        (0..answers).for_each(|i| assert_eq!(world.submit(i, 1, 0), UpdateReply::Accepted));
        world.pass(pass);
        assert_eq!(world.is_closing(), closing, "{answers} answers, {pass} ms");
    }
}

#[test]
fn grace_never_outlives_the_deadline() {
    let mut world = training();
    world.pass(55_000);
    world.submit_all(0..3, 1);
    assert_eq!(
        world.state.wake(&world.plan, world.now, &world.presence),
        Some(1_000 + 60_000)
    );
    world.pass(5_000);
    assert!(world.is_closing());
}

#[test]
fn too_few_answers_are_kept_and_others_are_asked() {
    let mut world = training();
    world.connect(4..6);
    world.submit(0, 1, 0);
    world.pass(60_000);
    assert_eq!((world.round(), world.attempt()), (1, 2));
    let cohort = world.cohort();
    assert!(
        cohort.len() == 4 && [0, 4, 5].iter().all(|&i| cohort.contains(&client(i))),
        "{cohort:?}"
    );
    assert_eq!(
        world.submit(0, 1, 0),
        UpdateReply::Accepted,
        "what was accepted stays so"
    );
    let left_out = (1..4).find(|&i| !cohort.contains(&client(i))).unwrap();
    assert_eq!(refusal(world.submit(left_out, 1, 0)), Refusal::NotSelected);
    world.submit(4, 1, 0);
    world.pass(60_000);
    world.step();
    assert_eq!(world.outcome()[0].updates.len(), 2);
}

#[test]
fn an_update_belongs_to_the_attempt_in_which_its_client_was_asked() {
    let mut world = training();
    world.connect(4..6);
    world.submit(0, 1, 0);
    let late = |world: &World, i: usize| {
        let mut update = world.update(i, 1, 0);
        update.digest = Digest::of(&[i as u8]);
        update
    };
    world.pass(60_000);
    let left_out = (1..4).find(|&i| !world.cohort().contains(&client(i))).unwrap();
    let kept = (1..4).find(|&i| world.cohort().contains(&client(i))).unwrap();
    let (slow, of_kept) = (late(&world, left_out), late(&world, kept));
    assert_eq!(
        refusal(world.send(left_out, (1, 1), slow.clone()).unwrap()),
        Refusal::NotSelected
    );
    // The two replacements leave: the remaining clients are asked again.
    world.disconnect(4..6);
    world.pass(60_000);
    assert!(world.attempt() == 3 && world.cohort().contains(&client(left_out)));
    assert_eq!(
        refusal(world.send(left_out, (1, 1), slow.clone()).unwrap()),
        Refusal::NotSelected,
        "refused once, refused for ever"
    );
    assert_eq!(
        refusal(world.send(left_out, (1, 0), slow.clone()).unwrap()),
        Refusal::NotSelected,
        "nor if the client does not say when it began"
    );
    let asked_in = world.asked_in(left_out);
    let mut again = slow;
    again.digest = Digest::of(b"again");
    assert_eq!(world.send(left_out, (1, asked_in), again), Some(UpdateReply::Accepted));
    assert_eq!(
        world.send(kept, (1, 1), of_kept),
        Some(UpdateReply::Accepted),
        "a client that was never replaced may take several attempts"
    );
}

#[test]
fn where_nobody_else_is_there_the_same_are_asked_again() {
    let mut world = training();
    let cohort = world.cohort();
    world.disconnect(0..4);
    world.pass(60_000);
    assert_eq!((world.attempt(), world.cohort()), (2, cohort));
}

#[test]
fn a_member_that_is_absent_for_too_long_is_replaced_and_its_update_still_counts() {
    let mut world = training();
    world.connect(4..6);
    world.submit(0, 1, 0);
    world.pass(5_000);
    world.disconnect(3..4);
    let lost = world.now + 10_000;
    assert_eq!(world.state.wake(&world.plan, world.now, &world.presence), Some(lost));
    let deadline = world.state.round().unwrap().deadline;
    world.pass(9_999);
    assert_eq!(world.cohort().len(), 4);
    world.pass(1);
    let round = world.state.round().unwrap();
    assert_eq!(round.attempt, 1, "the deadline is unchanged");
    assert_eq!(round.deadline, deadline, "the deadline is unchanged");
    let added: Vec<_> = (4..6).filter(|&i| round.cohort.contains(&client(i))).collect();
    assert_eq!((round.cohort.len(), added.len()), (5, 1));
    let records = world.records.len();
    world.pass(20_000);
    assert_eq!(world.records.len(), records, "a member is replaced once");
    world.connect(3..4);
    (1..4).for_each(|i| assert_eq!(world.submit(i, 1, 0), UpdateReply::Accepted));
    world.pass(10_000);
    world.step();
    assert_eq!(world.outcome()[0].updates.len(), 4);
    assert_eq!(world.fold(), world.state);
}

#[test]
fn without_others_a_round_closes_without_its_absent_members() {
    for (answers, closes) in [(1, false), (2, true)] {
        let mut world = training();
        world.submit_all(0..answers, 1);
        world.disconnect(2..4);
        if answers == 1 {
            world.disconnect(1..2);
        }
        world.pass(9_999);
        assert!(world.is_training());
        world.pass(1);
        let closing = world.is_closing();
        assert_eq!(closing, closes, "{answers} answers of at least 2");
        if !closes {
            // A new client replaces one that has left.
            world.connect(7..8);
            assert_eq!(world.submit(7, 1, 0), UpdateReply::Accepted);
            assert!(world.is_closing(), "two have answered");
        }
    }
}

#[test]
fn a_member_that_is_back_in_time_is_waited_for_again() {
    let mut world = training();
    world.submit_all(0..2, 1);
    world.disconnect(2..4);
    world.pass(9_000);
    world.connect(2..3);
    world.pass(20_000);
    assert!(world.is_training(), "one of the two is there");
    world.disconnect(2..3);
    world.pass(10_000);
    assert!(world.is_closing());
}

#[test]
fn a_client_that_is_gone_costs_its_own_round_and_no_opening_after_it() {
    let mut world = training();
    world.disconnect(3..4);
    for round in 1..=3 {
        assert_eq!(world.round(), round, "it opens with the close of the last");
        let asked = world.cohort();
        let began = world.now;
        world.submit_all(0..3, round);
        world.pass(if round == 1 { 10_000 } else { 0 });
        assert_eq!(
            (world.now - began, asked.len()),
            if round == 1 { (10_000, 4) } else { (0, 3) }
        );
        world.step();
    }
}

#[test]
fn a_paused_client_is_asked_by_no_round_and_replaces_nobody() {
    let mut world = World::new(plan(&[]));
    world.presence.pauses(client(3));
    world.connect(0..4);
    assert_eq!(world.round(), 0, "three of four: the run waits for the grace to end");
    world.pass(10_000);
    assert_eq!((world.round(), world.cohort().len()), (1, 3));
    assert!(!world.cohort().contains(&client(3)));
    world.presence.sits_out(client(0), 1);
    world.settle();
    assert!(!world.cohort().contains(&client(3)));
    world.presence.resumes(&client(3));
    world.settle();
    assert!(world.cohort().contains(&client(3)), "it replaces the client that left");
    // A member that pauses keeps its place: its training may resume.
    world.presence.pauses(client(1));
    world.settle();
    (1..4).for_each(|i| assert_eq!(world.submit(i, 1, 0), UpdateReply::Accepted));
}

#[test]
fn a_member_that_says_that_it_leaves_is_replaced_at_once() {
    for for_good in [true, false] {
        let mut world = training();
        world.connect(4..5);
        if for_good {
            world.presence.left_for_good(client(3), world.now);
        } else {
            world.presence.sits_out(client(3), 1);
        }
        world.settle();
        let round = world.state.round().unwrap();
        assert!(round.cohort.contains(&client(4)), "{round:?}");
        assert!(round.excused.contains(&client(3)), "{round:?}");
        world.submit_all(0..3, 1);
        assert_eq!(world.submit(4, 1, 0), UpdateReply::Accepted);
        assert!(world.is_closing());
        world.step();
        let in_round_2 = world.cohort().contains(&client(3));
        assert!(!(for_good && in_round_2), "who left for good is not asked again");
        assert_eq!(world.presence.connected().contains(&client(3)), !for_good);
    }
}

#[test]
fn after_a_restart_absence_counts_from_the_restart() {
    let mut world = training();
    world.submit_all(0..3, 1);
    world.disconnect(3..4);
    world.pass(4_000);
    world.crash();
    world.pass(9_999);
    assert!(world.is_training(), "no client had time to reconnect");
    world.pass(1);
    assert!(world.is_closing());
}

#[test]
fn a_run_fails_naming_the_missing_and_goes_on_when_started_again() {
    let mut world = training();
    world.submit(2, 1, 0);
    (0..3).for_each(|_| world.pass(60_000));
    let Phase::Failed { round: 1, why } = world.state.phase().clone() else {
        panic!("{:?}", world.state.phase())
    };
    assert_contains(&why, "1 of 4");
    assert_contains(&why, "client-00, client-01, client-03");
    let update = world.update(0, 1, 0);
    assert_eq!(
        world.send(0, (1, 1), update),
        None,
        "the round is tried again: a refusal could not be taken back"
    );
    assert_eq!(world.submit(2, 1, 0), UpdateReply::Accepted);

    world.crash();
    assert_eq!(world.state.phase(), &Phase::Waiting);
    world.connect(0..4);
    assert_eq!((world.round(), world.attempt()), (1, 4));
    assert_eq!(
        world.state.round().unwrap().updates.len(),
        1,
        "what was acknowledged counts"
    );
    (0..2).for_each(|_| world.pass(60_000));
    assert_eq!(world.attempt(), 6, "all retries are there again");
    world.train([0, 1, 3], 1);
    assert_eq!(world.round(), 2);
}

#[test]
fn updates_are_answered_by_what_became_of_them() {
    let mut world = training();
    assert_eq!(refusal(world.submit(9, 1, 0)), Refusal::NotSelected);
    assert_eq!(refusal(world.submit(0, 2, 0)), Refusal::NotThisRound);
    assert_eq!(world.submit(0, 1, 0), UpdateReply::Accepted);
    let records = world.records.len();
    assert_eq!(world.submit(0, 1, 0), UpdateReply::Accepted);
    assert_eq!(refusal(world.submit(0, 1, 1)), Refusal::AlreadyAccepted);
    assert_eq!(world.records.len(), records, "a question asked again leaves no record");
    let digest = world.acknowledged[&(client(0), 1)];
    world.submit_all(1..4, 1);
    for _ in 0..2 {
        assert_eq!(
            world.state.standing(&client(0), 1, 1, digest),
            ACCEPTED,
            "also when closed"
        );
        let Standing::Settled(other) = world.state.standing(&client(0), 1, 1, Digest::of(b"other")) else {
            panic!("another one was accepted");
        };
        assert_eq!(refusal(other), Refusal::AlreadyAccepted);
        world.step();
    }
    let second = world.state.standing(&client(0), 2, 1, digest);
    assert!(matches!(second, Standing::Wanted(_)), "round 2 wants one");
}

#[test]
fn the_next_round_opens_with_the_close_of_the_last() {
    let mut world = training();
    world.train(0..4, 1);
    let n = world.records.len();
    assert!(matches!(
        world.records[n - 2..],
        [Record::RoundClosed { .. }, Record::RoundOpened { .. }]
    ));
    world.submit_all(0..3, 2);
    world.pass(8_000);
    world.disconnect(3..4);
    world.pass(2_000);
    world.step();
    assert_eq!(
        world.state.phase(),
        &Phase::Waiting,
        "the server waits for the client that just left"
    );
    world.pass(7_999);
    assert_eq!(world.state.phase(), &Phase::Waiting);
    world.pass(1);
    assert_eq!((world.round(), world.cohort().len()), (3, 3), "but not for long");
    world.train(0..3, 3);
    assert!(world.is_evaluating());
}

#[test]
fn a_client_that_only_evaluates_is_asked_for_every_version_and_for_no_update() {
    let mut world = training();
    let evaluator = client(9);
    world.presence.only_evaluates(evaluator.clone());
    world.presence.arrived(evaluator.clone());
    assert!(world.presence.connected().contains(&evaluator) && !world.presence.available().contains(&evaluator));
    for round in 1..=3 {
        assert!(!world.cohort().contains(&evaluator), "round {round}");
        let view = world.state.view_of_evaluator(&world.plan, &evaluator, world.now);
        assert_eq!((view.selected, view.evaluate), (false, round > 1), "round {round}");
        if view.evaluate {
            assert!(!world.evaluate(9, round, 1.0), "not made yet");
            assert!(world.evaluate(9, round - 1, 1.0));
            let view = world.state.view_of_evaluator(&world.plan, &evaluator, world.now);
            assert!(!view.evaluate, "once is enough");
        }
        world.train(0..4, round);
    }
    let Phase::Evaluating { asked, .. } = world.state.phase() else {
        panic!("{:?}", world.state.phase())
    };
    assert!(!asked.contains(&evaluator), "the run does not wait for it");
    let view = world.state.view_of_evaluator(&world.plan, &evaluator, world.now);
    assert!(view.evaluate);
    // It resumes as what it is, and a client of this name that comes back with another certificate is one like any other.
    world.presence.pauses(evaluator.clone());
    world.presence.resumes(&evaluator);
    assert!(!world.presence.available().contains(&evaluator));
    world.presence.left(&evaluator, world.now);
    world.presence.arrived(evaluator.clone());
    assert!(world.presence.available().contains(&evaluator));
}

#[test]
fn the_last_model_is_evaluated_by_all_that_are_there() {
    let mut world = training();
    for round in 1..=3 {
        if round == 2 {
            assert!(world.state.view(&world.plan, &client(0), world.now).evaluate);
        }
        world.train(0..4, round);
    }
    assert!(!world.evaluate(0, 2, 0.0), "too late");
    for _ in 0..2 {
        assert!(world.evaluate(0, 3, 0.0));
    }
    assert!(!world.evaluate(8, 3, 8.0));
    assert!(!world.state.view(&world.plan, &client(0), world.now).evaluate);
    assert!(world.state.view(&world.plan, &client(1), world.now).evaluate);
    world.crash();
    assert!(!world.is_done(), "no client is connected right after a restart");
    world.connect(1..3);
    world.evaluate(1, 3, 1.0);
    world.evaluate(2, 3, 2.0);
    assert!(!world.is_done());
    world.pass(10_000);
    assert!(
        world.is_done(),
        "the one that is gone is waited for no longer than grace"
    );
    let summed = world.state.evaluations(3).unwrap();
    assert_eq!(
        (summed.clients, summed.examples, summed.loss, summed.accuracy()),
        (3, 30, 1.0, Some(0.5))
    );
    assert_eq!(world.fold(), world.state);
}

#[test]
fn a_run_ends_early_once_enough_clients_find_its_model_accurate() {
    let mut world = World::new(plan(&[("rounds = 3", "rounds = 9\nstop_at = 0.8")]));
    world.connect(0..4);
    let all_evaluate = |world: &mut World, version, correct| {
        for i in 0..4 {
            world.evaluate_on(10, i, version, 1.0, correct);
        }
    };
    world.train(0..4, 1);
    all_evaluate(&mut world, 1, 7.0);
    world.train(0..4, 2);
    assert!(world.is_training() && world.round() == 3, "70 %");
    world.evaluate_on(10, 0, 2, 1.0, 10.0);
    world.train(0..4, 3);
    assert!(world.is_training() && world.round() == 4, "one client");
    all_evaluate(&mut world, 3, 8.0);
    world.train(0..4, 4);
    assert!(
        matches!(world.state.phase(), Phase::Evaluating { version: 4, .. }),
        "80 %"
    );
    world.crash();
    world.connect(0..4);
    all_evaluate(&mut world, 4, 3.0);
    world.settle();
    assert!(world.is_done(), "whatever the last model turns out to be");
    assert_eq!((world.fold() == world.state, world.state.version()), (true, 4));
}

#[test]
fn a_client_that_says_that_it_does_not_evaluate_the_last_model_is_not_waited_for() {
    let mut world = training();
    for round in 1..=3 {
        // Of an older model, and by a client that left a round: neither says anything about the last model.
        world.presence.will_not_evaluate(client(0), round - 1);
        world.train(0..4, round);
    }
    world.presence.sits_out(client(1), 3);
    for i in 0..3 {
        world.presence.will_not_evaluate(client(i), 3);
        world.settle();
        assert!(world.is_evaluating(), "after client {i}");
    }
    world.presence.will_not_evaluate(client(3), 3);
    world.settle();
    assert!(world.is_done());
    assert_eq!(world.fold(), world.state);
}

#[test]
fn evaluations_of_old_versions_are_sums_that_nothing_changes() {
    let mut world = World::new(plan(&[("rounds = 3", "rounds = 9")]));
    world.connect(0..4);
    for round in 1..=4 {
        for i in 0..2 {
            let loss = i as f64;
            assert!(world.evaluate(i, round - 1, loss) && world.evaluate(i, round - 1, loss));
        }
        world.train(0..4, round);
        assert_eq!(world.fold(), world.state);
    }
    let records = world.records.len();
    assert!(world.evaluate(0, 3, 0.0), "its receipt may have been lost");
    assert!(!world.evaluate(2, 3, 2.0), "too late");
    for version in 0..3 {
        assert!(
            !world.evaluate(0, version, 0.0),
            "version {version}: the reports are forgotten"
        );
        let late = Record::EvaluationAccepted {
            version,
            client: client(2),
            evaluation: evaluation(),
        };
        let before = world.state.clone();
        assert!(world.state.apply(&late).is_err());
        assert_eq!(world.state, before);
    }
    assert_eq!(world.records.len(), records);
    for version in 0..4 {
        let summed = world.state.evaluations(version).unwrap();
        assert_eq!(summed.clients, 2, "version {version}");
        assert_eq!(summed.examples, 20, "version {version}");
        assert_eq!(summed.loss, 0.5, "version {version}");
    }
    assert_eq!(world.state.evaluations(4), None);
    assert_eq!(world.fold(), world.state);
}

#[test]
fn an_evaluation_counts_whatever_its_loss_and_no_client_outweighs_the_others() {
    let four = || {
        let mut world = World::new(plan(&[("min = 2", "min = 4"), ("target = 3", "target = 4")]));
        world.connect(0..4);
        world
    };
    // Likelihoods of densities are negative, errors of numbers without a unit are large.
    for scale in [-1e-9, -3.5, 1e7, f64::MAX / 4.0] {
        let mut world = four();
        for (i, times) in [(0, 1.0), (1, 2.0), (2, 0.5), (3, 0.5)] {
            assert!(world.evaluate(i, 0, times * scale), "{scale}");
        }
        let summed = world.state.evaluations(0).unwrap();
        assert_eq!((summed.clients, summed.examples, summed.accuracy()), (4, 40, Some(0.5)));
        assert!((summed.loss / scale - 1.0).abs() < 1e-12, "{summed:?}");
        for lie in [-f64::MAX, f64::MAX] {
            let mut world = four();
            for (i, loss) in [(0, 1.0), (1, 1.0), (2, 1.0), (3, lie)] {
                assert!(world.evaluate(i, 0, loss));
            }
            let summed = world.state.evaluations(0).unwrap();
            assert!(
                summed.loss.abs() <= 0.75 + 0.25 * 40.0,
                "at forty times the median: {summed:?}"
            );
        }
    }
    let mut world = four();
    for i in 0..3 {
        assert!(world.evaluate_on(20, i, 0, 1.0, 10.0));
    }
    assert!(world.evaluate_on(1 << 40, 3, 0, 0.0, (1u64 << 40) as f64));
    let summed = world.state.evaluations(0).unwrap();
    // Two fifths of the examples: 40 of 100.
    assert_eq!((summed.clients, summed.examples, summed.correct), (4, 100, 70.0));
    assert!((summed.loss - 0.6).abs() < 1e-12);
}

#[test]
fn a_client_that_lies_about_the_last_model_does_not_hold_the_end_of_a_run() {
    let mut world = training();
    (1..=3).for_each(|round| world.train(0..4, round));
    for (i, loss) in [(0, 0.5), (1, 0.5), (2, 0.5), (3, -1.7e308)] {
        assert!(!world.is_done());
        world.evaluate(i, 3, loss);
    }
    world.settle();
    assert!(world.is_done(), "{:?}", world.state.phase());
    let summed = world.state.evaluations(3).unwrap();
    assert_eq!((summed.clients, summed.accuracy()), (4, Some(0.5)));
    assert!((-5.0..0.0).contains(&summed.loss), "{summed:?}");
}

#[test]
fn a_training_loss_that_cannot_be_true_does_not_spoil_the_mean() {
    let mut world = training();
    for (i, loss) in [(0, 1.0), (1, 1.0), (2, 1.7e308)] {
        let (client, mut update) = (client(i), world.update(i, 1, 0));
        (update.loss, update.examples) = (loss, 10);
        world.acknowledged.insert((client.clone(), 1), update.digest);
        let input = Input::Update {
            client,
            round: 1,
            attempt: 1,
            update,
            transfer: None,
        };
        assert_eq!(world.input(input), Reply::Update(UpdateReply::Accepted));
    }
    world.pass(10_000);
    world.step();
    let loss = world.history().rounds[&1].mean_loss().unwrap();
    assert!((1.0..15.0).contains(&loss), "at forty times the median: {loss}");
    // What is left out is said to its client, and to no other.
    let said = |i| world.state.view(&world.plan, &client(i), world.now).message;
    assert!(
        said(2).contains("the training loss of client-02 counts with"),
        "{}",
        said(2)
    );
    assert!(!said(0).contains("loss") && world.fold() == world.state);
}

#[test]
fn without_evaluation_the_run_ends_with_its_last_round() {
    let mut world = World::new(plan(&[
        ("rounds = 3", "rounds = 1"),
        ("evaluate = true", "evaluate = false"),
    ]));
    world.connect(0..4);
    world.train(0..4, 1);
    assert!(world.is_done());
}

#[test]
fn a_restart_gives_an_open_round_its_time_again() {
    let mut world = training();
    world.submit_all(0..3, 1);
    world.now += 3_600_000;
    world.crash();
    assert_eq!(world.state.round().unwrap().updates.len(), 3);
    world.connect(3..4);
    assert_eq!(
        world.submit(3, 1, 0),
        UpdateReply::Accepted,
        "an hour offline must not cost a client its round"
    );
}

#[test]
fn nothing_follows_before_the_run_has_started() {
    let (state, plan, mut presence) = (State::new(), plan(&[]), Presence::default());
    (0..4).for_each(|i| presence.arrived(client(i)));
    for input in [Input::Tick, Input::Resume] {
        let Decision { records, wake, .. } = fl_server::state_machine::decide(&state, &plan, 5, &presence, input);
        assert!(records.is_empty() && wake.is_none());
    }
}

#[test]
fn impossible_records_are_refused_and_change_nothing() {
    let world = training();
    let update = world.update(9, 1, 0);
    let cohort = BTreeSet::from([client(1)]);
    let opened = |round, attempt| Record::RoundOpened {
        round,
        attempt,
        cohort: cohort.clone(),
        present: 1,
        at: 0,
        deadline: 0,
    };
    let (frame, stages) = (update.digest, update.stages);
    let replaced = |round, absent, by| Record::MembersReplaced {
        round,
        absent: BTreeSet::from([client(absent)]),
        by: BTreeSet::from([client(by)]),
        at: 0,
    };
    for record in [
        Record::Started {
            plan: frame,
            model: frame,
            at: 0,
        },
        Record::Gathered { since: None },
        opened(2, 1),
        opened(1, 1),
        opened(1, 3),
        Record::UpdateAccepted {
            round: 1,
            client: client(9),
            update: update.clone(),
        },
        Record::UpdateAccepted {
            round: 2,
            client: client(1),
            update,
        },
        replaced(2, 3, 9),
        replaced(1, 9, 8),
        replaced(1, 3, 2),
        Record::MembersReplaced {
            round: 1,
            absent: BTreeSet::from([client(3)]),
            by: BTreeSet::new(),
            at: 0,
        },
        Record::RoundClosing { round: 1, at: 0 },
        Record::RoundClosed {
            round: 1,
            step: RecordedStep {
                frame,
                frame_len: 1,
                stages,
                model: frame,
            },
            limited: Vec::new(),
            at: 0,
        },
        Record::EvaluationOpened {
            version: 0,
            asked: cohort.clone(),
            until: 0,
        },
        Record::EvaluationAccepted {
            version: 1,
            client: client(1),
            evaluation: evaluation(),
        },
        Record::RunDone { at: 0 },
        Record::RunFailed {
            round: 2,
            why: String::new(),
            at: 0,
        },
    ] {
        let mut state = world.state.clone();
        let error = state.apply(&record).unwrap_err();
        assert_eq!((&state, *error.record), (&world.state, record));
    }
    assert!(State::new().apply(&Record::RunDone { at: 0 }).is_err());
}

fn evaluation() -> ClientEvaluation {
    ClientEvaluation {
        examples: 1,
        loss: 0.0,
        correct: Some(0.0),
        language: false,
        metrics: Default::default(),
        at: 0,
    }
}

/// Closes the open round with its whole cohort.
fn close(world: &mut World) {
    let (round, cohort) = (world.round(), world.cohort());
    world.train((0..4).filter(|&i| cohort.contains(&client(i))), round);
}

#[test]
fn a_rollback_gives_an_older_model_a_new_number_and_its_rounds_are_trained_again() {
    let mut world = World::new(plan(&[("evaluate = true", "evaluate = false")]));
    world.connect(0..4);
    close(&mut world);
    let good = world.state.model();
    close(&mut world);
    assert_eq!((world.state.version(), world.round()), (2, 3));
    let late = world.update(0, 3, 0);
    world.submit(0, 3, 0);

    world.roll_back(1);
    assert_eq!(world.state.version(), 3);
    assert_eq!(world.state.depth(), 1);
    assert_eq!(world.state.model(), good);
    let versions = world.state.versions();
    assert_eq!(versions.steps(3), versions.steps(1));
    assert_eq!(versions.rolled_back(), Some((3, 1)));
    assert_eq!(
        fl_server::model::version_path(&world.state, 1, 3),
        None,
        "no step leads there"
    );
    // The open round and its number are abandoned: acknowledgements are repeated, a late update does not count.
    assert_eq!(world.round(), 4);
    assert_eq!(world.state.standing(&client(0), 3, 1, late.digest), ACCEPTED);
    assert_eq!(refusal(world.submit(1, 3, 0)), Refusal::NotThisRound);
    assert_eq!(world.state.last_round(&world.plan), 5);
    close(&mut world);
    assert!(!world.is_done());
    close(&mut world);
    assert!(world.is_done(), "three rounds are behind the model, as planned");
    assert_eq!((world.state.version(), world.state.depth()), (5, 3));
    assert_eq!(world.fold(), world.state);

    // Also to a version that was rolled back, and after the end.
    let taken_back = world.state.versions().model(2).unwrap();
    world.roll_back(2);
    assert_eq!(world.state.model(), taken_back);
    assert_eq!(world.state.depth(), 2);
    assert_eq!(world.round(), 7);
    let why = world.state.roll_back(6, 0).unwrap_err();
    assert_contains(&why, "give a version from 0 to 5");
}

#[test]
fn a_failed_run_is_rolled_back_and_goes_on() {
    let mut world = training();
    close(&mut world);
    (0..3).for_each(|_| world.pass(60_000));
    assert!(matches!(world.state.phase(), Phase::Failed { .. }));
    world.roll_back(0);
    assert_eq!((world.state.version(), world.round(), world.attempt()), (2, 3, 1));
}

#[test]
fn an_excluded_client_is_not_counted_and_not_asked_again_and_its_acknowledgement_stands() {
    let mut world = training();
    let mine = world.update(3, 1, 0).digest;
    assert_eq!(world.submit(3, 1, 0), UpdateReply::Accepted);
    let why = world.state.exclude(&"nobody".parse().unwrap(), 0).unwrap_err();
    assert_contains(&why, "nobody is not asked in round 1");
    world.exclude(3);
    assert_eq!(world.state.standing(&client(3), 1, 1, mine), ACCEPTED);
    assert!(!world.cohort().contains(&client(3)));
    world.exclude(2);
    assert_eq!(refusal(world.submit(2, 1, 0)), Refusal::NotSelected);
    world.submit_all(0..2, 1);
    let Phase::Closing(closing) = world.state.phase() else {
        panic!("{:?}", world.state.phase())
    };
    assert_eq!(
        closing.updates.clients().cloned().collect::<Vec<_>>(),
        [client(0), client(1)]
    );
    let why = world.state.exclude(&client(0), 0).unwrap_err();
    assert_contains(&why, "rollback --to 0");
    world.step();
    assert_eq!(world.outcome()[0].updates.len(), 2);
    assert_eq!(world.state.standing(&client(3), 1, 1, mine), ACCEPTED);
    assert_eq!(world.cohort().len(), 4, "the next round asks all again");
}

#[test]
fn a_round_with_too_few_members_left_is_opened_again_with_others() {
    let mut world = training();
    (1..4).for_each(|i| world.exclude(i));
    assert_eq!((world.cohort(), world.attempt()), (vec![client(0)], 1));
    assert_eq!(world.submit(0, 1, 0), UpdateReply::Accepted);
    assert!(world.is_training(), "one update is less than the two needed");
    world.connect([4]);
    assert_eq!((world.cohort(), world.attempt()), (vec![client(0), client(4)], 2));
    assert_eq!(world.submit(4, 1, 0), UpdateReply::Accepted);
    world.step();
    assert_eq!(world.outcome()[0].updates.len(), 2);
}
