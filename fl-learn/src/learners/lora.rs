//! `lora`: a language model of Hugging Face whose weights stay as they are, with adapters of low rank that are trained
//! (Hu et al. 2021). Only the adapters travel; their names are those of PEFT.

use std::borrow::Cow;
use std::path::PathBuf;

use anyhow::Context as _;
use candle_core::{DType, Device, Result, Tensor, bail};
use candle_nn::init::ZERO;
use candle_nn::{Init, VarBuilder};
use serde::Deserialize;

use super::decoder::{Decoder, LayerShape, Style, Tensors};
use super::hugging_face::{self, Weights};
use super::info::{LearnerInfo, Make, TEXT, expect_texts};
use super::init::fan_in;
use super::model::Model;
use super::projection::{Adapter, Projection};
use super::settings::{self, CheckResult, Settings, probability, within};
use crate::data::{Examples, Input, Tokenizer};
use crate::ops::{self, Tape};

pub(super) const LEARNER: LearnerInfo = LearnerInfo {
    name: Cow::Borrowed("lora"),
    about: "adapters of low rank on a language model of Hugging Face",
    input: Some(TEXT),
    check: settings::check::<LoraSettings>,
    paths: &["model"],
    make: Make::OnTape(|input, table, params| Ok(Box::new(Lora::new(input, &settings::of(table)?, params)?))),
};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoraSettings {
    /// The model's folder, with config.json and safetensors files.
    pub(super) model: PathBuf,
    /// Rank of the adapters.
    #[serde(default = "rank")]
    pub(super) rank: usize,
    /// An adapter's share is multiplied by `alpha / rank`; by default twice the rank.
    pub(super) alpha: Option<f32>,
    /// Probability of dropping a value of an adapter's input.
    #[serde(default)]
    pub(super) dropout: f32,
    /// Last parts of the names of the layers that are adapted; by default queries and values.
    pub(super) targets: Option<Vec<String>>,
    /// Which matrices a round trains.
    #[serde(default)]
    pub(super) update: Update,
    /// Type of the model's own weights in memory.
    #[serde(default)]
    dtype: BaseType,
}

fn rank() -> usize {
    8
}

/// The mean of clients' `B A` is not the product of the means of `B` and `A`. If all clients train the same one of the two, it
/// is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Update {
    /// `B` in odd rounds, `A` in even ones (RoLoRA, Chen et al. 2024).
    #[default]
    Alternate,
    /// `B` alone; `A` keeps its first values (FFA-LoRA, Sun et al. 2024).
    BOnly,
    /// Both.
    Both,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum BaseType {
    #[default]
    F32,
    /// Half the memory; products are computed in f32.
    Bf16,
}

impl LoraSettings {
    pub(super) fn alpha(&self) -> f32 {
        self.alpha.unwrap_or(2.0 * self.rank as f32)
    }

    /// The adapted layers of a style.
    fn targets(&self, style: Style) -> Vec<String> {
        let usual: &[&str] = match style {
            Style::Gpt2 => &["c_attn"],
            Style::Llama => &["q_proj", "v_proj"],
        };
        self.targets
            .clone()
            .unwrap_or_else(|| usual.iter().map(|&name| name.to_owned()).collect())
    }
}

