//! Describes recipes and frame kinds.

use fl_compress::{FrameKind, Recipe};

/// Describes the recipe of `len` values: `support 1024 of 20000; uniform 4 bits, scale per 1024; rans`.
pub(crate) fn recipe(recipe: &Recipe, len: usize) -> String {
    let reduce = recipe.reduce.words(len);
    if recipe.reduce.is_zero() {
        return reduce;
    }
    format!("{reduce}; {}; {}", recipe.quantize, recipe.code.name())
}

pub(crate) fn kind(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Update => "update",
        FrameKind::ModelUpdate => "step",
        FrameKind::Snapshot => "snapshot",
    }
}
