#![allow(
    clippy::needless_pass_by_value,
    reason = "closures of a registry take a `VarBuilder` by value"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use candle_core::{D, Device};
use candle_nn::{VarBuilder, batch_norm, conv2d, layer_norm, linear, ops as nn_ops, rms_norm, seq};
use fl_client::{DeviceChoice, FitPlan, Learner};
use fl_proto::{Length, OptimizerSpec, StatePolicy, Training};
use toml::Table;

use super::super::info::LearnerInfo;
use super::super::settings::GivenSettings;
use super::super::space::InSpace;
use super::super::{TrainedModel, find};
use super::*;
use crate::data::{ClientData, Dataset, Examples, Features};

const CLASSES: usize = 3;
const INPUT: Input = Input::of_classes([1, 4, 4], CLASSES);

/// Images whose class is the third that is brightest.
fn images(count: usize) -> ClientData {
    let mut rng = Rng::new(5);
    let labels: Vec<u8> = (0..count).map(|at| (at % CLASSES) as u8).collect();
    let value =
        |label: u8, at: usize, rng: &mut Rng| f32::from(at / 6 == usize::from(label)) + 0.3 * rng.normal() as f32;
    let values = labels
        .iter()
        .flat_map(|&label| (0..16).map(|at| value(label, at, &mut rng)).collect::<Vec<_>>());
    let set = Arc::new(Dataset::new(Features::Floats(values.collect()), labels.clone(), INPUT).unwrap());
    ClientData {
        train: Examples::all(set.clone()),
        test: Examples::all(set),
    }
}

pub(in crate::learners) type Made = anyhow::Result<Box<dyn ModuleT>>;
pub(in crate::learners) type Make = fn(VarBuilder<'static>, Input, &GivenSettings<'_>) -> Made;

/// A module that is a function.
struct Net<F>(F);

impl<F: Fn(&Tensor, bool) -> Result<Tensor>> ModuleT for Net<F> {
    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        (self.0)(x, train)
    }
}

fn boxed(forward: impl Fn(&Tensor, bool) -> Result<Tensor> + 'static) -> Made {
    Ok(Box::new(Net(forward)))
}

fn with_settings(make: Make, settings: &str) -> anyhow::Result<TrainedModel> {
    let info = LearnerInfo::of_graph("net", make);
    let settings: Table = settings.parse().unwrap();
    info.build_trained(&settings, DeviceChoice::Cpu, images(30))
}

pub(in crate::learners) fn built(make: Make) -> anyhow::Result<TrainedModel> {
    with_settings(make, "")
}

fn refused(make: Make) -> String {
    format!("{:#}", built(make).unwrap_err())
}

pub(in crate::learners) fn plan(training: Training, seed: u64) -> FitPlan {
    let training = Training {
        batch_size: 10,
        ..training
    };
    FitPlan::new(training, 1, 4, seed)
}

fn fitted(learner: &mut dyn Learner, plan: &FitPlan) -> (f64, Vec<f32>) {
    let first = learner.initial(1, &Arc::default()).unwrap();
    learner.load(&first).unwrap();
    let loss = learner.fit(plan).unwrap().loss;
    let mut weights = vec![0.0; first.len()];
    learner.weights(&mut weights).unwrap();
    (loss, weights)
}

/// The built-in `mlp` of 5 hidden units, of candle-nn's modules.
fn mlp(vb: VarBuilder<'static>, input: Input, _: &GivenSettings<'_>) -> Made {
    let first = linear(input.len(), 5, vb.pp("fc1"))?;
    let last = linear(5, input.classes, vb.pp("fc2"))?;
    let net = seq()
        .add_fn(|x| x.flatten_from(1))
        .add(first)
        .add_fn(Tensor::relu)
        .add(last);
    Ok(Box::new(net))
}

/// A convolution, batch norm, dropout and a linear layer.
pub(in crate::learners) fn conv_net(vb: VarBuilder<'static>, input: Input, _: &GivenSettings<'_>) -> Made {
    let conv = conv2d(1, 4, 3, candle_nn::Conv2dConfig::default(), vb.pp("conv"))?;
    let norm = batch_norm(4, 1e-5, vb.pp("norm"))?;
    let head = linear(4, input.classes, vb.pp("head"))?;
    let dropout = Dropout::new(0.2);
    boxed(move |x, train| {
        use candle_nn::Module as _;
        let x = norm.forward_t(&conv.forward(x)?, train)?.relu()?;
        let x = dropout.forward_t(&max_pool2d(&x, 2, 1)?.flatten_from(1)?, train)?;
        head.forward(&x)
    })
}

