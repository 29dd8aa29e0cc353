//! `resnet8`, `resnet18`, `resnet50`: residual networks (He et al. 2016) with the tensor names of torchvision.
//!
//! Group norm by default: batch norm's statistics differ from client to client, and accuracy falls on non-IID data (Hsieh
//! et al. 2020). Batch norm's running statistics are buffers.

use candle_core::{Result, Tensor, Var, bail};
use candle_nn::VarBuilder;
use candle_nn::init::{ONE, ZERO};
use serde::Deserialize;

use super::info::LearnerInfo;
use super::init::normal;
use super::layers::Linear;
use super::model::{BoxedModel, Model};
use super::settings::{self, CheckResult, Settings, within};
use crate::data::{Input, Target};
use crate::ops::{self, Running, Tape};

/// 32x32 images of ten classes, as in CIFAR-10.
const COLOR: Input = Input::of_classes([3, 32, 32], 10);

pub(super) const RESNET8: LearnerInfo = LearnerInfo::on_tape::<ResNetSettings>(
    "resnet8",
    "three residual blocks of 16, 32 and 64 channels",
    Some(COLOR),
    |input, table, params| ResNet::boxed(input, table, params, &Plan::RESNET8),
);

pub(super) const RESNET18: LearnerInfo = LearnerInfo::on_tape::<ResNetSettings>(
    "resnet18",
    "the residual network of 18 layers",
    Some(COLOR),
    |input, table, params| ResNet::boxed(input, table, params, &Plan::RESNET18),
);

pub(super) const RESNET50: LearnerInfo = LearnerInfo::on_tape::<ResNetSettings>(
    "resnet50",
    "the residual network of 50 layers, with bottlenecks",
    Some(COLOR),
    |input, table, params| ResNet::boxed(input, table, params, &Plan::RESNET50),
);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum NormKind {
    #[default]
    Group,
    Batch,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StemKind {
    /// Small for images below 64x64.
    #[default]
    Auto,
    /// A 3x3 convolution.
    Small,
    /// A 7x7 convolution of stride 2 and a max-pool of stride 2.
    Large,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ResNetSettings {
    norm: NormKind,
    /// Groups of a group norm; by default half the channels of the first layer.
    groups: Option<usize>,
    stem: StemKind,
}

impl Settings for ResNetSettings {
    fn check(&self) -> CheckResult {
        match (self.groups, self.norm) {
            (Some(_), NormKind::Batch) => Err("`groups` needs norm = \"group\"".to_owned()),
            (Some(groups), NormKind::Group) => within("groups", groups, 1, 64),
            (None, _) => Ok(()),
        }
    }
}

/// Blocks of each stage, and their kind.
struct Plan {
    first: usize,
    stages: &'static [(usize, usize)],
    bottleneck: bool,
}

impl Plan {
    const RESNET8: Self = Self {
        first: 16,
        stages: &[(16, 1), (32, 1), (64, 1)],
        bottleneck: false,
    };
    const RESNET18: Self = Self {
        first: 64,
        stages: &[(64, 2), (128, 2), (256, 2), (512, 2)],
        bottleneck: false,
    };
    const RESNET50: Self = Self {
        first: 64,
        stages: &[(64, 3), (128, 4), (256, 6), (512, 3)],
        bottleneck: true,
    };
}

const EPS: f32 = 1e-5;

#[derive(Debug)]
struct ResNet {
    stem: ConvNorm,
    pooled: bool,
    blocks: Vec<Block>,
    fc: Linear,
}

impl ResNet {
    fn boxed(input: Input, table: &toml::Table, p: &VarBuilder<'_>, plan: &Plan) -> Result<BoxedModel> {
        Ok(Box::new(Self::new(input, &settings::of(table)?, p, plan)?))
    }

    fn new(input: Input, settings: &ResNetSettings, p: &VarBuilder<'_>, plan: &Plan) -> Result<Self> {
        let [channels, height, width] = input.shape;
        if input.target == Target::NextToken || height < 8 || width < 8 {
            bail!("expects images of at least 8x8, not {:?}", input.shape);
        }
        let large = match settings.stem {
            StemKind::Auto => height >= 64 && width >= 64,
            StemKind::Small => false,
            StemKind::Large => true,
        };
        let norm = match settings.norm {
            NormKind::Batch => NormChoice::Batch,
            NormKind::Group => NormChoice::Group(settings.groups.unwrap_or(plan.first / 2)),
        };
        let (kernel, stride) = if large { (7, 2) } else { (3, 1) };
        let stem = ConvNorm::new(p, ["conv1", "bn1"], [plan.first, channels, kernel], stride, norm)?;
        let mut inputs = plan.first;
        let mut blocks = Vec::new();
        for (stage, &(width, count)) in plan.stages.iter().enumerate() {
            for at in 0..count {
                let stride = if stage > 0 && at == 0 { 2 } else { 1 };
                let name = format!("layer{}.{at}", stage + 1);
                let block = Block::new(p, &name, inputs, width, stride, plan.bottleneck, norm)?;
                inputs = block.outputs;
                blocks.push(block);
            }
        }
        Ok(Self {
            stem,
            pooled: large,
            blocks,
            fc: Linear::new(p, "fc", inputs, input.classes)?,
        })
    }
}

impl Model for ResNet {
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let mut x = self.stem.forward(tape, x, true)?;
        if self.pooled {
            x = ops::max_pool(tape, &x, 3, 2, 1)?;
        }
        for block in &self.blocks {
            x = block.forward(tape, &x)?;
        }
        let x = ops::mean_of_positions(tape, &x)?;
        self.fc.forward(tape, &x)
    }
}

#[derive(Debug, Clone, Copy)]
enum NormChoice {
    Group(usize),
    Batch,
}

/// Convolutions with norms, added to their input; the last relu follows the sum.
#[derive(Debug)]
struct Block {
    convs: Vec<ConvNorm>,
    downsample: Option<ConvNorm>,
    outputs: usize,
}

impl Block {
    fn new(
        p: &VarBuilder<'_>,
        name: &str,
        inputs: usize,
        width: usize,
        stride: usize,
        bottleneck: bool,
        norm: NormChoice,
    ) -> Result<Self> {
        let outputs = if bottleneck { 4 * width } else { width };
        let conv = |at: usize, filters, channels, kernel, stride| {
            let names = [format!("{name}.conv{at}"), format!("{name}.bn{at}")];
            ConvNorm::new(p, [&names[0], &names[1]], [filters, channels, kernel], stride, norm)
        };
        let convs = if bottleneck {
            vec![
                conv(1, width, inputs, 1, 1)?,
                conv(2, width, width, 3, stride)?,
                conv(3, outputs, width, 1, 1)?,
            ]
        } else {
            vec![conv(1, width, inputs, 3, stride)?, conv(2, width, width, 3, 1)?]
        };
        let names = [format!("{name}.downsample.0"), format!("{name}.downsample.1")];
        let downsample = (stride != 1 || inputs != outputs)
            .then(|| ConvNorm::new(p, [&names[0], &names[1]], [outputs, inputs, 1], stride, norm))
            .transpose()?;
        Ok(Self {
            convs,
            downsample,
            outputs,
        })
    }

    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let mut y = x.clone();
        for (at, conv) in self.convs.iter().enumerate() {
            y = conv.forward(tape, &y, at + 1 < self.convs.len())?;
        }
        let shortcut = match &self.downsample {
            Some(downsample) => downsample.forward(tape, x, false)?,
            None => x.clone(),
        };
        ops::add(tape, &y, &shortcut, true)
    }
}

