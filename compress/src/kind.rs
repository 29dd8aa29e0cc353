//! What a tensor is to the framework of its model, and the role in a federation that follows from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::layout::{Layout, Role, TensorSpec};
use crate::weights::{KINDS, Notes};

/// What a framework says of a tensor: whether its optimizers train it; or the role that a script gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Trained by gradients.
    Parameter,
    /// State beside the parameters, such as running statistics.
    Buffer,
    /// Of [`Role::Counter`].
    Counter,
    /// Of [`Role::Local`].
    Local,
    /// Of [`Role::Frozen`].
    Frozen,
}

/// The kinds of tensors, by name; those of which nothing is known are missing.
pub type Kinds = BTreeMap<String, Kind>;

/// The kinds that a weights file notes; empty if it notes none.
///
/// # Errors
/// `Mismatch` if the note is not a JSON object of names and kinds.
pub fn kinds(notes: &Notes) -> Result<Kinds, Error> {
    let parsed = notes.get(KINDS).map(|text| serde_json::from_str(text)).transpose();
    parsed.map(Option::unwrap_or_default).map_err(|why| {
        Error::Mismatch(format!(
            "the metadata text `{KINDS}`: {why}; write the file again with `fl-client init`"
        ))
    })
}

// Ends of paths that frameworks give to state that is averaged: PyTorch and Flax, Keras, EMA codebooks.
const LEAVES: &str = "mean var variance min_val max_val amax cluster_size embed_avg embed_sum count counts";
// Words of a name that mark a running value, in whatever framework.
const RUNNING: &str = "running moving renorm ema";
// Words of statistics, which a name has by chance, too.
const DOUBTFUL: &str = "mean var variance std stddev min max avg average count stat stats statistics usage";

impl Role {
    /// The role of a tensor for which a run says nothing. The framework's word counts before names that are known. `is_base`:
    /// whether the run lists what it trains, so that the tensors that it does not list are a base model's.
    ///
    /// Integers of at most one dimension that are no counters are the state of a process, such as that of a random generator or
    /// a zero point. With more dimensions they are tables or quantized weights, the same for everyone.
    pub fn by_default(tensor: &TensorSpec, kind: Option<Kind>, is_base: bool) -> Self {
        let name = tensor.name.as_str();
        let is_float = tensor.dtype.is_float();
        match kind {
            Some(Kind::Local) => Self::Local,
            Some(Kind::Frozen) => Self::Frozen,
            Some(Kind::Counter) if !is_float => Self::Counter,
            None | Some(Kind::Buffer) if is_float && is_statistic(name) => Self::Buffer,
            _ if !is_float && name.ends_with("num_batches_tracked") => Self::Counter,
            _ if is_base => Self::Frozen,
            Some(Kind::Buffer) if is_float => Self::Buffer,
            _ if is_float => Self::Trained,
            _ if tensor.shape.len() <= 1 => Self::Local,
            _ => Self::Frozen,
        }
    }
}