#[test]
fn the_same_model_trains_as_the_built_in_one() {
    let settings: Table = "hidden = [5]".parse().unwrap();
    for make in OptimizerSpec::ALL {
        let training = Training {
            optimizer: make(),
            momentum: 0.5,
            clip_norm: Some(1.0),
            proximal: 0.1,
            micro_batch: Some(4),
            weight_decay: 0.01,
            learning_rate: 0.05,
            length: Length::Epochs(2),
            ..Training::default()
        };
        let plan = plan(training, 3);
        let mut own = find("mlp")
            .unwrap()
            .build_trained(&settings, DeviceChoice::Cpu, images(30))
            .unwrap();
        let first = own.initial(1, &Arc::default()).unwrap();
        let mut theirs = built(mlp).unwrap();
        assert_eq!(theirs.layout(), own.layout());
        let after = [&mut own as &mut dyn Learner, &mut theirs].map(|learner| {
            learner.load(&first).unwrap();
            let loss = learner.fit(&plan).unwrap().loss;
            let mut weights = vec![0.0; first.len()];
            learner.weights(&mut weights).unwrap();
            (loss, weights, learner.evaluate().unwrap().unwrap())
        });
        let [
            (loss, weights, evaluation),
            (their_loss, their_weights, their_evaluation),
        ] = after;
        assert!(
            (loss - their_loss).abs() < 1e-5 * loss,
            "{:?}: {loss} {their_loss}",
            plan.training.optimizer
        );
        let apart = weights
            .iter()
            .zip(&their_weights)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        assert!(apart < 1e-4, "{:?}: {apart}", plan.training.optimizer);
        assert_eq!(evaluation.correct, their_evaluation.correct);
    }
}

#[test]
fn batch_norm_and_dropout_train_the_same_each_time_and_learn() {
    let training = Training {
        learning_rate: 0.2,
        length: Length::Epochs(20),
        ..Training::default()
    };
    let of = |seed| {
        let mut learner = built(conv_net).unwrap();
        let (loss, weights) = fitted(&mut learner, &plan(training, seed));
        (loss, weights, learner.evaluate().unwrap().unwrap())
    };
    let (loss, weights, evaluation) = of(1);
    assert_eq!((loss, &weights), (of(1).0, &of(1).1));
    assert_ne!(weights, of(2).1, "the seed draws");
    assert!(evaluation.accuracy().unwrap() > 0.8, "{evaluation:?}");
}

#[test]
fn an_evaluation_measures_the_statistics_of_the_present_weights() {
    let learner = built(conv_net).unwrap();
    let opened = learner.open().unwrap();
    let buffers = learner.buffers();
    let x = Tensor::randn(0f32, 1f32, (8, 1, 4, 4), &Device::Cpu).unwrap();
    let before: Vec<Vec<f32>> = buffers.iter().map(|var| values(var.as_tensor()).unwrap()).collect();
    let measured = opened.measured(&x, buffers).unwrap();
    let after: Vec<Vec<f32>> = buffers.iter().map(|var| values(var.as_tensor()).unwrap()).collect();
    assert_eq!(before, after);
    // The weights are zero, and so is what they compute.
    assert!(
        measured
            .iter()
            .all(|(_, own)| values(own).unwrap().iter().all(|value| value.abs() < 1e-6))
    );
    let weights = learner.layout().tensors().iter().map(|tensor| tensor.len).sum();
    let mut learner = learner;
    learner.load(&vec![0.5; weights]).unwrap();
    let opened = learner.open().unwrap();
    let measured = opened.measured(&x, learner.buffers()).unwrap();
    // Of large statistics as of small ones.
    let x = (x * 3000.0).unwrap();
    let measured_of_large = opened.measured(&x, learner.buffers()).unwrap();
    for (measured, x) in [(measured, (&x / 3000.0).unwrap()), (measured_of_large, x)] {
        expect_statistics(&measured, &x);
    }
}

fn expect_statistics(measured: &[(Var, Tensor)], x: &Tensor) {
    let sums = x.unfold_sums();
    let mean = sums.iter().sum::<f64>() / sums.len() as f64;
    let variance = sums.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (sums.len() - 1) as f64;
    for (name, expected, (_, own)) in [("mean", mean, &measured[0]), ("variance", variance, &measured[1])] {
        let own = f64::from(values(own).unwrap()[0]);
        assert!(
            (own - expected).abs() < 1e-3 * expected.abs().max(1.0),
            "{name}: {own} {expected}"
        );
    }
}

/// What a 3x3 convolution with weights and bias of a half computes at each place.
trait Sums {
    fn unfold_sums(&self) -> Vec<f64>;
}

