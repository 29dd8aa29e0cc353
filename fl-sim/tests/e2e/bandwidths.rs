//! The hybrid's factor by bandwidth over the links of the `model` wire.

use fl_sim::score::Score;
use fl_sim::wire::{self, Engine};

use crate::budgets::{LINKS, settled, setup_with};

/// A fifth of the values, whatever their variance, and by the bandwidth to the power of `gamma`.
async fn run(gamma: f64) -> Score {
    let dir = tempfile::tempdir().unwrap();
    let engine: Engine = toml::from_str(LINKS).unwrap();
    let rule = format!("{{ by = \"variance\", density = 0.2, alpha = 0, gamma = {gamma} }}");
    let uplink = format!("memory = \"error-feedback\"\ndefault = {{ reduce = {{ top_k = {{ density = {rule} }} }} }}");
    wire::run(setup_with(dir.path(), "", &uplink), &engine, |_| {})
        .await
        .unwrap()
}

/// Links of 1, 4 and 16 Mbit/s send a half, once and twice as many values; latency makes the measured rates differ by less.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fast_links_send_more_values_and_slow_ones_fewer() {
    let (fixed, hybrid) = (run(0.0).await, run(0.5).await);
    let bytes = |score: &Score| settled(score, |round| round.frames_up as f64);
    let seconds = |score: &Score| settled(score, |round| round.seconds);
    let (more, faster) = (bytes(&hybrid) / bytes(&fixed), seconds(&fixed) / seconds(&hybrid));
    eprintln!("{more:.3} times the bytes, {faster:.2} times faster");
    assert!((1.05..1.2).contains(&more), "{more}");
    assert!(faster > 1.5, "{faster}");
    assert_eq!(
        fixed.rounds[0].frames_up, hybrid.rounds[0].frames_up,
        "nobody is measured in the first round"
    );
    assert_eq!(hybrid.model, run(0.5).await.model, "the same bits again");
}
