//! The seed corpus.

use std::sync::{Arc, LazyLock};

use fl_compress::internals::bench::{encode_levels, encode_symbols};
use fl_compress::internals::planes::encode_indices;
use fl_compress::weights::Weights;
use fl_compress::{Ack, Archive, Code, Encoder, FrameHeader, FrameKind, Layout, Method, Spec, quantizers, reducers};

use super::choices::layout;

const SPECS: [&str; 9] = [
    "memory = 'error-feedback'\ndefault = { reduce = { low_rank = 2 } }",
    "memory = 'none'\nbudget = '100 B'\ndefault = { quantize = 'dead_zone', code = 'context' }\n\
     small = { below = 10, use = { quantize = { uniform = 8 } } }",
    "memory = 'ef21'\ndefault = { reduce = { top_k = { density = { by = 'entropy' } } }, quantize = 'half' }",
    "memory = 'dgc'\ndefault = { reduce = { top_k = 0.1 }, quantize = { uniform = 4 }, code = 'rans' }",
    "memory = { dgc = { momentum = 0.5, clip = 3.0 } }\n\
     default = { reduce = { top_k = { density = { by = 'schedule', shape = 'exponential', points = [[0, 0.5], [4, 0.01]] } } } }",
    "memory = { error-feedback = { decay = 0.5 } }\nbudget = '0.5 bits'\n\
     default = { reduce = { top_k = { density = { by = 'fisher', form = 'percentile', q = 90.0 } } }, code = 'auto' }\n\
     rules = [{ when = { name = '*a*', min_dims = 1, max_len = 100 }, use = { reduce = { threshold = 0.01 } } }]",
    "memory = 'cafe'\ndefault = { reduce = { low_rank = { rank = { by = 'schedule', points = [[0, 2], [1, 1]] }, remainder = 0.1 } } }",
    "memory = 'error-feedback'\n\
     default = { quantize = { uniform = { bits = { by = 'bandit', worth = 0.1, seed = 3 } } }, code = 'rans' }",
    "memory = 'error-feedback'\ndefault = { reduce = { adacomp = 50 }, quantize = 'sign', or = { quantize = { uniform = 2 } } }",
];

fn parse(text: &str) -> Spec {
    toml::from_str(text).expect("a valid spec")
}

/// Methods that cover each choice of each slot.
pub(super) fn methods() -> &'static [Method] {
    static METHODS: LazyLock<Vec<Method>> = LazyLock::new(|| texts().iter().map(|text| parse(text).default).collect());
    &METHODS
}

fn texts() -> Vec<String> {
    let reduce: Vec<&str> = reducers().flat_map(|method| method.examples).copied().collect();
    let quantize: Vec<&str> = quantizers().flat_map(|method| method.examples).copied().collect();
    let text = |at: usize| {
        let [reduce, quantize, code] = [
            reduce[at % reduce.len()],
            quantize[at % quantize.len()],
            Code::ALL[at % Code::ALL.len()].name(),
        ];
        format!("default = {{ reduce = {reduce}, quantize = {quantize}, code = '{code}' }}")
    };
    (0..55).map(text).collect()
}

pub(super) fn specs() -> &'static [Spec] {
    static PARSED: LazyLock<Vec<Spec>> = LazyLock::new(|| SPECS.into_iter().map(parse).collect());
    &PARSED
}

fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed ^ 0x9E37_79B9_7F4A_7C15;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as u32 as f32 / 2f32.powi(30) - 1.0).powi(3)
    };
    (0..len).map(|_| next()).collect()
}

/// A safetensors file of integer tensors.
fn counters() -> Vec<u8> {
    let header = br#"{"count":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"mask":{"dtype":"BOOL","shape":[1,3],"data_offsets":[8,11]}}"#;
    [&(header.len() as u64).to_le_bytes(), &header[..], &[7; 8], &[1, 0, 1]].concat()
}

