use std::fs;
use std::path::Path;
use std::sync::Arc;

use fl_compress::weights::Weights as WeightsFile;
use serde::Deserialize;
use toml::Table;

use super::super::init;
use super::super::model::BoxedModel;
use super::super::opened::Source;
use super::super::params::{ModelTensors, Params};
use super::*;
use crate::data::{Dataset, Features, Tokens};
use crate::learners::LearnerChoice;
use crate::ops::cross_entropy;

/// A folder that `tests/fixtures/hugging_face.py` wrote.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/hugging_face")
        .join(name)
}

#[derive(Deserialize)]
struct Figures {
    tokens: Vec<u32>,
    rank: usize,
    alpha: f64,
    targets: Vec<String>,
    plain: Vec<f32>,
    adapted: Vec<f32>,
}

fn figures(name: &str) -> Figures {
    serde_json::from_str(&fs::read_to_string(folder(name).join("logits.json")).unwrap()).unwrap()
}

fn settings(folder: &Path, figures: &Figures, rest: &str) -> Table {
    let Figures {
        rank, alpha, targets, ..
    } = figures;
    let text = format!(
        "model = {:?}\nrank = {rank}\nalpha = {alpha:?}\ntargets = {targets:?}\n{rest}",
        folder.display().to_string()
    );
    text.parse().unwrap()
}

fn build(settings: &Table) -> anyhow::Result<(BoxedModel, ModelTensors)> {
    let params = Params::new(&Device::Cpu);
    match Source::new(&LEARNER, settings, Input::of_text(8, 24), &params)? {
        Source::Kept(model) => Ok((model, params.finish()?)),
        Source::Made(_) => anyhow::bail!("lora is kept"),
    }
}

fn load(built: &ModelTensors, weights: &[f32]) {
    built.load(weights).unwrap();
}

fn logits(model: &dyn Model, tokens: &[u32]) -> Vec<f32> {
    let x = Tensor::new(tokens, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
    let logits = model.forward(&mut Tape::default(), &x).unwrap();
    logits.flatten_all().unwrap().to_vec1().unwrap()
}

fn assert_near(have: &[f32], want: &[f32], tolerance: f32, what: &str) {
    assert_eq!(have.len(), want.len(), "{what}");
    let apart = have.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < tolerance, "{what}: logits differ by {apart}");
}

#[test]
fn models_and_adapters_of_peft_give_pefts_logits() {
    for name in ["llama", "qwen2", "gpt2"] {
        let figures = figures(name);
        let (model, built) = build(&settings(&folder(name), &figures, "")).unwrap();
        load(&built, &init::fill(&built.layout, &built.inits, 1));
        // B is zero at first.
        assert_near(&logits(model.as_ref(), &figures.tokens), &figures.plain, 1e-4, name);
        let bytes = fs::read(folder(name).join("adapter/adapter_model.safetensors")).unwrap();
        let file = WeightsFile::parse(&bytes).unwrap();
        file.expect(&built.layout).unwrap();
        load(&built, &file.values().unwrap());
        assert_near(&logits(model.as_ref(), &figures.tokens), &figures.adapted, 1e-4, name);
    }
}

#[test]
fn data_in_other_tokens_than_the_models_is_refused() {
    let (model, _) = build(&settings(&folder("llama"), &figures("llama"), "")).unwrap();
    let text = |classes: usize, names: &[String]| {
        let mut tokens = Tokens::new(classes);
        (0..9).for_each(|at| tokens.push(at % 3).unwrap());
        let set = Dataset::of_text(
            Features::Text {
                tokens,
                pieces: std::iter::once(1..9).collect(),
            },
            8,
        )
        .unwrap();
        let named = |set: Dataset| set.with_class_names(names.to_vec()).unwrap();
        Examples::all(Arc::new(if names.is_empty() { set } else { named(set) }))
    };
    let mut names = Tokenizer::read(&folder("llama")).unwrap().names().unwrap();
    model.suits(&text(names.len(), &names)).unwrap();
    model.suits(&text(names.len(), &[])).unwrap();
    names.swap(3, 4);
    for other in [text(names.len(), &names), text(5, &names[..5]), text(256, &[])] {
        let why = model.suits(&other).unwrap_err().to_string();
        assert!(why.contains("vocabulary = { tokenizer = "), "{why}");
    }
}

