//! HAPT: the phones of six people, one client per person, with the convolutional learner for this data. The data stays
//! on the clients, and the model recognizes the activities of all.

use fl_learn::data::{Builtin, DataSource, Hapt};
use fl_sim::workload::{TASK, Workload};

use crate::fixtures::{COMPRESSED, real_data, train};

const PEOPLE: u32 = 6;
const ROUNDS: u64 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_people_train_a_model_of_what_they_do() {
    let (learner, data) = match real_data("hapt", "the built-in set and `mlp`") {
        Some(dir) => (
            "har",
            DataSource::new(
                "hapt",
                &Hapt {
                    dir,
                    user: 1,
                    limit: None,
                },
            )
            .unwrap(),
        ),
        None => (
            "mlp",
            DataSource::new(
                "builtin",
                &Builtin {
                    train: 300,
                    ..Builtin::default()
                },
            )
            .unwrap(),
        ),
    };
    let workload = Workload {
        learner: learner.parse().unwrap(),
        clients: PEOPLE,
        data,
    };
    let run = format!(
        "name = \"hapt\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = 7\n\
         [cohort]\nmin = {PEOPLE}\ntarget = {PEOPLE}\n\
         [train]\nepochs = 4\nbatch_size = 16\nlearning_rate = 0.05\nmomentum = 0.5\n{}",
        COMPRESSED.replace("uniform = 2", "uniform = 4")
    );
    let score = train(&workload, 7, &run, 2).await;
    assert!(score.balanced(), "{}", score.summary(false));
    assert!(score.rounds.iter().all(|round| round.updates == u64::from(PEOPLE)));
    let accuracies: Vec<_> = score.rounds.iter().map(|round| round.accuracy.unwrap()).collect();
    println!(
        "{learner}: accuracy {accuracies:.3?}, {:.1} times fewer bytes than fp32",
        score.ratio()
    );
    // The most frequent of the 12 activities is less than a fifth of the windows.
    assert!(score.accuracy().unwrap() > 0.5, "{accuracies:?}");
}