impl Sums for Tensor {
    fn unfold_sums(&self) -> Vec<f64> {
        let x = values(self).unwrap();
        let mut sums = Vec::new();
        for image in x.chunks(16) {
            for (row, column) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let places = (0..9).map(|at| (row + at / 3) * 4 + column + at % 3);
                sums.push(0.5 + places.map(|at| 0.5 * f64::from(image[at])).sum::<f64>());
            }
        }
        sums
    }
}

#[test]
fn pieces_of_a_batch_are_refused_where_they_would_move_statistics() {
    let training = Training {
        micro_batch: Some(4),
        ..Training::default()
    };
    let mut learner = built(conv_net).unwrap();
    let error = format!("{:#}", learner.fit(&plan(training, 1)).unwrap_err());
    assert!(error.contains("`micro_batch` with batch norm"), "{error}");
}

/// One value has no variance, and candle-nn divides by the number of values less one.
#[test]
fn a_batch_of_one_example_that_makes_a_statistic_infinite_is_refused() {
    let rows: Make = |vb, input, _| {
        let (first, norm) = (linear(16, 4, vb.pp("first"))?, batch_norm(4, 1e-5, vb.pp("norm"))?);
        let last = linear(4, input.classes, vb.pp("last"))?;
        boxed(move |x, train| {
            use candle_nn::Module as _;
            last.forward(&norm.forward_t(&first.forward(&x.flatten_from(1)?)?, train)?)
        })
    };
    let training = Training {
        batch_size: 29,
        ..Training::default()
    };
    let mut learner = built(rows).unwrap();
    let first = learner.initial(1, &Arc::default()).unwrap();
    learner.load(&first).unwrap();
    let error = format!("{:#}", learner.fit(&FitPlan::new(training, 1, 4, 1)).unwrap_err());
    assert!(
        error.contains("`norm.running_var` is not finite: one value has no variance"),
        "{error}"
    );
    assert!(learner.load(&first).is_ok());
}

#[test]
fn a_step_that_fails_leaves_the_statistics() {
    static STEPS: AtomicUsize = AtomicUsize::new(0);
    let failing: Make = |vb, input, _| {
        let norm = batch_norm(1, 1e-5, vb.pp("norm"))?;
        let head = linear(input.len(), input.classes, vb.pp("head"))?;
        boxed(move |x, train| {
            use candle_nn::Module as _;
            let x = norm.forward_t(x, train)?;
            if STEPS.fetch_add(1, Relaxed) > 8 {
                bail!("CUDA_ERROR_OUT_OF_MEMORY");
            }
            head.forward(&x.flatten_from(1)?)
        })
    };
    let mut learner = built(failing).unwrap();
    let first = learner.initial(1, &Arc::default()).unwrap();
    learner.load(&first).unwrap();
    STEPS.store(9, Relaxed);
    let error = format!("{:#}", learner.fit(&plan(Training::default(), 1)).unwrap_err());
    assert!(error.contains("out of memory for a single example"), "{error}");
    let mut weights = vec![0.0; first.len()];
    learner.weights(&mut weights).unwrap();
    assert_eq!(weights, first);
}

