//! The average of the last versions, which a client evaluates beside the newest.

use fl_compress::Average;

use crate::crashes::{crash_as, goes_on};
use crate::support::{Call, TestServer, World, config};

const ROUNDS: u64 = 6;
const AVERAGE: Average = Average::Last(3);

fn world() -> World {
    let mut world = World::new(ROUNDS);
    (world.average, world.evaluate_all, world.evaluate_at_end) = (Some(AVERAGE), true, true);
    world
}

/// What the loss of the average of each version from 1 is: its first value. `None` where there is no average beside the version.
fn expected(world: &World) -> Vec<Option<f64>> {
    let of = |version: usize| {
        let count = AVERAGE.updates(version as u64);
        let updates = world.versions[..=version].iter().rev().take(count);
        let updates: Vec<_> = updates.map(|(_, step)| step.clone()).collect();
        let mut model = world.versions[version].0.clone();
        AVERAGE.apply(&world.layout, &updates, &mut model).unwrap();
        (count > 0).then_some(f64::from(model[0]))
    };
    (1..world.versions.len()).map(of).collect()
}

/// What the client reported last of each version.
fn reported(world: &World) -> Vec<Option<f64>> {
    let of = |version: u64| {
        let report = world.evaluations.iter().rev().find(|report| report.version == version);
        let metric = report.unwrap().metrics.get("average_loss")?;
        assert_eq!(metric.weight, 10.0, "one for each example");
        assert_eq!(report.unwrap().metrics.get("average_accuracy").unwrap().value, 0.7);
        Some(metric.value)
    };
    (1..=ROUNDS).map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_version_is_evaluated_with_the_average_of_the_last_ones() {
    let server = TestServer::start(world());
    let state = tempfile::tempdir().unwrap();
    goes_on(&server, state.path()).await;
    let world = server.world();
    let expected = expected(&world);
    assert_eq!(expected.iter().filter(|loss| loss.is_some()).count() as u64, ROUNDS - 1);
    assert_eq!(reported(&world), expected);
}

/// The evaluations of a run whose client is killed when it reports version 3. `keep_every`: interval at which it saves the
/// model.
async fn crashed(keep_every: u64) -> (Vec<Option<f64>>, Vec<Option<f64>>) {
    let mut disturbed = world();
    disturbed.hang_evaluating = Some(3);
    let server = TestServer::start(disturbed);
    let config = |state: &std::path::Path| {
        let mut config = config(&server, state);
        config.keep_model_every = keep_every;
        config
    };
    let state = crash_as(&server, config, Call::Evaluate { version: 3 }).await;
    goes_on(&server, state.path()).await;
    let world = server.world();
    (reported(&world), expected(&world))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_client_averages_the_same_versions() {
    for keep_every in [1, 2] {
        let (reported, expected) = crashed(keep_every).await;
        assert_eq!(reported, expected, "{keep_every}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_snapshot_nothing_is_averaged_until_enough_versions_have_come() {
    let (reported, mut expected) = crashed(0).await;
    // The report of version 3 was sent before the crash; version 3 came again as a snapshot. The average of version 5 is the
    // next whose model updates were all seen.
    expected[3] = None;
    assert_eq!(reported, expected);
}
