use fl_proto::{Length, Schedule, Training};

use super::super::find;
use super::*;
use crate::data::{Builtin, DataSet as _, Dataset, Examples, Features, Rng};
use fl_client::Progress;

fn plan(training: Training) -> FitPlan {
    FitPlan::new(training, 1, 1, 5)
}

fn learner(name: &str) -> (TrainedModel, Vec<f32>) {
    let data = match name {
        "har" => signals(),
        _ => Builtin {
            train: 200,
            test: 50,
            ..Builtin::default()
        }
        .load()
        .unwrap(),
    };
    let mut learner = TrainedModel::new(find(name).unwrap(), &Table::new(), DeviceChoice::Cpu, data).unwrap();
    let info = find(name).unwrap();
    let (layout, weights) = info
        .initial_weights_with(&Table::new(), info.input.unwrap(), 1)
        .unwrap();
    assert_eq!(*layout, *learner.layout());
    learner.load(&weights).unwrap();
    (learner, weights)
}

#[test]
fn an_update_is_the_difference_of_the_weights() {
    let (mut learner, loaded) = learner("mlp");
    learner.fit(&plan(Training::default())).unwrap();
    let (mut after, mut update) = (vec![0.0; loaded.len()], vec![f32::NAN; loaded.len()]);
    learner.weights(&mut after).unwrap();
    learner.update(&loaded, &mut update).unwrap();
    let differences: Vec<f32> = after
        .iter()
        .zip(&loaded)
        .map(|(after, loaded)| after - loaded)
        .collect();
    assert!(update.iter().any(|value| *value != 0.0));
    assert_eq!(update, differences);
    assert!(learner.update(&loaded[1..], &mut update).is_err());
}

#[test]
fn an_evaluation_measures_running_statistics_and_leaves_those_of_the_model() {
    let data = Builtin {
        train: 200,
        test: 50,
        ..Builtin::default()
    };
    let (data, settings) = (data.load().unwrap(), "norm = 'batch'".parse().unwrap());
    let mut learner = TrainedModel::new(find("resnet8").unwrap(), &settings, DeviceChoice::Cpu, data).unwrap();
    let first = learner.initial(1, &Arc::new(Progress::default())).unwrap();
    learner.load(&first).unwrap();
    learner.fit(&plan(Training::default())).unwrap();
    let (mut weights, buffers) = (vec![0.0; first.len()], learner.layout().buffers());
    learner.weights(&mut weights).unwrap();
    let evaluation = learner.evaluate().unwrap().unwrap();
    // What compression makes of a version: statistics of another model.
    weights[buffers]
        .iter_mut()
        .for_each(|value| *value = 3.0 * *value + 1.0);
    learner.load(&weights).unwrap();
    let again = learner.evaluate().unwrap().unwrap();
    assert_eq!((again.loss, again.correct), (evaluation.loss, evaluation.correct));
    let mut after = vec![0.0; weights.len()];
    learner.weights(&mut after).unwrap();
    assert_eq!(after, weights);
}

/// Twelve classes, which differ in the frequency of a wave.
fn signals() -> ClientData {
    let mut rng = Rng::new(1);
    let mut values = Vec::new();
    for i in 0..240 {
        for _ in 0..6 {
            let phase = rng.unit() * 6.0;
            values.extend((0..128).map(|t| (f64::from(t) * 0.1 * f64::from(i % 12 + 1) + phase).sin() as f32));
        }
    }
    let labels = (0..240).map(|i| (i % 12) as u8).collect();
    let input = find("har").unwrap().input.unwrap();
    let all = Examples::all(Arc::new(Dataset::new(Features::Floats(values), labels, input).unwrap()));
    ClientData {
        train: all.clone(),
        test: all.take(50),
    }
}

fn trained(name: &str, training: Training) -> (Fit, Vec<f32>) {
    let (mut learner, mut weights) = learner(name);
    let fit = learner.fit(&plan(training)).unwrap();
    learner.weights(&mut weights).unwrap();
    (fit, weights)
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| f64::from(a - b).powi(2))
        .sum::<f64>()
        .sqrt()
}

