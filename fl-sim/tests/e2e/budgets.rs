//! Budgets that the server hands out with a round: aligned over a cohort, and for a whole run.

use fl_sim::federation::Setup;
use fl_sim::score::{RoundLine, Score};
use fl_sim::wire::{self, Engine};
use fl_sim::workload::{TASK, Workload};

/// Three classes of two clients each, whose uplinks differ by a factor of 4.
pub(crate) const LINKS: &str = "wire = \"model\"\ntrain_seconds = 0.01\nlinks = [\n\
    { up = \"1Mbit/s\", down = \"10Mbit/s\", latency = \"5ms\", clients = 2 },\n\
    { up = \"4Mbit/s\", down = \"40Mbit/s\", latency = \"5ms\", clients = 2 },\n\
    { up = \"16Mbit/s\", down = \"160Mbit/s\", latency = \"5ms\" },\n]";

const BITS: &str = "\"2 bits\"";

fn setup(dir: &std::path::Path, cohort: &str, budget: &str) -> Setup {
    setup_with(dir, cohort, &format!("budget = {budget}"))
}

/// Six clients with 20 examples each, and a codec of updates.
pub(crate) fn setup_with(dir: &std::path::Path, cohort: &str, uplink: &str) -> Setup {
    let workload =
        "learner = { name = \"mlp\", hidden = [200] }\nclients = 6\ndata = { builtin = { train = 20, test = 20 } }";
    let workload: Workload = toml::from_str(workload).unwrap();
    let run = format!(
        "name = \"aligned\"\ntask = \"{TASK}\"\nrounds = 5\nseed = 7\nevaluate = false\n[train]\nbatch_size = 20\n\
         [cohort]\nmin = 6\ntarget = 6\n{cohort}\n[compression.uplink]\n{uplink}\n"
    );
    Setup::new(dir, run, workload.initial(7).unwrap(), workload.members().unwrap())
}

async fn run(cohort: &str, budget: &str) -> Score {
    let dir = tempfile::tempdir().unwrap();
    let engine: Engine = toml::from_str(LINKS).unwrap();
    wire::run(setup(dir.path(), cohort, budget), &engine, |_| {})
        .await
        .unwrap()
}

/// Sums over the rounds from the third on: the first is measured, and a budget doubles at most from one round to the next.
pub(crate) fn settled(score: &Score, of: impl Fn(&RoundLine) -> f64) -> f64 {
    score.rounds[3..].iter().map(of).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cohort_with_aligned_budgets_finishes_together_and_earlier_with_equal_bytes() {
    let (uniform, aligned) = (run("", BITS).await, run("align = true", BITS).await);
    let bytes = |score: &Score| settled(score, |round| round.frames_up as f64);
    let spread = |score: &Score| settled(score, |round| round.spread.unwrap());
    let seconds = |score: &Score| settled(score, |round| round.seconds);
    eprintln!(
        "bytes {} and {}, spread {:.3} and {:.3} s, seconds {:.3} and {:.3}",
        bytes(&uniform),
        bytes(&aligned),
        spread(&uniform),
        spread(&aligned),
        seconds(&uniform),
        seconds(&aligned)
    );
    let ratio = bytes(&aligned) / bytes(&uniform);
    assert!((0.97..1.01).contains(&ratio), "{ratio}");
    assert!(spread(&uniform) >= 5.0 * spread(&aligned));
    assert!(seconds(&uniform) >= 1.5 * seconds(&aligned));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_for_a_run_is_spent_and_never_passed() {
    let score = run("", "{ run = \"20 kB\" }").await;
    let spent: u64 = score.rounds.iter().map(|round| round.frames_up).sum();
    let most = 6 * 20_000;
    assert!(spent <= most && spent * 100 >= 97 * most, "{spent} of {most}");
    // What a round leaves over goes to the rounds after it.
    let last = score.rounds.last().unwrap().frames_up;
    assert!(last > 6 * 4_000, "{last}");
}
