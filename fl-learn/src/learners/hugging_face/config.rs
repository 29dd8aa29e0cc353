//! `config.json`: the extents of a model, of the types `gpt2`, `llama` and `qwen2`.

use std::f64::consts::TAU;

use serde::Deserialize;

use super::super::decoder::{Shape, Style};
use crate::ops::frequencies;

pub(super) const MAX_BYTES: u64 = 1 << 20;

/// Keys of all types; a type uses its own. Unknown keys are left alone: the files have many that do not change the model.
#[derive(Debug, Deserialize)]
struct Raw {
    model_type: String,
    vocab_size: usize,
    tie_word_embeddings: Option<bool>,
    // Llama and Qwen2.
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f32>,
    hidden_act: Option<String>,
    // Any key that has a default may be `null`.
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    use_sliding_window: Option<bool>,
    partial_rotary_factor: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Rope>,
    rope_parameters: Option<Rope>,
    // GPT-2.
    n_embd: Option<usize>,
    n_layer: Option<usize>,
    n_head: Option<usize>,
    n_positions: Option<usize>,
    n_inner: Option<usize>,
    layer_norm_epsilon: Option<f32>,
    activation_function: Option<String>,
    scale_attn_weights: Option<bool>,
    scale_attn_by_inverse_layer_idx: Option<bool>,
}

/// Rotary positions of long texts.
#[derive(Debug, Clone, Default, Deserialize)]
struct Rope {
    /// The older name of `rope_type`; some versions write both.
    #[serde(rename = "type")]
    former_type: Option<String>,
    rope_type: Option<String>,
    partial_rotary_factor: Option<f64>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
}

/// The model's shape for texts of `tokens` tokens.
pub(super) fn parse(text: &str, tokens: usize) -> Result<Shape, String> {
    let raw: Raw = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let shape = match raw.model_type.as_str() {
        "gpt2" => gpt2(&raw)?,
        "llama" => {
            let bias = raw.attention_bias == Some(true);
            llama(&raw, tokens, bias, bias)?
        }
        "qwen2" => llama(&raw, tokens, true, false)?,
        other => {
            return Err(format!(
                "`model_type` is {other:?}, but must be \"gpt2\", \"llama\" or \"qwen2\""
            ));
        }
    };
    check(&shape)?;
    if tokens > positions(&raw) {
        return Err(format!(
            "a text of {tokens} tokens is longer than the model's {} positions; set the data's `length`",
            positions(&raw)
        ));
    }
    Ok(shape)
}

fn positions(raw: &Raw) -> usize {
    raw.n_positions.or(raw.max_position_embeddings).unwrap_or(usize::MAX)
}

fn need<T>(key: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("`{key}` is missing"))
}

fn gpt2(raw: &Raw) -> Result<Shape, String> {
    let width = need("n_embd", raw.n_embd)?;
    let heads = need("n_head", raw.n_head)?;
    let activation = raw.activation_function.as_deref().unwrap_or("gelu_new");
    let scaled = raw.scale_attn_weights == Some(false) || raw.scale_attn_by_inverse_layer_idx == Some(true);
    if !["gelu_new", "gelu_pytorch_tanh"].contains(&activation) || scaled {
        return Err(format!(
            "`activation_function` {activation:?}, `scale_attn_weights` = false or `scale_attn_by_inverse_layer_idx` is not \
             supported; only \"gelu_new\" without them is"
        ));
    }
    Ok(Shape {
        style: Style::Gpt2,
        vocabulary: raw.vocab_size,
        positions: need("n_positions", raw.n_positions)?,
        layers: need("n_layer", raw.n_layer)?,
        width,
        heads,
        key_heads: heads,
        head: width.checked_div(heads).unwrap_or(0),
        feed_forward: raw.n_inner.unwrap_or(width.saturating_mul(4)),
        tied: raw.tie_word_embeddings.unwrap_or(true),
        query_bias: false,
        eps: raw.layer_norm_epsilon.unwrap_or(1e-5),
        frequencies: Vec::new(),
        dropout: 0.0,
    })
}

fn llama(raw: &Raw, tokens: usize, query_bias: bool, output_bias: bool) -> Result<Shape, String> {
    let width = need("hidden_size", raw.hidden_size)?;
    let heads = need("num_attention_heads", raw.num_attention_heads)?;
    let activation = raw.hidden_act.as_deref().unwrap_or("silu");
    let other = [raw.mlp_bias, raw.use_sliding_window].contains(&Some(true));
    if !["silu", "swish"].contains(&activation) || other || output_bias {
        return Err(format!(
            "`hidden_act` {activation:?}, `mlp_bias`, `attention_bias` or `use_sliding_window` is not supported; only \"silu\" \
             without them is"
        ));
    }
    let head = raw.head_dim.unwrap_or(width.checked_div(heads).unwrap_or(0));
    if !(2..=4096).contains(&head) || head % 2 == 1 {
        return Err(format!("`head_dim` is {head}, but must be even and from 2 to 4096"));
    }
    Ok(Shape {
        style: Style::Llama,
        vocabulary: raw.vocab_size,
        positions: tokens,
        layers: need("num_hidden_layers", raw.num_hidden_layers)?,
        width,
        heads,
        key_heads: raw.num_key_value_heads.unwrap_or(heads),
        head,
        feed_forward: need("intermediate_size", raw.intermediate_size)?,
        tied: raw.tie_word_embeddings.unwrap_or(false),
        query_bias,
        eps: raw.rms_norm_eps.unwrap_or(1e-6),
        frequencies: scaled(raw, head)?,
        dropout: 0.0,
    })
}

