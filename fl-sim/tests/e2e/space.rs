//! Runs with `train.space`: a few values travel, and the model that the server exports is the one that the clients evaluate.

use std::path::Path;

use fl_client::weights;
use fl_sim::federation::{self, Setup};
use fl_sim::wire::{self, Engine};
use fl_sim::workload::Workload;

use crate::fixtures::process::{done, fails, sim};

const CLIENTS: u32 = 3;
/// Values of the built-in `mlp`.
const MODEL: u64 = 159_010;

fn workload() -> Workload {
    toml::from_str(&format!(
        "learner = \"mlp\"\nclients = {CLIENTS}\ndata = {{ builtin = {{ train = 200, test = 100 }} }}"
    ))
    .unwrap()
}

fn run(space: &str) -> String {
    format!(
        "name = \"space\"\ntask = \"simulation\"\nrounds = 4\nseed = 3\ncohort = {{ min = {CLIENTS}, target = {CLIENTS} }}\n\
         [train]\nepochs = 3\nlearning_rate = 0.3\nmomentum = 0.9\nspace = {space}\n"
    )
}

async fn exported_model_is_the_evaluated_one(space: &str, values: u64) {
    let (workload, dir) = (workload(), tempfile::tempdir().unwrap());
    let (layout, first) = workload.initial(3).unwrap();
    let setup = |dir: &Path| {
        Setup::new(
            dir,
            run(space),
            (layout.clone(), first.clone()),
            workload.members().unwrap(),
        )
    };
    let score = federation::run(setup(dir.path()), |_| {}).await.unwrap();
    assert!(score.balanced(), "{}", score.summary(false));
    let (first_loss, last) = (score.rounds[0].test_loss.unwrap(), score.rounds.last().unwrap());
    assert!(last.test_loss.unwrap() < first_loss, "{}", score.summary(false));
    // An update has a budget of at most two bits a value.
    let largest = score.rounds.iter().map(|round| round.frames_up).max().unwrap();
    assert!(largest < u64::from(CLIENTS) * (values / 4 + 300), "{largest}");

    let fed = dir.path().to_str().unwrap();
    let out = dir.path().join("model.safetensors");
    done(sim(["server", "export", fed, "-o", out.to_str().unwrap()]));
    let model = weights::import(&out, &layout).unwrap();
    assert_ne!(model, first);
    let (mut correct, mut examples) = (0.0, 0);
    for client in 0..CLIENTS {
        let mut learner = workload.learner(client).unwrap();
        learner.load(&model).unwrap();
        let evaluation = learner.evaluate().unwrap().unwrap();
        correct += evaluation.correct.unwrap();
        examples += evaluation.examples;
    }
    assert_eq!(score.accuracy(), Some(correct / examples as f64));

    let in_memory = wire::run(setup(&dir.path().join("memory")), &Engine::default(), |_| {})
        .await
        .unwrap();
    assert_eq!(in_memory.model, score.model);

    let report = done(sim(["server", "report", fed, "--format", "json"]));
    let report: fl_server::report::Report = serde_json::from_str(&report).unwrap();
    assert_eq!(report.run.parameters, MODEL);
    let bytes = |name: &str| {
        let base = report.baselines.iter().find(|base| base.name == name).unwrap();
        base.up + base.down
    };
    // Both ratios: to the whole model and to z, in fp32.
    assert_eq!(bytes("fedavg-fp32") * values, bytes("space-fp32") * MODEL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exported_model_of_shared_values_is_the_evaluated_one() {
    exported_model_is_the_evaluated_one("{ shared = 1200 }", 1200).await;
}

/// Four rounds train all three blocks, and the first one twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exported_model_of_blocks_is_the_evaluated_one() {
    exported_model_is_the_evaluated_one("{ shared = 1200, blocks = 3 }", 3600).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exported_model_of_low_rank_is_the_evaluated_one() {
    // Of [200, 784] and [10, 200], and two biases.
    exported_model_is_the_evaluated_one("{ lowrank = 4, basis = \"dct\" }", 800 + 40 + 210).await;
}

#[test]
fn a_space_that_does_not_suit_the_model_is_refused_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    done(sim([
        "client",
        "init",
        "--learner",
        "mlp",
        "-o",
        &path("init.safetensors"),
    ]));
    let check = |space: &str| {
        let text = format!("model = \"init.safetensors\"\n{}", run(space));
        std::fs::write(path("run.toml"), text).unwrap();
        sim(["server", "check", &path("run.toml")])
    };
    for (space, part) in [
        ("{ shared = 0 }", "`space.shared` is 0"),
        (
            "{ shared = 200000 }",
            "`train.space.shared` is 200000, but must be 4 to 159010",
        ),
        (
            "{ lowrank = 201 }",
            "`train.space.lowrank` is 201, but the largest rank",
        ),
        ("{ hashed = 3 }", "unknown field `hashed`"),
    ] {
        fails(check(space), 2, &[part]);
    }
    let text = done(check("{ shared = 1200 }"));
    assert!(text.contains("1200") && !text.contains("blocks"), "{text}");
    let text = done(check("{ shared = 1200, blocks = 64 }"));
    for part in [
        "WARNING: `train.space` has 64 blocks, of which a run of",
        "of `compression.uplink` carries over is of another block",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
