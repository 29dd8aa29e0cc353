//! From a row of the table to a learner, and to the first weights of a run.

use std::borrow::Cow;
use std::sync::Arc;

use anyhow::Context as _;
use candle_nn::{ModuleT, VarBuilder};
use fl_compress::Layout;
use toml::Table;

use super::info::{LearnerInfo, Make};
use super::init;
use super::opened::Source;
use super::params::Params;
use super::settings::GivenSettings;
use super::trained::TrainedModel;
use crate::data::{ClientData, Input};
use fl_client::DeviceChoice;

impl LearnerInfo {
    /// A program's own model.
    pub(crate) fn of_graph(
        name: &str,
        make: impl Fn(VarBuilder<'static>, Input, &GivenSettings<'_>) -> anyhow::Result<Box<dyn ModuleT>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            name: Cow::Owned(name.to_owned()),
            about: "a model of this program",
            input: None,
            // The model reads them when it is made.
            check: |_| Ok(()),
            paths: &[],
            make: Make::OnGraph(Arc::new(make)),
        }
    }

    pub(super) fn build_trained(
        &self,
        settings: &Table,
        device: DeviceChoice,
        data: ClientData,
    ) -> anyhow::Result<TrainedModel> {
        let trained = TrainedModel::new(self, settings, device, data)?;
        trained.try_out().with_context(|| format!("learner `{}`", self.name))?;
        Ok(trained)
    }

    /// Layout and seeded first weights of the model for examples of this shape. The same on every machine.
    pub(super) fn initial_weights_with(
        &self,
        settings: &Table,
        input: Input,
        seed: u64,
    ) -> anyhow::Result<(Arc<Layout>, Vec<f32>)> {
        let params = Params::new(&candle_core::Device::Cpu);
        Source::new(self, settings, input, &params).with_context(|| format!("model `{}` for {input:?}", self.name))?;
        let built = params.finish()?;
        let weights = init::fill(&built.layout, &built.inits, seed);
        Ok((built.layout, weights))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Tensor, Var};
    use fl_compress::Role;
    use fl_proto::{OptimizerSpec, Precision, Training};

    use super::super::{LEARNERS, LearnerChoice, find};
    use super::*;
    use crate::data::{Rng, Target};
    use crate::ops::on_gpu;
    use crate::ops::{LocalOptimizer, Tape, cross_entropy};

    fn choice(text: &str) -> LearnerChoice {
        text.parse().unwrap()
    }

    /// The layout alone: drawing the weights of a large model takes seconds.
    fn layout(learner: &str, input: Input) -> Arc<Layout> {
        let choice = choice(learner);
        let params = Params::new(&Device::Cpu);
        Source::new(choice.info(), choice.settings(), input, &params).unwrap();
        params.finish().unwrap().layout
    }

    fn size(learner: &str, input: Input) -> usize {
        layout(learner, input).len()
    }

    #[test]
    fn models_have_the_sizes_they_are_known_by() {
        let known = [
            ("mlp", 159_010),
            ("cnn", 582_026),
            ("lenet", 61_706),
            ("har", 34_740),
            ("resnet8", 78_042),
            ("resnet18", 11_173_962),
            ("resnet50", 23_520_842),
            ("lstm", 745_856),
            ("transformer", 834_304),
        ];
        assert!(
            LEARNERS
                .iter()
                .map(|learner| &*learner.name)
                // Its size is that of the model it adapts.
                .filter(|name| *name != "lora")
                .eq(known.map(|(name, _)| name))
        );
        for (name, len) in known {
            assert_eq!(size(name, find(name).unwrap().input.unwrap()), len, "{name}");
        }
    }

    /// Parameters as torchvision, GPT-2's and Llama's own code count them.
    #[test]
    fn published_models_have_their_published_sizes() {
        let imagenet = Input::of_classes([3, 224, 224], 1000);
        assert_eq!(size("resnet18", imagenet), 11_689_512);
        assert_eq!(size("resnet50", imagenet), 25_557_032);
        let (layout, _) = choice("{ name = 'resnet18', norm = 'batch' }")
            .initial_weights_for(imagenet, 1)
            .unwrap();
        assert_eq!(layout.range(Role::Trained).len(), 11_689_512);
        assert_eq!(layout.range(Role::Buffer).len(), 2 * 4_800);
        let gpt2 = Input::of_text(1024, 50_257);
        assert_eq!(
            size("{ name = 'transformer', layers = 12, width = 768, heads = 12 }", gpt2),
            124_439_808
        );
        let words = Input::of_text(35, 10_000);
        assert_eq!(size("lstm", words), 2_000_000 + 2 * 321_600 + 2_010_000);
        assert_eq!(
            size("{ name = 'lstm', tied = true }", words),
            2_000_000 + 2 * 321_600 + 10_000
        );
    }

    #[test]
    fn tensors_have_the_usual_names_and_shapes() {
        let shapes = |learner: &str| {
            let layout = layout(learner, choice(learner).info().input.unwrap());
            let tensors = layout.tensors().iter();
            tensors.map(|t| (t.name.clone(), t.shape.clone())).collect::<Vec<_>>()
        };
        let has = |learner: &str, name: &str, shape: &[usize]| {
            let shapes = shapes(learner);
            let found = shapes.iter().find(|(found, _)| found == name);
            assert_eq!(
                found.map(|(_, shape)| shape.as_slice()),
                Some(shape),
                "{name} in {shapes:?}"
            );
        };
        has("cnn", "conv1.weight", &[32, 1, 5, 5]);
        has("cnn", "fc1.weight", &[512, 1024]);
        has("har", "conv1.weight", &[24, 6, 5]);
        has("{ name = 'mlp', hidden = [30, 20] }", "fc3.weight", &[10, 20]);
        has("resnet8", "layer2.0.downsample.0.weight", &[32, 16, 1, 1]);
        has("resnet50", "layer1.0.conv3.weight", &[256, 64, 1, 1]);
        has(
            "{ name = 'resnet8', norm = 'batch' }",
            "layer3.0.bn2.running_var",
            &[64],
        );
        has("lstm", "rnn.weight_hh_l1", &[800, 200]);
        has("transformer", "transformer.h.3.attn.c_attn.weight", &[128, 384]);
        let llama = "{ name = 'transformer', style = 'llama', key_heads = 2 }";
        has(llama, "model.layers.0.self_attn.k_proj.weight", &[64, 128]);
        has(llama, "model.layers.0.mlp.down_proj.weight", &[128, 341]);
        has(llama, "lm_head.weight", &[256, 128]);
    }

    #[test]
    fn inputs_of_other_shapes_fit_or_are_refused() {
        let color = Input::of_classes([3, 32, 32], 10);
        let of = |name: &str, input| find(name).unwrap().initial_weights_with(&toml::Table::new(), input, 1);
        assert_eq!(of("lenet", color).unwrap().1.len(), 62_006);
        assert!(of("cnn", color).is_ok());
        assert!(of("har", color).is_err());
        assert!(of("cnn", Input::of_classes([1, 8, 8], 10)).is_err());
        for (name, input) in [
            ("mlp", Input::of_text(8, 30)),
            ("resnet8", Input::of_text(8, 30)),
            ("resnet8", Input::of_classes([3, 4, 4], 10)),
            ("lstm", color),
            ("transformer", color),
        ] {
            let error = format!("{:#}", of(name, input).unwrap_err());
            assert!(error.contains("expects"), "{name}: {error}");
        }
        let error = find("resnet").unwrap_err().to_string();
        assert!(error.contains("mlp, cnn, lenet, har"), "{error}");
    }

    #[test]
    fn settings_out_of_range_are_refused_when_they_are_read() {
        for (text, part) in [
            ("{ name = 'mlp', hidden = [0] }", "`hidden` is 0"),
            ("{ name = 'resnet8', norm = 'layer' }", "unknown variant `layer`"),
            ("{ name = 'resnet8', groups = 4, norm = 'batch' }", "`groups` needs"),
            ("{ name = 'lstm', dropout = 1.0 }", "`dropout` is 1"),
            (
                "{ name = 'lstm', tied = true, embedding = 3 }",
                "`tied` needs an `embedding` of 200",
            ),
            (
                "{ name = 'transformer', width = 100, heads = 8 }",
                "must be a multiple of 2 `heads` = 16",
            ),
            ("{ name = 'transformer', key_heads = 2 }", "`key_heads` is 2"),
            ("{ name = 'transformer', layers = -1 }", "-1"),
        ] {
            let error = text.parse::<LearnerChoice>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let error =
            choice("{ name = 'resnet8', groups = 3 }").initial_weights_for(find("resnet8").unwrap().input.unwrap(), 1);
        assert!(format!("{:#}", error.unwrap_err()).contains("`groups` is 3, but must divide 16 channels"));
        // A model that no layout can hold is refused before its memory is taken.
        let huge = choice("{ name = 'transformer', layers = 256, width = 65536, heads = 4 }");
        let error = format!(
            "{:#}",
            huge.initial_weights_for(Input::of_text(8, 1 << 17), 1).unwrap_err()
        );
        assert!(error.contains("larger than 4294967295 values"), "{error}");
    }

    /// Every kind of model, small enough for a test.
    const SMALL: [&str; 13] = [
        "mlp",
        "cnn",
        "lenet",
        "har",
        "resnet8",
        "{ name = 'resnet8', norm = 'batch' }",
        "{ name = 'resnet8', stem = 'large', groups = 2 }",
        "{ name = 'lstm', hidden = 24, embedding = 12 }",
        "{ name = 'lstm', hidden = 16, tied = true, dropout = 0.1 }",
        "{ name = 'transformer', layers = 2, width = 32, heads = 4 }",
        "{ name = 'transformer', layers = 2, width = 32, heads = 4, dropout = 0.1, tied = false }",
        "{ name = 'transformer', style = 'llama', layers = 2, width = 32, heads = 4, key_heads = 2 }",
        "{ name = 'transformer', style = 'llama', layers = 1, width = 32, heads = 2, tied = true }",
    ];

    struct Toy {
        model: super::super::model::BoxedModel,
        vars: Vec<Var>,
        names: Vec<String>,
        x: Tensor,
        labels: Vec<u32>,
    }

    /// A model with its first weights, and four examples.
    fn toy(text: &str) -> Toy {
        let choice = choice(text);
        let mut input = choice.info().input.unwrap();
        if input.target == Target::NextToken {
            input = Input::of_text(12, 20);
        }
        let params = Params::new(&Device::Cpu);
        let Source::Kept(model) = Source::new(choice.info(), choice.settings(), input, &params).unwrap() else {
            panic!("{text}")
        };
        let built = params.finish().unwrap();
        let weights = init::fill(&built.layout, &built.inits, 3);
        let names = built
            .layout
            .tensors()
            .iter()
            .map(|tensor| tensor.name.clone())
            .collect();
        built.load(&weights).unwrap();
        let mut rng = Rng::new(4);
        let (x, rows) = if input.target == Target::NextToken {
            let tokens: Vec<u32> = (0..48).map(|_| rng.below(20) as u32).collect();
            (Tensor::from_vec(tokens, (4, 12), &Device::Cpu).unwrap(), 48)
        } else {
            let values: Vec<f32> = (0..4 * input.len()).map(|_| rng.normal() as f32).collect();
            let [channels, height, width] = input.shape;
            (
                Tensor::from_vec(values, (4, channels, height, width), &Device::Cpu).unwrap(),
                4,
            )
        };
        let labels = (0..rows).map(|_| rng.below(input.classes as u64) as u32).collect();
        let mut vars = built.vars;
        vars.truncate(built.trained);
        Toy {
            model,
            vars,
            names,
            x,
            labels,
        }
    }

    impl Toy {
        fn optimizer(&self, training: Training) -> LocalOptimizer {
            let names: Vec<&str> = self.names[..self.vars.len()].iter().map(|name| &**name).collect();
            LocalOptimizer::new(&training, &names, &self.vars).unwrap()
        }

        fn gradients(&self, mut tape: Tape) -> (f32, Vec<Tensor>) {
            let logits = self.model.forward(&mut tape, &self.x).unwrap();
            let loss = cross_entropy(&mut tape, &logits, &self.labels).unwrap();
            let value = loss.to_scalar().unwrap();
            (value, tape.backward(&loss, &self.vars).unwrap())
        }
    }

    #[test]
    fn one_step_of_every_optimizer_changes_every_trained_tensor() {
        for (text, make) in SMALL
            .iter()
            .flat_map(|text| OptimizerSpec::ALL.map(|make| (text, make)))
        {
            let toy = toy(text);
            let before: Vec<Tensor> = toy.vars.iter().map(|var| var.as_tensor().copy().unwrap()).collect();
            let (_, grads) = toy.gradients(Tape::training(&toy.vars, 1));
            let optimizer = make();
            toy.optimizer(Training {
                optimizer,
                ..Training::default()
            })
            .step(&toy.vars, &grads, 0.1)
            .unwrap();
            for ((var, before), name) in toy.vars.iter().zip(before).zip(&toy.names) {
                let moved = (var.as_tensor() - before).unwrap().abs().unwrap().sum_all().unwrap();
                assert!(
                    moved.to_scalar::<f32>().unwrap() > 0.0,
                    "{text}: {name} is not trained by {optimizer:?}"
                );
            }
        }
    }

    /// The operations of a GPU, on the CPU.
    #[test]
    fn candles_own_operations_give_the_same_gradients() {
        for text in SMALL.iter().filter(|text| !["cnn", "lenet", "har"].contains(text)) {
            let toy = toy(text);
            let (loss, grads) = toy.gradients(Tape::training(&toy.vars, 1));
            let (their_loss, their_grads) = on_gpu(|| toy.gradients(Tape::training(&toy.vars, 1)));
            assert!(
                (loss - their_loss).abs() < 1e-4 * their_loss,
                "{text}: {loss} {their_loss}"
            );
            for ((have, want), name) in grads.iter().zip(&their_grads).zip(&toy.names) {
                let (apart, whole) = (norm(&(have - want).unwrap()), norm(want));
                assert!(apart < 1e-3 * whole + 1e-6, "{text}: {name}: {apart} of {whole}");
            }
        }
    }

    fn norm(x: &Tensor) -> f32 {
        x.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap().sqrt()
    }

    #[test]
    fn narrow_products_change_gradients_a_little_and_only_on_the_devices_that_have_them() {
        for text in SMALL.iter().filter(|text| !["cnn", "lenet", "har"].contains(text)) {
            let toy = toy(text);
            let (loss, grads) = on_gpu(|| toy.gradients(Tape::training(&toy.vars, 1)));
            for (precision, most) in [(Precision::Tf32, 0.02), (Precision::Bf16, 0.4)] {
                let tape = || Tape::training(&toy.vars, 1).with_precision(precision);
                let (narrow_loss, narrow) = on_gpu(|| toy.gradients(tape()));
                let apart = (loss - narrow_loss).abs() / loss;
                assert!(apart < 1e-2, "{text}: {loss} {narrow_loss}");
                for ((have, want), name) in narrow.iter().zip(&grads).zip(&toy.names) {
                    assert_eq!(have.dtype(), DType::F32, "{text}: {name}");
                    let (apart, whole) = (norm(&(have - want).unwrap()), norm(want));
                    assert!(apart > 0.0, "{text}: {name}: no product was of {precision:?}");
                    assert!(apart < most * whole, "{text}: {name}: {apart} of {whole}");
                }
                let (cpu_loss, _) = toy.gradients(tape());
                assert_eq!(cpu_loss, toy.gradients(Tape::training(&toy.vars, 1)).0);
            }
        }
    }

    #[test]
    fn models_learn_a_text_by_heart() {
        for text in [
            "{ name = 'lstm', hidden = 48 }",
            "{ name = 'transformer', layers = 1, width = 32, heads = 4 }",
            "{ name = 'transformer', style = 'llama', layers = 1, width = 32, heads = 4 }",
        ] {
            let mut toy = toy(text);
            // Each token is that of the two before it, so that attention and memory are needed.
            let tokens: Vec<u32> = toy.x.flatten_all().unwrap().to_vec1().unwrap();
            toy.labels = (0..48)
                .map(|at: usize| {
                    if at % 12 < 2 {
                        0
                    } else {
                        (tokens[at - 1] + tokens[at - 2]) % 20
                    }
                })
                .collect();
            let mut sgd = toy.optimizer(Training {
                momentum: 0.9,
                clip_norm: Some(1.0),
                ..Training::default()
            });
            let mut last = f32::NAN;
            for step in 0..200 {
                let (loss, grads) = toy.gradients(Tape::training(&toy.vars, step));
                sgd.step(&toy.vars, &grads, 0.3).unwrap();
                last = loss;
            }
            assert!(last < 0.3, "{text}: {last}");
        }
    }
}
