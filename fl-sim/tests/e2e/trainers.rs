//! Trainers that fail in every way, in a federation over TLS: no client hangs, no update is lost or counted twice, and the next
//! round is trained.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fl_client::trainer::{Program, Source, TrainerConfig, TrainerLearner};
use fl_client::{Evaluation, Event, Fit, FitPlan, Tasks, Verdict};
use fl_compress::{Digest, Layout};
use fl_sim::federation::{self, Member, News, Setup};

use crate::fake::{Fault, Script, act, change, square};
use crate::learners::{Practice, plain};

const TENSORS: [(&str, &[usize]); 2] = [("a.weight", &[8, 5]), ("b.bias", &[3])];
const TASK: &str = "faults";
/// The number of the client without faults.
const HEALTHY: u64 = 2;

/// A trainer, if the environment says so.
#[test]
fn fake_trainer() {
    act();
}

fn layout() -> Arc<Layout> {
    Arc::new(Layout::new(TENSORS.map(|(name, shape)| (name, shape.to_vec()))).unwrap())
}

/// The model of the start of each round.
type Models = Arc<Mutex<BTreeMap<u64, Vec<f32>>>>;

/// A learner without faults, which remembers the models that it trains from.
struct Healthy(Models);

impl Practice for Healthy {
    fn fit(&mut self, weights: &mut [f32], plan: &FitPlan) -> anyhow::Result<Fit> {
        self.0.lock().unwrap().insert(plan.round, weights.to_vec());
        let changes = (0..).map(|i| change(HEALTHY, plan.round, i));
        weights
            .iter_mut()
            .zip(changes)
            .for_each(|(weight, change)| *weight += change);
        Ok(Fit::new(60, 0.5))
    }

    fn evaluate(&mut self, _: &[f32]) -> Option<Evaluation> {
        Some(Evaluation::new(10, 0.5, 5.0))
    }
}

/// The faults of one client: about five rounds of six have one, and every eighth start.
fn script(client: u64, seed: u64, rounds: u64, folder: &Path) -> Script {
    let draw = |what: &str, at: u64| Digest::of(format!("{what} {seed} {client} {at}").as_bytes()).short();
    let pick = |faults: &[Fault], draw: u64| faults[(draw / 64 % faults.len() as u64) as usize];
    let in_round = (1..=rounds)
        .filter(|round| draw("round", *round) % 6 > 0)
        .map(|round| (round, pick(&Fault::IN_ROUND, draw("round", round))));
    let at_start = (1..4 * rounds)
        .filter(|start| draw("start", *start) % 8 == 0)
        .map(|start| (start, pick(&Fault::AT_START, draw("start", start))));
    Script {
        tensors: TENSORS
            .map(|(name, shape)| (name.to_owned(), "F32", shape.to_vec()))
            .to_vec(),
        client,
        at_start: at_start.collect(),
        in_round: in_round.collect(),
        counter: Some(folder.join(format!("starts-{client}"))),
        squares: false,
    }
}

/// An uncompressed run of these clients, from first weights that are all equal to `first`.
fn setup(dir: &Path, (rounds, seed): (u64, u64), first: f32, members: Vec<Member>) -> Setup {
    let clients = members.len();
    let run = format!(
        "name = \"faults\"\ntask = \"{TASK}\"\nrounds = {rounds}\nseed = {seed}\n[cohort]\nmin = 1\ntarget = {clients}\ngrace = \"60s\"\n\
         deadline = \"60s\"\n[limits]\nshare = 1.0\nnorm = inf\ndiscard = inf\n\
         [compression.uplink]\nmemory = \"none\"\ndefault = {{}}\n[compression.downlink]\nmemory = \"none\"\ndefault = {{}}\n"
    );
    Setup {
        gate: federation::gate(clients),
        ..Setup::new(&dir.join("fed"), run, (layout(), vec![first; layout().len()]), members)
    }
}

/// The client of this number, with a trainer that follows `script`.
fn trainer(dir: &Path, client: u64, script: &Script) -> Member {
    let program = Program::new(script.command("trainers::fake_trainer"), dir).unwrap();
    let mut config = TrainerConfig::new(TASK, Source::Command(program), dir.join("work"));
    config.no_progress = Duration::from_secs(3);
    Member {
        name: format!("client-{client}").parse().unwrap(),
        tasks: Tasks::new().with(TASK, Box::new(TrainerLearner::new(config).unwrap())),
    }
}

/// Faults by kind.
type Kinds = BTreeMap<String, u64>;