/// The parts of a tensor's name from the last one on, without numbers such as the `:0` of TensorFlow.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    let parts = name.rsplit(['.', '/', ':']).map(|part| part.trim_matches('_'));
    parts.skip_while(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_one_of(word: &str, words: &str) -> bool {
    words.split(' ').any(|other| other == word)
}

fn has_word(part: &str, words: &str) -> bool {
    part.split('_').any(|word| is_one_of(word, words))
}

/// Whether frameworks give this name to running statistics, ranges of quantizers, or counts of codebooks.
fn is_statistic(name: &str) -> bool {
    let mut parts = parts(name);
    let leaf = parts.next().unwrap_or_default();
    let parent = parts.next().unwrap_or_default();
    let of_quantizer = ["quant", "observer", "activation_post_process"];
    is_one_of(leaf, LEAVES)
        || has_word(leaf, RUNNING)
        || is_one_of(leaf, "hidden average") && has_word(parent, RUNNING)
        || name.split(['.', '/']).any(|part| part == "batch_stats")
        || has_word(leaf, "scale zero min max") && of_quantizer.iter().any(|part| name.contains(part))
}

/// The names of the first trained tensors of `layout` that may be statistics, by their framework's word or else by their names;
/// empty if there are none.
pub fn doubtful(layout: &Layout, kinds: &Kinds) -> String {
    let trained = layout.tensors().iter().filter(|tensor| tensor.role == Role::Trained);
    let names = trained
        .map(|tensor| &tensor.name)
        .filter(|name| match kinds.get(*name) {
            Some(kind) => *kind == Kind::Buffer,
            None => is_statistic(name) || parts(name).next().is_some_and(|leaf| has_word(leaf, DOUBTFUL)),
        });
    let names: Vec<String> = names.take(6).map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Dtype;

    fn is_doubtful(name: &str) -> bool {
        !doubtful(&Layout::new([(name, vec![1])]).unwrap(), &Kinds::new()).is_empty()
    }

    fn role(name: &str, dtype: Dtype, kind: Option<Kind>, is_base: bool) -> Role {
        Role::by_default(&TensorSpec::new(name, &[2], dtype, Role::Trained), kind, is_base)
    }

    #[test]
    fn running_state_of_every_framework_is_a_buffer_and_weights_are_trained() {
        for name in [
            "1.running_mean",
            "bn_running_var",
            "batch_normalization/moving_variance:0",
            "BatchNorm_0/moving_mean",
            "batch_stats.BatchNorm_0.var",
            "batch_stats/SpectralNorm_0/kernel/u",
            "bn.mean",
            "bn.var",
            "normalization/variance",
            "_mean",
            "var_",
            "resnet/~/batch_norm/~/var_ema/average",
            "bn/moving_mean/hidden",
            "renorm_stddev",
            "conv.activation_post_process.min_val",
            "quant_dense/kernel_max",
            "fc.weight_fake_quant.scale",
            "layer._input_quantizer._amax",
            "vq.codebook.cluster_size",
            "vq.embed_avg",
            "vq._ema_w",
            "obs_rms.count",
        ] {
            assert_eq!(role(name, Dtype::F32, None, false), Role::Buffer, "{name}");
            assert_eq!(role(name, Dtype::F32, None, true), Role::Buffer, "{name}");
            assert_eq!(
                role(name, Dtype::F32, Some(Kind::Parameter), false),
                Role::Trained,
                "{name}"
            );
            assert!(is_doubtful(name), "{name}");
        }
        for name in [
            "fc_mean.weight",
            "mean.weight",
            "BatchNorm_0.scale",
            "dense/kernel:0",
            "quantize.embedding.weight",
            "variances.weight",
            "embed",
            "0",
        ] {
            assert_eq!(role(name, Dtype::F32, None, false), Role::Trained, "{name}");
            assert!(!is_doubtful(name), "{name}");
        }
        assert!(is_doubtful("policy.log_std"));
        assert_eq!(role("policy.log_std", Dtype::F32, None, false), Role::Trained);
    }

    #[test]
    fn the_framework_knows_what_names_do_not_say() {
        let buffer = Some(Kind::Buffer);
        assert_eq!(role("loss.pos_weight", Dtype::F32, buffer, false), Role::Buffer);
        assert_eq!(role("loss.pos_weight", Dtype::F32, buffer, true), Role::Frozen);
        assert_eq!(role("loss.pos_weight", Dtype::F32, None, false), Role::Trained);
        for (kind, given) in [(Kind::Local, Role::Local), (Kind::Frozen, Role::Frozen)] {
            assert_eq!(role("bn.running_mean", Dtype::F32, Some(kind), false), given);
        }
        assert_eq!(role("steps", Dtype::I64, Some(Kind::Counter), true), Role::Counter);
        let notes = Notes::from([(KINDS.to_owned(), r#"{"w":"parameter","m":"buffer"}"#.to_owned())]);
        let known = kinds(&notes).unwrap();
        assert_eq!((known["w"], known["m"]), (Kind::Parameter, Kind::Buffer));
        assert_eq!(kinds(&Notes::new()).unwrap(), Kinds::new());
        for bad in ["", "[]", r#"{"w":"statistic"}"#, r#"{"w":1}"#] {
            let why = kinds(&Notes::from([(KINDS.to_owned(), bad.to_owned())])).unwrap_err();
            assert!(why.to_string().contains("`fl.kinds`"), "{why}");
        }
    }

    #[test]
    fn integers_are_counters_state_of_a_process_or_tables() {
        let of = |name: &str, shape: &[usize], is_base| {
            Role::by_default(&TensorSpec::new(name, shape, Dtype::I64, Role::Trained), None, is_base)
        };
        assert_eq!(of("bn.num_batches_tracked", &[], false), Role::Counter);
        assert_eq!(of("bn.num_batches_tracked", &[], true), Role::Counter);
        assert_eq!(of("dropout/seed_generator_state", &[2], false), Role::Local);
        assert_eq!(of("zero_point", &[], false), Role::Local);
        assert_eq!(of("running_mean", &[2], false), Role::Local);
        assert_eq!(of("position_ids", &[1, 512], false), Role::Frozen);
        assert_eq!(of("absmax", &[64], true), Role::Frozen);
    }
}
