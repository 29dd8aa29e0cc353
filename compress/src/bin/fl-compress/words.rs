//! Describes recipes and frame kinds.

use fl_compress::{Code, FrameKind, Recipe};

/// Describes the recipe of `len` values: `support 1024 of 20000; uniform 4 bits, scale per 1024; rans`.
pub(crate) fn recipe(recipe: &Recipe, len: usize) -> String {
    let code = match recipe.code {
        Code::Pack => "pack",
        Code::Rans => "rans",
        Code::Rice => "rice",
        Code::Huffman => "huffman",
        Code::Context => "context",
    };
    let reduce = recipe.reduce.words(len);
    if recipe.reduce.is_zero() {
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
