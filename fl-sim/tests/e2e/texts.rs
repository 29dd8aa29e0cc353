//! Texts and numbers in place of classes: speaking roles train a model of characters, and two clients predict a number.

use std::fmt::Write as _;
use std::fs;

use fl_learn::data::DataSource;
use fl_sim::experiment::{self, Trial};
use fl_sim::score::Score;
use fl_sim::workload::{TASK, Workload};

use crate::fixtures::{COMPRESSED, train};

const ROUNDS: u64 = 3;

fn run(clients: u32, rate: f32) -> String {
    format!(
        "name = \"texts\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = 7\n\
         [cohort]\nmin = {clients}\ntarget = {clients}\n\
         [train]\nepochs = 3\nbatch_size = 4\nlearning_rate = {rate:?}\nmomentum = 0.9\n{}",
        COMPRESSED.replace("uniform = 2", "uniform = 4")
    )
}

fn metric(score: &Score, round: usize, name: &str) -> f64 {
    score.rounds[round].metrics[&format!("evaluation/{name}")]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn speaking_roles_train_a_model_of_characters_and_report_its_perplexity() {
    let dir = tempfile::tempdir().unwrap();
    let (mut text, mut speeches) = (String::new(), "start\tend\trole\n".to_owned());
    for part in 0..30 {
        for (role, speech) in [("ANNA", "abcdefgh"), ("BERTA", "hgfedcba"), ("CARLA", "aceg bdfh ")]
            .iter()
            .enumerate()
        {
            let _ = writeln!(text, "{}:", speech.0);
            let start = text.len();
            text.push_str(&speech.1.repeat(5 + (part + role) % 3));
            let _ = writeln!(speeches, "{start}\t{}\t{}", text.len(), speech.0);
            text.push_str("\n\n");
        }
    }
    fs::write(dir.path().join("input.txt"), text).unwrap();
    fs::write(dir.path().join("speeches.tsv"), speeches).unwrap();
    let data = format!("{{ roles = {{ dir = '{}', length = 20 }} }}", dir.path().display());
    let workload = Workload {
        learner: "{ name = 'lstm', layers = 1, hidden = 24 }".parse().unwrap(),
        clients: 3,
        data: DataSource::from_argument(&data).unwrap(),
    };
    let score = train(&workload, 7, &run(3, 0.5), 2).await;
    assert!(score.balanced(), "{}", score.summary(false));
    let perplexities: Vec<f64> = score.rounds.iter().map(|round| round.perplexity.unwrap()).collect();
    assert!(score.accuracy().is_none());
    assert!(
        perplexities[2] < 0.7 * perplexities[0] && perplexities[2] < 6.0,
        "{perplexities:?}"
    );
    assert!(metric(&score, 2, "token_accuracy") > metric(&score, 0, "token_accuracy"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_predict_numbers_and_report_their_errors() {
    let dir = tempfile::tempdir().unwrap();
    let mut table = "a,b,sum\n".to_owned();
    for at in 0..400u32 {
        let (a, b) = (
            f64::from(at * 37 % 101) / 50.0 - 1.0,
            f64::from(at * 61 % 97) / 48.0 - 1.0,
        );
        let _ = writeln!(table, "{a},{b},{}", 10.0 + 2.0 * (a + b));
    }
    let file = dir.path().join("sums.csv");
    fs::write(&file, table).unwrap();
    let data = format!(
        "{{ csv = {{ file = '{}', target = 'sum', target_mean = 10.0, target_std = 2.0, test = 0.2 }} }}",
        file.display()
    );
    let workload = Workload {
        learner: "mlp".parse().unwrap(),
        clients: 2,
        data: DataSource::from_argument(&data).unwrap(),
    };
    let score = train(&workload, 7, &run(2, 0.02), 2).await;
    assert!(
        score.balanced() && score.accuracy().is_none(),
        "{}",
        score.summary(false)
    );
    let errors: Vec<f64> = (0..3).map(|round| metric(&score, round, "rmse")).collect();
    assert!(errors[2] < 0.2 && errors[2] < errors[0], "{errors:?}");
    assert!(metric(&score, 2, "mae") <= errors[2]);
    assert!(score.perplexity().is_none() && score.rmse() == Some(errors[2]));
    assert!(
        score
            .summary(false)
            .starts_with(&format!("rmse{:>24}", format!("{:.4}", errors[2])))
    );
    let trial = Trial {
        variant: "small".to_owned(),
        seed: 7,
        score,
    };
    let text = experiment::table(&[trial]);
    assert!(
        text.contains("rmse") && text.contains(&format!("{:.4} +- 0.0000", errors[2])),
        "{text}"
    );
}