/// A convolution without bias, padded to keep the extents, and a norm.
#[derive(Debug)]
struct ConvNorm {
    weight: Tensor,
    stride: usize,
    pad: usize,
    scale: Tensor,
    shift: Tensor,
    norm: Norm,
}

#[derive(Debug)]
enum Norm {
    Group(usize),
    Batch(Running),
}

impl ConvNorm {
    /// `names`: of the convolution and of the norm; `shape`: filters, channels, kernel.
    fn new(
        p: &VarBuilder<'_>,
        [conv, norm]: [&str; 2],
        [filters, channels, kernel]: [usize; 3],
        stride: usize,
        choice: NormChoice,
    ) -> Result<Self> {
        // Normal with variance 2 / fan out, as torchvision draws it (He et al. 2015).
        let init = normal((2.0 / (filters * kernel * kernel) as f64).sqrt());
        let conv = p.pp(conv);
        let norm = p.pp(norm);
        let buffer = |name: &str, init| Var::from_tensor(&norm.get_with_hints(filters, name, init)?);
        Ok(Self {
            weight: conv.get_with_hints((filters, channels, kernel, kernel), "weight", init)?,
            stride,
            pad: kernel / 2,
            scale: norm.get_with_hints(filters, "weight", ONE)?,
            shift: norm.get_with_hints(filters, "bias", ZERO)?,
            norm: match choice {
                NormChoice::Group(groups) if filters.is_multiple_of(groups) => Norm::Group(groups),
                NormChoice::Group(groups) => bail!("`groups` is {groups}, but must divide {filters} channels"),
                NormChoice::Batch => Norm::Batch(Running {
                    mean: buffer("running_mean", ZERO)?,
                    variance: buffer("running_var", ONE)?,
                    momentum: 0.1,
                }),
            },
        })
    }

    fn forward(&self, tape: &mut Tape, x: &Tensor, relu: bool) -> Result<Tensor> {
        let y = ops::conv2d(tape, x, &self.weight, self.stride, self.pad)?;
        let scale = &self.scale;
        let shift = &self.shift;
        match &self.norm {
            Norm::Group(groups) => ops::group_norm(tape, &y, scale, shift, *groups, EPS, relu),
            Norm::Batch(running) => ops::batch_norm(tape, &y, scale, shift, running, EPS, relu),
        }
    }
}
