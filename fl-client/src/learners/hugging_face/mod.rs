//! Folders of models as Hugging Face's libraries write them: `config.json`, safetensors files, `tokenizer.json`.

mod config;
mod weights;

use std::fs::File;
use std::path::Path;

use anyhow::Context as _;

pub(super) use weights::Weights;

use super::decoder::Shape;

/// The text of a file of at most `limit` bytes.
fn read_text(path: &Path, limit: u64) -> anyhow::Result<String> {
    let file = fl_proto::open_regular(File::options().read(true), path);
    let text = file.and_then(|file| fl_compress::text::read(file, limit));
    text.with_context(|| path.display().to_string())
}

/// The shape of the model in `folder` for texts of `tokens` tokens.
///
/// # Errors
/// If `config.json` is missing or describes no model that is supported; the error names file and key.
pub(super) fn shape(folder: &Path, tokens: usize) -> anyhow::Result<Shape> {
    let path = folder.join("config.json");
    let text = read_text(&path, config::MAX_BYTES)?;
    config::parse(&text, tokens).map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))
}
