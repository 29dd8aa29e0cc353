//! Frames and encoder state through the public interface: properties, golden bytes, corruption.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod allocation;
mod budget;
mod budget_agent;
mod choice;
mod chosen_bits;
mod corruption;
mod extremes;
mod fidelity;
mod golden;
mod handed;
mod laws;
mod least;
mod memory;
mod merged;
mod roles;
mod rounded;
mod squared_gradients;
mod state;
mod threads;
mod two_ends;
mod weights;

use std::sync::Arc;

use fl_compress::{
    CodeSpec, DeadZone, Density, Encoder, Frame, FrameHeader, FrameKind, Layout, Memory, Method, Pending, QuantizeSpec,
    ReduceSpec, Rotated, Rounding, Scale, Spec, Ternary, Uniform,
};

const UPDATE: FrameHeader = FrameHeader {
    kind: FrameKind::Update,
    round: 7,
    seed: 42,
};

fn one_tensor(len: usize) -> Arc<Layout> {
    Arc::new(Layout::new([("weight", vec![len])]).unwrap())
}

/// A nearly square matrix, and a vector of the remaining values.
fn tensors(len: usize) -> Arc<Layout> {
    let rows = len.isqrt();
    let (cols, rest) = (len / rows.max(1), len % rows.max(1));
    let tensors = [("matrix", vec![rows, cols]), ("vector", vec![rest])];
    Arc::new(Layout::new(tensors.into_iter().filter(|(_, shape)| !shape.contains(&0))).unwrap())
}

fn spec(memory: Memory, default: Method) -> Spec {
    Spec {
        memory,
        default,
        ..Spec::exact()
    }
}

fn from_toml(text: &str) -> Spec {
    toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn top_k(density: f64) -> ReduceSpec {
    ReduceSpec::TopK(Density::new(density).unwrap().into())
}

fn uniform(bits: u32, rounding: Rounding, block: u32) -> QuantizeSpec {
    QuantizeSpec::Uniform(Uniform::new(bits, rounding, block).unwrap())
}

/// The examples of every reducer, and more numbers.
fn reductions() -> Vec<ReduceSpec> {
    let examples = fl_compress::reducers().flat_map(|method| method.examples);
    let parse = |text: &&str| from_toml(&format!("default = {{ reduce = {text} }}")).default.reduce;
    examples
        .map(parse)
        .chain([top_k(0.01), top_k(0.3), top_k(1.0)])
        .collect()
}

/// The examples of every quantizer, and more parameters.
fn quantizers() -> Vec<QuantizeSpec> {
    let quantize = |text: &str| {
        from_toml(&format!("default = {{ quantize = {text} }}"))
            .default
            .quantize
    };
    let examples = fl_compress::quantizers().flat_map(|method| method.examples);
    let mut all: Vec<QuantizeSpec> = examples.map(|text| quantize(text)).collect();
    all.extend([
        QuantizeSpec::DeadZone(DeadZone::nearest(0.01, 0.5).unwrap()),
        QuantizeSpec::Ternary(Ternary::stochastic(None).unwrap()),
    ]);
    for bits in 1..=4 {
        all.extend(
            [Scale::Least, Scale::Unbiased].map(|scale| QuantizeSpec::Rotated(Rotated::new(bits, scale).unwrap())),
        );
    }
    for bits in 1..=8 {
        all.push(uniform(bits, Rounding::Nearest, 1024));
        all.push(uniform(bits, Rounding::Stochastic, 16));
    }
    for rounding in ["nearest", "stochastic"] {
        all.push(quantize(&format!(
            "{{ uniform = {{ bits = 4, norm = 'l2', rounding = '{rounding}' }} }}"
        )));
    }
    all
}

/// Every reduction with every quantizer, and each of them with every code.
fn every_method() -> Vec<Method> {
    let mut methods = Vec::new();
    for (row, reduce) in reductions().into_iter().enumerate() {
        for (col, quantize) in quantizers().into_iter().enumerate() {
            methods.push(Method {
                reduce: reduce.clone(),
                quantize,
                code: CodeSpec::ALL[(row + col) % CodeSpec::ALL.len()],
                or: None,
            });
        }
    }
    methods
}

/// A few methods that cover every choice of each slot.
fn some_methods() -> Vec<Method> {
    let (reductions, quantizers) = (reductions(), quantizers());
    let count = reductions.len().max(quantizers.len());
    let method = |at: usize| Method {
        reduce: reductions[at % reductions.len()].clone(),
        quantize: quantizers[at % quantizers.len()],
        code: CodeSpec::ALL[(at + at / CodeSpec::ALL.len()) % CodeSpec::ALL.len()],
        or: None,
    };
    (0..count).map(method).collect()
}

/// The examples of every memory.
fn every_memory() -> Vec<Memory> {
    let examples = fl_compress::memories().flat_map(|memory| memory.examples);
    examples
        .map(|text| from_toml(&format!("memory = {text}")).memory)
        .collect()
}

fn encode(layout: &Arc<Layout>, method: &Method, values: &[f32]) -> Pending {
    let mut encoder = Encoder::new(Arc::clone(layout), &spec(Memory::None, method.clone())).unwrap();
    encoder.encode(&mut values.to_vec(), UPDATE).unwrap()
}

fn decode(layout: &Layout, frame: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; layout.len()];
    Frame::parse(frame, layout).unwrap().accumulate(1.0, &mut out).unwrap();
    out
}

/// `frame` with a recomputed checksum.
fn reseal(mut frame: Vec<u8>) -> Vec<u8> {
    let body = frame.len() - 4;
    let checksum = crc32c::crc32c(&frame[..body]);
    frame[body..].copy_from_slice(&checksum.to_le_bytes());
    frame
}

/// The vectors of the memory in a saved state, and none if the memory has none. The state begins with the fingerprint, a varint,
/// and the number of the memory; behind the vectors are only the pending frame and the checksum.
fn saved_vectors(encoder: &Encoder, pending: Option<&Pending>) -> Vec<Vec<f32>> {
    let mut bytes = Vec::new();
    encoder.save(pending, &mut bytes);
    let fingerprint = bytes[6..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let count = match bytes[6 + fingerprint..] {
        [0, ..] => 0,
        [1, 0 | 1, ..] => 1,
        [1, 2 | 3, ..] => 2,
        _ => panic!("no state: {bytes:?}"),
    };
    let len = encoder.layout().len();
    let end = bytes.len() - 4 - pending.map_or(0, |pending| pending.frame.len());
    let words = bytes[end - 4 * count * len..end].as_chunks().0;
    let values: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
    values.chunks(len).map(<[f32]>::to_vec).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Pseudorandom values: uniform in -1..1, cubed.
fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as u32 as f32 / 2f32.powi(30) - 1.0).powi(3)
    };
    (0..len).map(|_| next()).collect()
}