impl Settings for LoraSettings {
    fn check(&self) -> CheckResult {
        within("rank", self.rank, 1, 1 << 12)?;
        probability("dropout", self.dropout)?;
        if !(self.alpha() > 0.0 && self.alpha() <= 1e6) {
            return Err(format!(
                "`alpha` is {}, but must be above 0 and at most 1e6",
                self.alpha()
            ));
        }
        match self
            .targets
            .as_ref()
            .is_some_and(|targets| targets.is_empty() || targets.len() > 64)
        {
            true => Err("`targets` must be 1 to 64 names of layers, such as [\"q_proj\", \"v_proj\"]".to_owned()),
            false => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Lora {
    decoder: Decoder,
    update: Update,
    folder: PathBuf,
}

impl Lora {
    fn new(input: Input, settings: &LoraSettings, p: &VarBuilder<'_>) -> Result<Self> {
        expect_texts(input)?;
        Self::read(input, settings, p).map_err(|why| candle_core::Error::msg(format!("{why:#}")))
    }

    fn read(input: Input, settings: &LoraSettings, p: &VarBuilder<'_>) -> anyhow::Result<Self> {
        let folder = &settings.model;
        let shape = hugging_face::shape(folder, input.shape[2])?;
        anyhow::ensure!(
            input.classes <= shape.vocabulary,
            "{}: the data has a vocabulary of {} tokens, the model one of {}; use the model's tokenizer.json as `vocabulary`",
            folder.display(),
            input.classes,
            shape.vocabulary
        );
        let mut tensors = BaseAndAdapters {
            base: Weights::open(folder)?,
            dtype: match settings.dtype {
                BaseType::F32 => DType::F32,
                BaseType::Bf16 => DType::BF16,
            },
            device: p.device().clone(),
            adapted: 0,
            targets: settings.targets(shape.style),
            settings,
            params: p,
        };
        let decoder = Decoder::new(shape, &mut tensors).map_err(|error| anyhow::anyhow!("{error}"))?;
        anyhow::ensure!(
            tensors.adapted > 0,
            "`targets` = {:?}: the model in {} has no such layer",
            tensors.targets,
            folder.display()
        );
        tensors.base.finish().context("the model's weights")?;
        Ok(Self {
            decoder,
            update: settings.update,
            folder: folder.clone(),
        })
    }
}

impl Model for Lora {
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        self.decoder.forward(tape, x)
    }

    fn cross_entropy(&self, tape: &mut Tape, x: &Tensor, labels: &[u32]) -> Result<Tensor> {
        self.decoder.cross_entropy(tape, x, labels)
    }

    fn suits(&self, data: &Examples) -> anyhow::Result<()> {
        let folder = &self.folder;
        let names = data.class_names();
        // Bytes have no names. Neither have tokens that a program drew or read as numbers; those are the caller's.
        let has_text = !names.is_empty() || data.input().classes == BYTES;
        // A model without this file has its tokens in another form, which cannot be compared.
        if has_text && folder.join("tokenizer.json").is_file() {
            anyhow::ensure!(
                names == Tokenizer::read(folder)?.names()?,
                "{}: the tokens of the data are not those of the model, which would take each for another one; set \
                 `vocabulary = {{ tokenizer = {:?} }}` in `data`",
                folder.display(),
                folder.display().to_string()
            );
        }
        Ok(())
    }

    fn trains(&self, name: &str, round: u64) -> bool {
        let is_b = name.contains(B);
        match self.update {
            Update::Both => true,
            Update::BOnly => is_b,
            Update::Alternate => is_b == (round % 2 == 1),
        }
    }
}

const BYTES: usize = 256;

/// The names of adapters in PEFT's files.
pub(super) const PREFIX: &str = "base_model.model.";
const A: &str = ".lora_A.";
const B: &str = ".lora_B.";

/// Frozen tensors from the folder, adapters as parameters.
struct BaseAndAdapters<'a> {
    base: Weights,
    dtype: DType,
    device: Device,
    targets: Vec<String>,
    settings: &'a LoraSettings,
    params: &'a VarBuilder<'a>,
    adapted: usize,
}

impl Tensors for BaseAndAdapters<'_> {
    fn tensor(&mut self, name: &str, shape: &[usize], _: Init) -> Result<Tensor> {
        let values = self.base.take(name, shape);
        let values = values.map_err(|why| candle_core::Error::msg(format!("{why:#}")))?;
        let tensor = Tensor::from_vec(values, shape, &self.device)?;
        // Products use matrices in f32; vectors are too small to save memory with.
        if shape.len() < 2 || name.contains("embed") || name.contains("transformer.w") {
            return Ok(tensor);
        }
        ops::to_dtype(&tensor, self.dtype)
    }

    fn projection(&mut self, name: &str, layer: LayerShape) -> Result<Projection> {
        let LayerShape { inputs, outputs, .. } = layer;
        let projection = self.plain(name, layer)?;
        if !self
            .targets
            .iter()
            .any(|target| name == target || name.ends_with(&format!(".{target}")))
        {
            return Ok(projection);
        }
        let rank = self.settings.rank;
        if rank > inputs.min(outputs) {
            bail!("`rank` is {rank}, but layer `{name}` has only {inputs} inputs and {outputs} outputs");
        }
        self.adapted += 1;
        let adapter = |matrix: &str, shape, init| {
            let name = format!("{PREFIX}{name}{matrix}weight");
            self.params.get_with_hints::<(usize, usize)>(shape, &name, init)
        };
        let a = adapter(A, (rank, inputs), fan_in(inputs))?;
        let b = adapter(B, (outputs, rank), ZERO)?;
        Ok(projection.adapted(Adapter {
            a,
            b,
            scale: self.settings.alpha() / rank as f32,
            dropout: self.settings.dropout,
        }))
    }
}

/// `adapter_config.json` of PEFT for an adapter with these settings.
pub(super) fn peft_config(settings: &toml::Table) -> anyhow::Result<serde_json::Value> {
    let settings: LoraSettings = settings::read(settings).map_err(anyhow::Error::msg)?;
    let style = hugging_face::shape(&settings.model, 1)?.style;
    Ok(serde_json::json!({
        "base_model_name_or_path": settings.model.to_string_lossy(),
        "bias": "none",
        "fan_in_fan_out": style == Style::Gpt2,
        "inference_mode": true,
        "init_lora_weights": true,
        "lora_alpha": settings.alpha(),
        "lora_dropout": settings.dropout,
        "peft_type": "LORA",
        "r": settings.rank,
        "target_modules": settings.targets(style),
        "task_type": "CAUSAL_LM",
    }))
}

#[cfg(test)]
mod tests;