/// Runs a federation of two trainers with faults and a learner without, and prints a summary. Client 0 has `extra` in round 2.
async fn faults(seed: u64, rounds: u64, extra: Option<Fault>) -> Kinds {
    let dir = tempfile::tempdir().unwrap();
    let models = Models::default();
    let healthy = Healthy(Arc::clone(&models));
    let name = |client: u64| format!("client-{client}");
    let mut members = vec![Member {
        name: name(HEALTHY).parse().unwrap(),
        tasks: Tasks::new().with(TASK, plain(layout(), healthy)),
    }];
    let mut scripts = BTreeMap::new();
    for client in 0..HEALTHY {
        let mut script = script(client, seed, rounds, dir.path());
        if let Some(fault) = extra.filter(|_| client == 0) {
            script.in_round.insert(2, fault);
            // Round 2 begins with one of these starts.
            script.at_start.retain(|start, _| *start >= 4);
        }
        members.push(trainer(dir.path(), client, &script));
        scripts.insert(name(client), script);
    }
    let setup = setup(dir.path(), (rounds, seed), 0.0, members);
    let begun = Instant::now();
    // Accepted updates by round, reasons of clients that left a round, and who was asked.
    let mut accepted: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut left: BTreeMap<(String, u64), String> = BTreeMap::new();
    let mut asked: BTreeSet<(String, u64)> = BTreeSet::new();
    let run = federation::run(setup, |news| match news {
        News::Client(name, Event::Sent { round, verdict, .. }) => {
            assert_eq!(verdict, &Verdict::Accepted, "{name}");
            accepted.entry(*round).or_default().push(name.to_string());
        }
        News::Client(name, Event::LeftRound { round, why }) => {
            left.insert((name.to_string(), *round), why.clone());
        }
        News::Client(name, Event::Round { round, selected: true }) => {
            asked.insert((name.to_string(), *round));
        }
        _ => {}
    });
    let score = Box::pin(run).await.unwrap();
    assert_eq!(score.rounds.len() as u64, rounds);

    // Every accepted update is in the model once, and no other.
    let mut expected = vec![0.0f64; layout().len()];
    for line in &score.rounds {
        let round = line.round;
        if let Some(found) = models.lock().unwrap().get(&round) {
            let off = found.iter().zip(&expected).map(|(a, b)| (f64::from(*a) - b).abs());
            let worst = off.fold(0.0, f64::max);
            assert!(
                worst < 1e-3,
                "the model of round {round} is off by {worst}; {accepted:?}; {left:?}"
            );
        }
        let names = &accepted[&round];
        assert_eq!(line.updates, names.len() as u64, "round {round}");
        for name in names {
            let client: u64 = name.strip_prefix("client-").unwrap().parse().unwrap();
            for (at, value) in (0..).zip(&mut expected) {
                *value += f64::from(change(client, round, at)) / names.len() as f64;
            }
        }
    }
    assert!(models.lock().unwrap().len() as u64 >= rounds - 1);
    assert!(
        asked.len() as u64 >= 3 * (rounds - 1),
        "{} of {}",
        asked.len(),
        3 * rounds
    );
    let mut kinds = Kinds::new();
    for (name, script) in &scripts {
        // The first round may begin before every client is connected.
        for round in (1..=rounds).filter(|round| asked.contains(&(name.clone(), *round))) {
            let sent = accepted[&round].contains(name);
            // A client whose evaluation failed may have a reason, too, and still train.
            let why = left.get(&(name.clone(), round));
            assert!(sent || why.is_some(), "{name} in round {round}");
            match script.in_round.get(&round) {
                Some(fault) => {
                    let harmless = matches!(fault, Fault::PrintsLines | Fault::PrintsEndlessly);
                    assert_eq!(sent, harmless, "{name} in round {round}: {fault:?}, {why:?}");
                    *kinds.entry(format!("{fault:?}")).or_default() += 1;
                }
                None if !sent => *kinds.entry("at the start".to_owned()).or_default() += 1,
                None => {}
            }
        }
    }
    assert_eq!(
        std::fs::read_dir(dir.path().join("work")).unwrap().count(),
        0,
        "work folders are left"
    );
    let faults: u64 = kinds.values().sum();
    let updates: usize = accepted.values().map(Vec::len).sum();
    println!(
        "seed {seed}: {rounds} rounds in {:.0} s, {faults} faults, {updates} updates, each in the model once; {kinds:?}",
        begun.elapsed().as_secs_f64()
    );
    kinds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trainer_that_starts_from_the_servers_first_weights_downloads_no_model() {
    // The fake trainer's own weights are 0.25 everywhere. Three rounds: model updates travel in either case.
    let snapshot = |first: f32| async move {
        let dir = tempfile::tempdir().unwrap();
        let script = Script {
            tensors: TENSORS
                .map(|(name, shape)| (name.to_owned(), "F32", shape.to_vec()))
                .to_vec(),
            ..Script::default()
        };
        let members = vec![trainer(dir.path(), 0, &script)];
        let score = Box::pin(federation::run(setup(dir.path(), (3, 1), first, members), |_| ()))
            .await
            .unwrap();
        assert_eq!(score.rounds.len(), 3);
        assert!(score.rounds[2].frames_down > 0);
        score.rounds[0].frames_down
    };
    assert_eq!(snapshot(0.25).await, 0);
    assert!(snapshot(0.5).await >= 4 * layout().len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trainers_with_faults_lose_no_update_and_train_the_next_round() {
    assert!(faults(11, 12, None).await.values().sum::<u64>() > 10);
}

/// What top-k sends of `values`: the `k` with the largest weight, the first among equals.
fn largest(values: &[f32], weights: &[f32], k: usize) -> Vec<f32> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
    let mut sent = vec![0.0; values.len()];
    order[..k].iter().for_each(|&at| sent[at] = values[at]);
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn squared_gradients_of_a_trainer_choose_what_is_sent_and_magnitudes_do_without() {
    let dir = tempfile::tempdir().unwrap();
    let models = Models::default();
    let mut script = script(0, 1, 0, dir.path());
    script.squares = true;
    let healthy = Member {
        name: "healthy".parse().unwrap(),
        tasks: Tasks::new().with(TASK, plain(layout(), Healthy(Arc::clone(&models)))),
    };
    let members = vec![healthy, trainer(dir.path(), 0, &script)];
    let mut setup = setup(dir.path(), (2, 1), 0.0, members);
    setup.run = format!(
        "name = \"squares\"\ntask = \"{TASK}\"\nrounds = 2\nseed = 1\n[cohort]\nmin = 2\ntarget = 2\ndeadline = \"60s\"\n\
         [limits]\nshare = 1.0\nnorm = inf\ndiscard = inf\n[compression.uplink]\nmemory = \"none\"\n\
         default = {{ reduce = {{ top_k = {{ density = {{ by = \"fisher\", form = \"gradients\", density = 0.1 }} }} }} }}\n\
         [compression.downlink]\nmemory = \"none\"\ndefault = {{}}\n"
    );
    let score = Box::pin(federation::run(setup, |_| {})).await.unwrap();
    assert!(score.rounds.iter().all(|round| round.updates == 2));
    let values = |client| -> Vec<f32> { (0..43).map(|i| change(client, 1, i)).collect() };
    let sent = |client, weight: &dyn Fn(u64, f32) -> f32| -> Vec<f32> {
        let values = values(client);
        let weights: Vec<f32> = (0..).zip(&values).map(|(i, value)| weight(i, *value)).collect();
        let of = |range: std::ops::Range<usize>, k| largest(&values[range.clone()], &weights[range], k);
        [of(0..40, 4), of(40..43, 1)].concat()
    };
    let by_squares = sent(0, &|i, value| value.abs() * square(1, i).sqrt());
    assert_ne!(by_squares, sent(0, &|_, value| value.abs()));
    let by_magnitude = sent(HEALTHY, &|_, value| value.abs());
    let expected: Vec<f32> = by_squares
        .iter()
        .zip(by_magnitude)
        .map(|(a, b)| (a + b) / 2.0)
        .collect();
    assert_eq!(models.lock().unwrap()[&2], expected);
}

/// `cargo faults`. Each seed has one trainer that prints 1 GiB, in lines or without a line feed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn two_hundred_faults() {
    let begun = Instant::now();
    let mut all = Kinds::new();
    for (seed, prints) in (1..).zip([Fault::PrintsEndlessly, Fault::PrintsLines].into_iter().cycle()) {
        for (kind, count) in faults(seed, 30, Some(prints)).await {
            *all.entry(kind).or_default() += count;
        }
        if all.values().sum::<u64>() >= 200 {
            break;
        }
    }
    for kind in Fault::IN_ROUND
        .iter()
        .chain(&[Fault::PrintsEndlessly, Fault::PrintsLines])
    {
        assert!(all.contains_key(&format!("{kind:?}")), "no fault was {kind:?}: {all:?}");
    }
    println!(
        "{} faults in {:.0} s: no client hung, no update was lost or counted twice, every round was closed; {all:?}",
        all.values().sum::<u64>(),
        begun.elapsed().as_secs_f64()
    );
}
