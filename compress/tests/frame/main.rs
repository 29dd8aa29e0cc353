//! Frames and encoder state from outside: laws, bytes, corruption.

#![allow(clippy::unwrap_used, reason = "a test says that it failed by panicking")]

mod budget;
mod corruption;
mod golden;
mod laws;
mod memory;
mod state;
mod threads;

use std::sync::Arc;

use fl_compress::{
    CodeSpec, CountSketch, Density, Encoder, Frame, FrameHeader, FrameKind, Layout, LowRank, Memory, Method, Pending,
    Projection, QuantizeSpec, RandomK, RankSpec, ReduceSpec, Rounding, Spec, Threshold, TopK, Uniform,
};

const UPDATE: FrameHeader = FrameHeader {
    kind: FrameKind::Update,
    round: 7,
    seed: 42,
};

fn one_tensor(len: usize) -> Arc<Layout> {
    Arc::new(Layout::new([("weight", vec![len])]).unwrap())
}

fn spec(memory: Memory, default: Method) -> Spec {
    Spec {
        memory,
        default,
        ..Spec::exact()
    }
}

fn top_k(density: f64) -> ReduceSpec {
    ReduceSpec::TopK(Density::new(density).unwrap().into())
}

fn uniform(bits: u32, rounding: Rounding, block: u32) -> QuantizeSpec {
    QuantizeSpec::Uniform(Uniform::new(bits, rounding, block).unwrap())
}

/// Every choice of each slot with every choice of the others.
fn every_method() -> Vec<Method> {
    let mut quantizers = vec![QuantizeSpec::Exact, QuantizeSpec::Half];
    for bits in 1..=8 {
        quantizers.push(uniform(bits, Rounding::Nearest, 1024));
        quantizers.push(uniform(bits, Rounding::Stochastic, 16));
    }
    let density = Density::new(0.3).unwrap();
    let mut chunked = TopK::from(density);
    chunked.chunk = Some(64);
    let reductions = [
        ReduceSpec::Keep,
        top_k(0.01),
        top_k(0.3),
        top_k(1.0),
        ReduceSpec::TopK(chunked),
        ReduceSpec::RandomK(RandomK { density }),
        ReduceSpec::Threshold(Threshold::Fixed(0.5)),
        ReduceSpec::Threshold(Threshold::Sampled(density)),
        ReduceSpec::LowRank(LowRank {
            rank: RankSpec::Fixed(2),
            remainder: None,
        }),
        ReduceSpec::LowRank(LowRank {
            rank: RankSpec::Fixed(1),
            remainder: Some(Density::new(0.05).unwrap()),
        }),
        ReduceSpec::CountSketch(CountSketch {
            rows: 3,
            density,
            top: density,
        }),
        ReduceSpec::Projection(Projection { density }),
    ];
    let codes = [
        CodeSpec::Pack,
        CodeSpec::Rans,
        CodeSpec::Rice,
        CodeSpec::Huffman,
        CodeSpec::Context,
        CodeSpec::Auto,
    ];
    let mut methods = Vec::new();
    for reduce in reductions {
        for quantize in &quantizers {
            methods.extend(codes.map(|code| Method {
                reduce: reduce.clone(),
                quantize: quantize.clone(),
                code,
            }));
        }
    }
    methods
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

/// `frame` with its checksum made right again.
fn reseal(mut frame: Vec<u8>) -> Vec<u8> {
    let body = frame.len() - 4;
    let checksum = crc32c::crc32c(&frame[..body]);
    frame[body..].copy_from_slice(&checksum.to_le_bytes());
    frame
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