#[test]
fn a_base_in_bf16_gives_nearly_the_same_logits() {
    let figures = figures("llama");
    let (model, built) = build(&settings(&folder("llama"), &figures, "dtype = 'bf16'")).unwrap();
    load(&built, &init::fill(&built.layout, &built.inits, 1));
    assert_near(&logits(model.as_ref(), &figures.tokens), &figures.plain, 0.1, "bf16");
}

#[test]
fn the_description_of_an_adapter_is_pefts() {
    for name in ["llama", "qwen2", "gpt2"] {
        let own = peft_config(&settings(&folder(name), &figures(name), "")).unwrap();
        let text = fs::read_to_string(folder(name).join("adapter/adapter_config.json")).unwrap();
        let theirs: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (key, value) in own.as_object().unwrap() {
            match key.as_str() {
                "base_model_name_or_path" => {}
                // PEFT keeps a set, whose order is of no consequence.
                "target_modules" => {
                    let sorted = |value: &serde_json::Value| {
                        let mut names: Vec<String> = serde_json::from_value(value.clone()).unwrap();
                        names.sort();
                        names
                    };
                    assert_eq!(sorted(value), sorted(&theirs[key]));
                }
                _ => assert_eq!(
                    value.as_f64().map_or(value.clone(), Into::into),
                    theirs[key].as_f64().map_or(theirs[key].clone(), Into::into),
                    "{key}"
                ),
            }
        }
    }
}

#[test]
fn only_adapters_travel_and_only_they_are_trained() {
    let figures = figures("llama");
    let (model, built) = build(&settings(&folder("llama"), &figures, "")).unwrap();
    load(&built, &init::fill(&built.layout, &built.inits, 1));
    let names: Vec<&str> = built
        .layout
        .tensors()
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    assert_eq!(names.len(), 2 * 2 * 2);
    assert_eq!(
        names[0],
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    );
    // 2 layers of A [3, 16] and B [16, 3] for queries, A [3, 16] and B [8, 3] for values.
    assert_eq!(built.layout.len(), 2 * (48 + 48 + 48 + 24));
    let x = Tensor::new(figures.tokens.as_slice(), &Device::Cpu)
        .unwrap()
        .unsqueeze(0)
        .unwrap();
    let mut tape = Tape::training(&built.vars, 1);
    let logits = model.forward(&mut tape, &x).unwrap();
    let loss = cross_entropy(&mut tape, &logits, &[1; 8]).unwrap();
    let grads = tape.backward(&loss, &built.vars).unwrap();
    for (grad, name) in grads.iter().zip(&names) {
        let size = grad.abs().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
        // B is zero, so the gradient of A is zero in the first step.
        assert_eq!(size > 0.0, name.contains("lora_B"), "{name}");
    }
}

#[test]
fn rounds_train_both_matrices_one_of_them_or_each_in_turn() {
    let figures = figures("llama");
    let trains = |update: &str, round: u64| {
        let (model, built) = build(&settings(&folder("llama"), &figures, &format!("update = '{update}'"))).unwrap();
        let names = built.layout.tensors().iter().map(|tensor| tensor.name.clone());
        let trained: Vec<String> = names.filter(|name| model.trains(name, round)).collect();
        let of = |part: &str| trained.iter().any(|name| name.contains(part));
        (of("lora_A"), of("lora_B"))
    };
    assert_eq!((trains("both", 1), trains("both", 2)), ((true, true), (true, true)));
    assert_eq!(
        (trains("b-only", 1), trains("b-only", 2)),
        ((false, true), (false, true))
    );
    assert_eq!(
        (trains("alternate", 1), trains("alternate", 2)),
        ((false, true), (true, false))
    );
}

/// A copy of a folder's files that a test may spoil.
fn copy(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in fs::read_dir(folder(name)).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
        }
    }
    dir
}