/// The frame of the second round, and the state with that frame pending.
fn second_round(layout: &Arc<Layout>, spec: &Spec, seed: u64) -> Option<[Vec<u8>; 2]> {
    let mut encoder = Encoder::new(Arc::clone(layout), spec).ok()?;
    let header = FrameHeader {
        kind: FrameKind::Update,
        round: 1,
        seed,
    };
    let first = encoder.encode(&mut noise(layout.len(), seed), header).ok()?;
    encoder.settle(&first, Ack::Accepted).ok()?;
    let second = encoder.encode(&mut noise(layout.len(), seed + 1), header).ok()?;
    let mut state = Vec::new();
    encoder.save(Some(&second), &mut state);
    Some([second.frame, state])
}

/// Inputs as (target, name, bytes), covering every recipe, code and memory.
pub fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut seeds = Vec::new();
    let mut add = |target, name: String, parts: &[&[u8]]| seeds.push((target, name, parts.concat()));
    for (at, text) in texts().iter().enumerate() {
        let (spec, seed) = (parse(text), at as u8 + 1);
        for choice in [0, 2] {
            let frames = second_round(&layout(choice), &spec, seed.into());
            let [frame, _] = frames.expect("valid specs must encode");
            add("frame", format!("method-{at}-{choice}"), &[&[choice], &frame]);
        }
        let one = Arc::new(Layout::new([("weight", vec![12, 20])]).expect("a valid layout"));
        let [frame, _] = second_round(&one, &spec, seed.into()).expect("valid specs must encode");
        let choices = [11, 19, seed, seed, seed];
        add(
            "section",
            format!("method-{at}"),
            &[&choices, &frame[34..frame.len() - 4]],
        );
        if at.is_multiple_of(3) {
            add("spec", format!("method-{at}"), &[text.as_bytes()]);
        }
    }
    for (at, text) in SPECS.iter().enumerate() {
        add("spec", format!("spec-{at}"), &[text.as_bytes()]);
        for choice in [0, 1, 2] {
            if let Some([frame, state]) = second_round(&layout(choice), &parse(text), 5) {
                if choice != 1 {
                    add("state", format!("spec-{at}-{choice}"), &[&[choice, at as u8], &state]);
                }
                if choice == 0 {
                    let archive = Archive::write(&layout(choice), &frame, &[]);
                    add("archive", format!("spec-{at}"), &[&archive]);
                    let counters = counters();
                    let counters = Weights::parse(&counters).expect("a well-formed file");
                    let archive = Archive::write(&layout(choice), &frame, counters.integers());
                    add("archive", format!("integers-{at}"), &[&archive]);
                }
                if frame.len() < 3000 {
                    add("frame", format!("spec-{at}-{choice}"), &[&[choice], &frame]);
                }
            }
        }
    }
    planes(&mut add);
    seeds
}

fn planes(add: &mut impl FnMut(&'static str, String, &[&[u8]])) {
    let shape = [12, 20];
    let levels: Vec<i32> = noise(240, 3).iter().map(|value| (value * 6.0) as i32).collect();
    let wide: Vec<i32> = noise(240, 4).iter().map(|value| (value * 2e9) as i32).collect();
    let indices: Vec<u32> = (0..240).filter(|&i| levels[i as usize] != 0).collect();
    for (at, code) in Code::ALL.iter().copied().enumerate() {
        let mut bytes = Vec::new();
        encode_indices(&indices, shape, code, &mut bytes);
        let choices = [11, 19, at as u8, 7, (indices.len() - 1) as u8, 0];
        add("index_plane", format!("code-{at}"), &[&choices, &bytes]);
        for (name, levels) in [("small", &levels), ("wide", &wide)] {
            let mut bytes = Vec::new();
            encode_levels(levels, shape[1], code, &mut bytes);
            add("levels", format!("{name}-{at}"), &[&[11, 19, at as u8, 7], &bytes]);
        }
        for width in [1, 2, 4, 7, 8] {
            let most = (1 << width) - 1;
            let symbols: Vec<u8> = noise(300, width)
                .iter()
                .map(|v| ((v.abs() * 256.0) as u8).min(most as u8))
                .collect();
            let mut bytes = Vec::new();
            encode_symbols(&symbols, width as u32, code, &mut bytes);
            let choices = [44, 1, at as u8, width as u8 - 1, 7];
            add("symbols", format!("code-{at}-{width}"), &[&choices, &bytes]);
        }
    }
}