/// Frequencies of rotary positions, scaled as Llama 3.1 does where the file says so.
fn scaled(raw: &Raw, dim: usize) -> Result<Vec<f64>, String> {
    let given = raw.rope_parameters.as_ref();
    let rope = given.or(raw.rope_scaling.as_ref()).cloned().unwrap_or_default();
    let theta = rope.rope_theta.or(raw.rope_theta);
    if given.is_some() && theta.is_none() {
        return Err("`rope_parameters` has no `rope_theta`; parameters of each layer are not supported".to_owned());
    }
    if let Some(share) = rope.partial_rotary_factor.or(raw.partial_rotary_factor)
        && share != 1.0
    {
        return Err(format!("`partial_rotary_factor` is {share}, but only 1 is supported"));
    }
    let kind = match (&rope.rope_type, &rope.former_type) {
        (Some(kind), Some(former)) if kind != former => {
            return Err(format!(
                "`rope_type` is {kind:?} and `type` {former:?}; delete the wrong one"
            ));
        }
        (kind, former) => kind.as_deref().or(former.as_deref()).unwrap_or("default"),
    };
    let theta = theta.unwrap_or(10_000.0);
    if !(theta > 1.0 && theta < 1e12) {
        return Err(format!("`rope_theta` is {theta}, but must be above 1 and below 1e12"));
    }
    let plain = frequencies(dim, theta);
    let positive = |key: &str, value: Option<f64>| {
        let value = need(key, value)?;
        if value > 0.0 && value.is_finite() {
            Ok(value)
        } else {
            Err(format!("`{key}` is {value}, but must be above 0"))
        }
    };
    match kind {
        "default" => Ok(plain),
        "linear" => {
            let factor = positive("factor", rope.factor)?;
            Ok(plain.iter().map(|frequency| frequency / factor).collect())
        }
        "llama3" => {
            let factor = positive("factor", rope.factor)?;
            let low = positive("low_freq_factor", rope.low_freq_factor)?;
            let high = positive("high_freq_factor", rope.high_freq_factor)?;
            let length = positive(
                "original_max_position_embeddings",
                rope.original_max_position_embeddings,
            )?;
            if high <= low {
                return Err(format!(
                    "`high_freq_factor` is {high}, but must be above `low_freq_factor` = {low}"
                ));
            }
            Ok(plain
                .iter()
                .map(|frequency| {
                    let turns = length * frequency / TAU;
                    let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    frequency * (share + (1.0 - share) / factor)
                })
                .collect())
        }
        other => Err(format!(
            "`rope_type` {other:?} is not supported; only \"default\", \"linear\" and \"llama3\" are"
        )),
    }
}