#[test]
fn spoiled_folders_are_refused_with_the_file_and_the_key() {
    let figures = figures("llama");
    let error = |dir: &Path, rest: &str| {
        let mut settings = settings(dir, &figures, "");
        settings.extend(rest.parse::<Table>().unwrap());
        format!("{:#}", build(&settings).err().unwrap())
    };
    let dir = copy("llama");
    for (rest, part) in [
        (
            "rank = 9",
            "`rank` is 9, but layer `model.layers.0.self_attn.v_proj` has only 16 inputs and 8 outputs",
        ),
        ("targets = ['c_attn']", "has no such layer"),
    ] {
        let error = error(dir.path(), rest);
        assert!(error.contains(part), "{error}");
    }
    let edit = |from: &str, to: &str| {
        let dir = copy("llama");
        let path = dir.path().join("config.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from));
        fs::write(path, text.replace(from, to)).unwrap();
        dir
    };
    for (from, to, part) in [
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 3",
            "tensor `model.layers.2.input_layernorm.weight` of the model is missing",
        ),
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 1",
            "tensor `model.layers.1.",
        ),
        (
            "\"intermediate_size\": 20",
            "\"intermediate_size\": 21",
            "is [20, 16], but config.json makes it [21, 16]",
        ),
        (
            "\"vocab_size\": 24",
            "\"vocab_size\": 23",
            "the data has a vocabulary of 24 tokens, the model one of 23",
        ),
        (
            "\"max_position_embeddings\": 32",
            "\"max_position_embeddings\": 4",
            "longer than the model's 4 positions",
        ),
        (
            "\"vocab_size\": 24",
            "\"vocab_size\": 18446744073709551615",
            "the number of vocabulary is",
        ),
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 4294967295",
            "the number of layers is",
        ),
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 1024",
            "tensor `model.layers.2.input_layernorm.weight` of the model is missing",
        ),
        ("llama", "mamba", "`model_type` is \"mamba\""),
        ("{", "", "config.json"),
    ] {
        let error = error(edit(from, to).path(), "");
        assert!(error.contains(part), "{to}: {error}");
    }
    // Nested deeper than any stack, and larger than any memory.
    let dir = copy("llama");
    let config = dir.path().join("config.json");
    fs::write(&config, format!(r#"{{"x": {}"#, "[".repeat(1 << 19))).unwrap();
    let said = error(dir.path(), "");
    assert!(said.contains("config.json: EOF while parsing a list"), "{said}");
    fs::File::create(&config).unwrap().set_len(1 << 40).unwrap();
    assert!(error(dir.path(), "").contains("config.json"));
    let dir = copy("llama");
    let weights = dir.path().join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    fs::write(&weights, &bytes[..bytes.len() - 1]).unwrap();
    assert!(error(dir.path(), "").contains("model.safetensors: not a complete safetensors file"));
    fs::remove_file(&weights).unwrap();
    assert!(error(dir.path(), "").contains("there is neither model.safetensors nor"));
    fs::remove_file(dir.path().join("config.json")).unwrap();
    assert!(error(dir.path(), "").contains("config.json"));
    let parts = copy("gpt2");
    let index = parts.path().join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).unwrap();
    for (from, to, part) in [
        (
            "model-00002-of-00002",
            "../model-00002-of-00002",
            "is not the name of a file in this folder",
        ),
        (
            "model-00002-of-00002",
            "model-00003-of-00002",
            "model-00003-of-00002.safetensors",
        ),
    ] {
        fs::write(&index, text.replace(from, to)).unwrap();
        let error = error(parts.path(), "targets = ['c_attn']");
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn settings_are_checked() {
    for (text, part) in [
        ("", "missing field `model`"),
        ("model = 'x'\nrank = 0", "`rank` is 0"),
        ("model = 'x'\nalpha = -1.0", "`alpha` is -1"),
        ("model = 'x'\ntargets = []", "`targets` must be"),
        ("model = 'x'\nupdate = 'a-only'", "unknown variant `a-only`"),
        ("model = 'x'\nranks = 3", "unknown field `ranks`"),
    ] {
        let error = (LEARNER.check)(&text.parse().unwrap()).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
    let mut choice: LearnerChoice = "{ name = 'lora', model = 'models/tiny' }".parse().unwrap();
    choice.relative_to(Path::new("/base"));
    assert_eq!(choice.settings()["model"].as_str(), Some("/base/models/tiny"));
}

mod rounds {
    use fl_proto::{Length, StatePolicy, Training};

    use super::*;
    use crate::data::ClientData;
    use crate::learners::{LearnerChoice, TrainedModel};
    use fl_client::DeviceChoice;
    use fl_client::{FitPlan, Learner as _, Progress};

    fn learner(rest: &str) -> TrainedModel {
        let mut tokens = Tokens::new(24);
        (0..33).for_each(|at| tokens.push(at * 7 % 24).unwrap());
        let pieces = (0..4).map(|at| at * 8 + 1..at * 8 + 9).collect();
        let set = Dataset::of_text(Features::Text { tokens, pieces }, 8).unwrap();
        let train = Examples::all(Arc::new(set));
        let data = ClientData {
            test: train.clone(),
            train,
        };
        let settings = settings(&folder("llama"), &figures("llama"), rest);
        let choice = LearnerChoice::new("lora", settings).unwrap();
        let mut learner = choice.build_trained(DeviceChoice::Cpu, data).unwrap();
        let first = learner.initial(1, &Arc::new(Progress::default())).unwrap();
        learner.load(&first).unwrap();
        learner
    }

    fn plan(round: u64) -> FitPlan {
        let training = Training {
            length: Length::Steps(4),
            batch_size: 2,
            learning_rate: 0.5,
            ..Training::default()
        };
        let mut plan = FitPlan::new(training, round, 10, 3);
        plan.squared_gradients = true;
        plan
    }

    /// The names of the tensors that a round changed, and of those with a squared gradient.
    fn changed(learner: &mut TrainedModel, round: u64) -> [Vec<String>; 2] {
        let layout = learner.layout();
        let [mut before, mut after] = [(); 2].map(|()| vec![0.0; layout.len()]);
        learner.weights(&mut before).unwrap();
        let fit = learner.fit(&plan(round)).unwrap();
        learner.weights(&mut after).unwrap();
        let squares = fit.squared_gradients.unwrap();
        let named = |differs: &dyn Fn(usize) -> bool| {
            let tensors = layout.tensors().iter();
            let moved = tensors.filter(|tensor| (tensor.offset..tensor.offset + tensor.len).any(differs));
            moved.map(|tensor| tensor.name.clone()).collect()
        };
        [named(&|at| before[at] != after[at]), named(&|at| squares[at] > 0.0)]
    }

    #[test]
    fn alternate_rounds_change_b_and_then_a() {
        let mut learner = learner("");
        for (round, part) in [(1, "lora_B"), (2, "lora_A"), (3, "lora_B")] {
            for names in changed(&mut learner, round) {
                assert_eq!(names.len(), 4, "{names:?}");
                assert!(names.iter().all(|name| name.contains(part)), "round {round}: {names:?}");
            }
        }
    }

    #[test]
    fn adapters_learn() {
        let mut learner = learner("update = 'both'");
        let before = learner.evaluate().unwrap().unwrap().loss;
        for round in 1..6 {
            learner.fit(&plan(round)).unwrap();
        }
        let after = learner.evaluate().unwrap().unwrap().loss;
        assert!(after < 0.8 * before, "{before} {after}");
    }

    #[test]
    fn moments_are_not_kept_for_matrices_that_take_turns() {
        let mut kept = plan(1);
        kept.training.state = StatePolicy::Kept;
        let error = learner("").fit(&kept).unwrap_err().to_string();
        assert!(
            error.contains("`state = \"kept\"`") && error.contains("b-only"),
            "{error}"
        );
        assert!(learner("update = 'b-only'").fit(&kept).is_ok());
    }
}