#[test]
fn every_model_learns() {
    for name in ["mlp", "cnn", "lenet", "har"] {
        let (mut learner, _) = learner(name);
        let before = learner.evaluate().unwrap().unwrap();
        let first = learner
            .fit(&plan(Training {
                momentum: 0.9,
                ..Training::default()
            }))
            .unwrap();
        let longer = Training {
            momentum: 0.9,
            length: Length::Epochs(6),
            ..Training::default()
        };
        let last = learner.fit(&plan(longer)).unwrap();
        let after = learner.evaluate().unwrap().unwrap();
        assert!(
            last.loss < first.loss && after.loss < before.loss,
            "{name}: {first:?} {last:?} {before:?} {after:?}"
        );
        assert!(
            after.correct > before.correct && after.examples == 50,
            "{name}: {before:?} {after:?}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_bits_on_any_thread() {
    for name in ["lenet", "mlp"] {
        let here = trained(name, Training::default());
        let there = std::thread::spawn(move || trained(name, Training::default()))
            .join()
            .unwrap();
        assert_eq!(here, there);
    }
}

#[test]
fn weights_come_back_as_they_were_loaded() {
    for name in ["mlp", "har"] {
        let (learner, weights) = learner(name);
        let mut out = vec![0.0; weights.len()];
        learner.weights(&mut out).unwrap();
        assert_eq!(out, weights);
        assert!(learner.weights(&mut out[1..]).is_err());
    }
}

#[test]
fn a_proximal_term_and_a_clip_norm_keep_the_model_near_its_start() {
    let (_, start) = learner("mlp");
    let far = Training {
        learning_rate: 0.2,
        length: Length::Epochs(3),
        ..Training::default()
    };
    let free = distance(&trained("mlp", far).1, &start);
    let pulled = distance(&trained("mlp", Training { proximal: 2.0, ..far }).1, &start);
    assert!(pulled < 0.7 * free, "{pulled} {free}");
    let one = Training {
        length: Length::Steps(1),
        clip_norm: Some(0.01),
        learning_rate: 1.0,
        ..Training::default()
    };
    let moved = distance(&trained("mlp", one).1, &start);
    assert!((moved - 0.01).abs() < 1e-4, "{moved}");
}

#[test]
fn steps_and_epochs_are_counted_and_the_schedule_sets_the_rate() {
    let (mut learner, start) = learner("mlp");
    let steps = FitPlan {
        progress: Arc::new(Progress::default()),
        ..plan(Training {
            length: Length::Steps(9),
            ..Training::default()
        })
    };
    learner.fit(&steps).unwrap();
    assert_eq!(steps.progress.read(), (9, 9));
    let epochs = plan(Training {
        length: Length::Epochs(2),
        ..Training::default()
    });
    let fit = learner.fit(&epochs).unwrap();
    assert_eq!((epochs.progress.read(), fit.examples), ((14, 14), 200));
    // The last round of a step schedule that takes the rate to nearly nothing.
    learner.load(&start).unwrap();
    let schedule = Schedule::Step { every: 1, factor: 1e-6 };
    let late = FitPlan {
        round: 5,
        rounds: 5,
        ..plan(Training {
            schedule,
            ..Training::default()
        })
    };
    learner.fit(&late).unwrap();
    let mut out = start.clone();
    learner.weights(&mut out).unwrap();
    assert!(distance(&out, &start) < 1e-6);
}

#[test]
fn training_stops_when_told_and_says_when_it_diverges() {
    let (mut learner, _) = learner("mlp");
    let stopped = plan(Training::default());
    stopped.progress.stop();
    assert!(
        learner
            .fit(&stopped)
            .unwrap_err()
            .to_string()
            .contains("stopped after 0")
    );
    let wild = plan(Training {
        learning_rate: 1e30,
        ..Training::default()
    });
    assert!(
        learner
            .fit(&wild)
            .unwrap_err()
            .to_string()
            .contains("lower learning rate")
    );
}

/// What other tests look at.
impl TrainedModel {
    pub(in crate::learners) fn buffers(&self) -> &[Var] {
        &self.divided.buffers
    }

    pub(in crate::learners) fn inits(&self) -> Vec<candle_nn::Init> {
        self.own.inits.clone()
    }

    pub(in crate::learners) fn var_of(&self, name: &str) -> &Var {
        let at = self.own.layout.tensors().iter().position(|tensor| tensor.name == name);
        &self.own.vars[at.unwrap()]
    }
}