#[test]
fn an_operation_without_gradient_is_named_with_the_tensors_before_it() {
    let error = refused(|vb, input, _| {
        let first = linear(input.len(), 8, vb.pp("first"))?;
        let net = seq()
            .add_fn(|x| x.flatten_from(1))
            .add(first)
            .add(layer_norm(8, 1e-5, vb.pp("norm"))?);
        Ok(Box::new(net.add(linear(8, input.classes, vb.pp("last"))?)))
    });
    for part in [
        "learner `net`",
        "`first.bias`, `first.weight`, `norm.bias`, `norm.weight`",
        "`ops::layer_norm_slow`",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let error = refused(|vb, input, _| {
        let (q, v) = (
            linear(16, 4, vb.pp("attn.q_proj"))?,
            linear(4, input.classes, vb.pp("out"))?,
        );
        boxed(move |x, _| {
            use candle_nn::Module as _;
            v.forward(&nn_ops::softmax_last_dim(&q.forward(&x.flatten_from(1)?)?)?)
        })
    });
    assert!(
        error.contains("`attn.q_proj.bias`") && error.contains("`ops::softmax`"),
        "{error}"
    );
    // The same with operations that have one.
    built(|vb, input, _| {
        let (first, norm) = (
            linear(input.len(), 8, vb.pp("first"))?,
            rms_norm(8, 1e-5, vb.pp("norm"))?,
        );
        let last = linear(8, input.classes, vb.pp("last"))?;
        boxed(move |x, _| {
            use candle_nn::Module as _;
            let x = norm.forward_diff(&first.forward(&x.flatten_from(1)?)?)?;
            last.forward(&nn_ops::softmax(&x, D::Minus1)?)
        })
    })
    .unwrap();
}

#[test]
fn differences_of_the_loss_find_a_wrong_derivative_and_no_right_one() {
    fn pooled(vb: &VarBuilder<'_>, input: Input, pool: fn(&Tensor) -> Result<Tensor>) -> Made {
        let conv = conv2d(1, 4, 3, candle_nn::Conv2dConfig::default(), vb.pp("conv"))?;
        let head = linear(4, input.classes, vb.pp("head"))?;
        boxed(move |x, _| {
            use candle_nn::Module as _;
            head.forward(&pool(&conv.forward(x)?.tanh()?)?.flatten_from(1)?)
        })
    }
    let doubts = |make: Make| {
        let mut learner = built(make).unwrap();
        let first = learner.initial(1, &Arc::default()).unwrap();
        learner.load(&first).unwrap();
        let doubts = learner.doubts(7).unwrap();
        let mut weights = vec![0.0; first.len()];
        learner.weights(&mut weights).unwrap();
        assert_eq!(weights, first);
        doubts
    };
    let found = doubts(|vb, input, _| pooled(&vb, input, |x| x.max_pool2d(2)));
    assert_eq!(found.len(), 2, "{found:?}");
    for name in ["conv.bias", "conv.weight"] {
        let quarter = format!("the gradient of `{name}` is 0.25 times");
        assert!(found.iter().any(|doubt| doubt.contains(&quarter)), "{found:?}");
    }
    assert_eq!(
        doubts(|vb, input, _| pooled(&vb, input, |x| max_pool2d(x, 2, 2))),
        [""; 0]
    );
    assert_eq!(doubts(mlp), [""; 0]);
    assert_eq!(doubts(conv_net), [""; 0]);
}

#[test]
fn what_is_wrong_with_a_model_is_an_error_that_names_it() {
    static BUILDS: AtomicUsize = AtomicUsize::new(0);
    let cases: [(Make, &str); 13] = [
        (
            |_, _, _| anyhow::bail!("no such file: vocabulary.txt"),
            "learner `net`: no such file: vocabulary.txt",
        ),
        (
            |_, _, _| panic!("index out of bounds"),
            "making the model panicked: index out of bounds",
        ),
        (
            |vb, input, _| Ok(Box::new(linear(4, input.classes, vb.pp("fc"))?)),
            "its model fails on examples of F32 [2, 1, 4, 4]",
        ),
        (
            |vb, _, _| Ok(Box::new(seq().add_fn(|x| x.flatten_from(1)).add(linear(16, 7, vb)?))),
            "the model returns F32 [2, 7] for examples of [2, 1, 4, 4]; the data needs F32 [2, 3]",
        ),
        (
            |vb, input, _| {
                let (first, last) = (linear(16, 16, vb.pp("fc"))?, linear(16, input.classes, vb.pp("fc"))?);
                Ok(Box::new(seq().add(first).add(last)))
            },
            "tensor `fc.weight` is asked for twice",
        ),
        (
            |vb, input, _| {
                let hidden = 4 + BUILDS.fetch_add(1, Relaxed);
                let net = seq().add_fn(|x| x.flatten_from(1)).add(linear(16, hidden, vb.pp("a"))?);
                Ok(Box::new(net.add(linear(hidden, input.classes, vb.pp("b"))?)))
            },
            "tensor `a.weight` was [4, 16] when the model was first built, and now is [5, 16]",
        ),
        (
            |vb, input, _| {
                let weight = vb.get((input.classes, 16), "weight")?.affine(1.0, 0.0)?;
                boxed(move |x, _| x.flatten_from(1)?.matmul(&weight.t()?))
            },
            "its constructor computes with weights",
        ),
        (
            |vb, input, _| {
                let (first, dropout) = (linear(16, input.classes, vb)?, candle_nn::Dropout::new(0.5));
                boxed(move |x, train| {
                    use candle_nn::Module as _;
                    dropout.forward(&first.forward(&x.flatten_from(1)?)?, train)
                })
            },
            "use `fl_learn::Dropout` in place of the one of candle-nn",
        ),
        (
            |vb, input, _| {
                vb.get(3, "spare")?;
                Ok(Box::new(seq().add_fn(|x| x.flatten_from(1)).add(linear(
                    16,
                    input.classes,
                    vb,
                )?)))
            },
            "no gradient reaches `spare`",
        ),
        (
            |vb, input, _| {
                linear(16, input.classes, vb)?;
                boxed(|_, _| panic!("no such layer"))
            },
            "the model panicked: no such layer",
        ),
        (
            |vb, input, _| Ok(Box::new(linear(0, input.classes, vb.pp("fc"))?)),
            "tensor `fc.weight` of [3, 0] has no value: the examples are too small for the model",
        ),
        (
            |_, input, _| boxed(move |x, _| Tensor::zeros((x.dim(0)?, input.classes), DType::F32, x.device())),
            "learner `net` has no tensor to train",
        ),
        (
            |_, _, _| {
                Device::new_cuda(7)?;
                boxed(|x, _| Ok(x.clone()))
            },
            "learner `net`: ",
        ),
    ];
    for (make, why) in cases {
        let error = refused(make);
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[test]
fn settings_are_read_by_name_and_unknown_ones_are_refused() {
    let make: Make = |vb, input, settings| {
        let hidden = settings.get("hidden", 4)?;
        let net = seq().add_fn(|x| x.flatten_from(1)).add(linear(16, hidden, vb.pp("a"))?);
        Ok(Box::new(net.add(linear(hidden, input.classes, vb.pp("b"))?)))
    };
    assert_eq!(
        with_settings(make, "hidden = 6").unwrap().layout().len(),
        17 * 6 + 7 * 3
    );
    for (settings, why) in [
        ("hiden = 6", "there is no setting `hiden`; the settings are hidden"),
        ("hidden = 'six'", "setting `hidden`: invalid type"),
    ] {
        let error = format!("{:#}", with_settings(make, settings).unwrap_err());
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_text_may_be_given_to_a_model_of_images_and_is_refused() {
    let mut tokens = crate::data::Tokens::new(CLASSES);
    (0..40).for_each(|token| tokens.push(token % 3).unwrap());
    let text = Features::Text {
        tokens,
        pieces: vec![1..17, 17..33],
    };
    let examples = Examples::all(Arc::new(Dataset::of_text(text, 16).unwrap()));
    let data = ClientData {
        train: examples.clone(),
        test: examples,
    };
    let info = LearnerInfo::of_graph("net", mlp);
    let error = format!(
        "{:#}",
        info.build_trained(&Table::new(), DeviceChoice::Cpu, data).unwrap_err()
    );
    assert!(
        error.contains("learner `net`: its model fails on examples of U32 [2, 16]"),
        "{error}"
    );
}

#[test]
fn max_pools_are_those_of_the_definition_with_the_gradient_at_the_largest() {
    let mut rng = Rng::new(3);
    for (rows, columns, size, stride) in [(4, 4, 2, 2), (5, 7, 2, 2), (6, 5, 3, 2), (5, 5, 3, 1), (3, 3, 3, 3)] {
        let all: Vec<f32> = (0..2 * rows * columns).map(|_| rng.normal() as f32).collect();
        let x = Var::from_vec(all.clone(), (1, 2, rows, columns), &Device::Cpu).unwrap();
        let out = max_pool2d(x.as_tensor(), size, stride).unwrap();
        let grads = out.sum_all().unwrap().backward().unwrap();
        let (mut expected, mut slopes) = (Vec::new(), vec![0.0; all.len()]);
        for plane in 0..2 {
            for row in (0..=rows - size).step_by(stride) {
                for column in (0..=columns - size).step_by(stride) {
                    let places = (0..size * size).map(|at| (row + at / size) * columns + column + at % size);
                    let places = places.map(|at| plane * rows * columns + at);
                    let best = places.max_by(|a, b| all[*a].total_cmp(&all[*b])).unwrap();
                    expected.push(all[best]);
                    slopes[best] += 1.0;
                }
            }
        }
        assert_eq!(values(&out).unwrap(), expected);
        assert_eq!(values(grads.get(x.as_tensor()).unwrap()).unwrap(), slopes);
    }
    let x = Tensor::zeros((1, 1, 2, 2), DType::F32, &Device::Cpu).unwrap();
    assert!(max_pool2d(&x, 3, 1).is_err() && max_pool2d(&x, 0, 1).is_err());
}

#[test]
fn moments_are_kept() {
    let training = Training {
        optimizer: OptimizerSpec::ALL[1](),
        state: StatePolicy::Kept,
        ..Training::default()
    };
    let mut learner = InSpace::new(built(conv_net).unwrap());
    let first = learner.initial(1, &Arc::default()).unwrap();
    learner.load(&first).unwrap();
    let mut plan = plan(training, 1);
    let kept = learner.fit(&plan).unwrap().kept;
    plan.kept = kept.map(Arc::new);
    assert!(learner.fit(&plan).unwrap().kept.is_some());
}