fn check(shape: &Shape) -> Result<(), String> {
    let extents = [
        ("vocabulary", shape.vocabulary, 1 << 24),
        ("positions", shape.positions, 1 << 24),
        ("layers", shape.layers, 1 << 10),
        ("width", shape.width, 1 << 18),
        ("heads", shape.heads, 1 << 12),
        ("heads of keys", shape.key_heads, shape.heads),
        ("values of a head", shape.head, 4096),
        ("feed-forward units", shape.feed_forward, 1 << 20),
    ];
    if let Some((what, value, most)) = extents.iter().find(|(_, value, most)| *value == 0 || value > most) {
        return Err(format!("the number of {what} is {value}, but must be from 1 to {most}"));
    }
    let whole = shape.style == Style::Llama || shape.heads * shape.head == shape.width;
    if !whole || !shape.heads.is_multiple_of(shape.key_heads) {
        return Err(format!(
            "{} heads do not divide a width of {}, or {} heads of keys do not divide them",
            shape.heads, shape.width, shape.key_heads
        ));
    }
    if !(shape.eps > 0.0 && shape.eps < 1.0) {
        return Err(format!("the epsilon of the norms is {}", shape.eps));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA: &str = r#"{"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5, "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16" REST}"#;

    fn with(rest: &str) -> Result<Shape, String> {
        parse(&LLAMA.replace("REST", rest), 32)
    }

    #[test]
    fn files_of_both_generations_give_the_same_shape() {
        let old = with(r#", "rope_theta": 500000.0"#).unwrap();
        let new = with(r#", "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}"#).unwrap();
        assert_eq!(old.frequencies, new.frequencies);
        assert_eq!((old.head, old.key_heads, old.tied, old.positions), (16, 2, false, 32));
        assert_eq!(old.frequencies.len(), 8);
        assert!(!old.query_bias);
        let qwen = parse(&LLAMA.replace("REST", "").replace("\"llama\"", "\"qwen2\""), 32).unwrap();
        assert!(qwen.query_bias);
    }

    /// `transformers` writes all of these for the same model, by its version.
    #[test]
    fn keys_in_all_their_spellings_give_the_same_shape() {
        let linear = with(r#", "rope_scaling": {"type": "linear", "factor": 2.0}"#).unwrap();
        for rest in [
            r#", "rope_scaling": {"rope_type": "linear", "factor": 2}"#,
            r#", "rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2.0}"#,
            r#", "rope_scaling": {"type": null, "rope_type": "linear", "factor": 2.0, "low_freq_factor": null}"#,
            r#", "rope_scaling": null, "rope_parameters": {"rope_theta": 10000, "rope_type": "linear", "factor": 2.0}"#,
            r#", "rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "type": "linear", "factor": 2.0}"#,
        ] {
            assert_eq!(with(rest).unwrap().frequencies, linear.frequencies, "{rest}");
        }
        let plain = format!("{:?}", with("").unwrap());
        for rest in [
            r#", "attention_bias": null, "mlp_bias": null, "use_sliding_window": null, "rope_scaling": null, "head_dim": null"#,
            r#", "tie_word_embeddings": null, "rope_theta": null, "hidden_act": "swish", "partial_rotary_factor": 1.0"#,
            r#", "rope_scaling": {"type": "default", "rope_type": "default"}, "dtype": "bfloat16", "attention_bias": false"#,
        ] {
            assert_eq!(format!("{:?}", with(rest).unwrap()), plain, "{rest}");
        }
    }

    /// As `transformers` scales the frequencies of Llama 3.1: short waves stay, long ones are divided by the factor.
    #[test]
    fn llama_3_stretches_long_waves_only() {
        let plain = with(r#", "rope_theta": 500000.0"#).unwrap().frequencies;
        let rest = r#", "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}"#;
        let long = with(rest).unwrap().frequencies;
        assert_eq!(plain[0], long[0]);
        assert!((long[7] * 8.0 - plain[7]).abs() < 1e-15, "{} {}", long[7], plain[7]);
    }

    #[test]
    fn what_cannot_be_computed_is_refused_with_its_key() {
        for (rest, part) in [
            (r#", "hidden_act": "gelu""#, "`hidden_act` \"gelu\""),
            (r#", "head_dim": 3"#, "`head_dim` is 3"),
            (r#", "rope_scaling": {"type": "yarn"}"#, "`rope_type` \"yarn\""),
            (r#", "rope_scaling": {"type": "linear"}"#, "`factor` is missing"),
            (r#", "rope_theta": -1"#, "`rope_theta` is -1"),
            (r#", "attention_bias": true"#, "`attention_bias`"),
            (
                r#", "rope_scaling": {"type": "mrope", "rope_type": "default"}"#,
                "`rope_type` is \"default\" and `type` \"mrope\"",
            ),
            (
                r#", "rope_parameters": {"full_attention": {"rope_theta": 1e6}}"#,
                "`rope_parameters` has no `rope_theta`",
            ),
            (r#", "partial_rotary_factor": 0.5"#, "`partial_rotary_factor` is 0.5"),
        ] {
            let error = with(rest).unwrap_err();
            assert!(error.contains(part), "{rest}: {error}");
        }
        let whole = LLAMA.replace("REST", "");
        for (from, to, part) in [
            ("\"llama\"", "\"mamba\"", "`model_type` is \"mamba\""),
            ("\"hidden_size\": 64", "\"hidden\": 64", "`hidden_size` is missing"),
            ("\"vocab_size\": 100", "\"vocab_size\": 0", "vocabulary is 0"),
            ("_value_heads\": 2", "_value_heads\": 3", "3 heads of keys"),
            (
                "\"max_position_embeddings\": 128",
                "\"max_position_embeddings\": 16",
                "longer than the model's 16 positions",
            ),
            ("{", "[", "line 1"),
        ] {
            let error = parse(&whole.replacen(from, to, 1), 32).unwrap_err();
            assert!(error.contains(part), "{to}: {error}");
        }
    }

    #[test]
    fn gpt_2_is_read() {
        let text = r#"{"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}"#;
        let shape = parse(text, 64).unwrap();
        assert_eq!((shape.feed_forward, shape.tied, shape.positions), (3072, true, 1024));
        let nulls = text.replace(
            '{',
            r#"{"scale_attn_weights": null, "scale_attn_by_inverse_layer_idx": null, "n_inner": null, "#,
        );
        assert_eq!(format!("{:?}", parse(&nulls, 64).unwrap()), format!("{shape:?}"));
        let unscaled = text.replace('{', r#"{"scale_attn_weights": false, "#);
        assert!(parse(&unscaled, 64).unwrap_err().contains("`scale_attn_weights`"));
        assert!(
            parse(&text.replace("\"n_head\": 12", "\"n_head\": 7"), 64)
                .unwrap_err()
                .contains("7 heads")
        );
    }
}
