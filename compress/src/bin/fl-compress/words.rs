//! Describes recipes and frame kinds.

use fl_compress::{Code, FrameKind, Recipe, Reduce};

/// Describes the recipe of `len` values: `support 1024 of 20000; uniform 4 bits, scale per 1024; rans`.
pub(crate) fn recipe(recipe: &Recipe, len: usize) -> String {
    let code = match recipe.code {
        Code::Pack => "pack",
        Code::Rans => "rans",
        Code::Rice => "rice",
        Code::Huffman => "huffman",
        Code::Context => "context",
    };
    let reduce = reduce(&recipe.reduce, len);
    if recipe.reduce == (Reduce::Support { k: 0 }) {
        return reduce;
    }
    format!("{reduce}; {}; {code}", recipe.quantize)
}

pub(crate) fn kind(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Update => "update",
        FrameKind::ModelUpdate => "step",
        FrameKind::Snapshot => "snapshot",
    }
}

fn reduce(reduce: &Reduce, len: usize) -> String {
    match *reduce {
        Reduce::Keep => "keep".to_owned(),
        Reduce::Support { k: 0 } => "all zero".to_owned(),
        Reduce::Support { k } => format!("support {k} of {len}"),
        Reduce::LowRank { rank, k: 0, .. } => format!("low rank {rank}"),
        Reduce::LowRank { rank, k, .. } => format!("low rank {rank} and support {k} of {len}"),
        Reduce::RandomK { k, .. } => format!("random {k} of {len}"),
        Reduce::CountSketch { rows, cols, .. } => format!("count sketch {rows} x {cols}"),
        Reduce::Components { rank } => format!("{rank} components and the remainder"),
        Reduce::Projection { k, .. } => format!("projection to {k}"),
    }
}
