//! Folders of models as Hugging Face's libraries write them: `config.json`, safetensors files, `tokenizer.json`.

mod config;
mod weights;

use std::path::Path;

pub(super) use weights::Weights;
use weights::read_text;

use super::decoder::Shape;

pub(super) fn shape(folder: &Path, tokens: usize) -> anyhow::Result<Shape> {
    let path = folder.join("config.json");
    let text = read_text(&path, config::MAX_BYTES)?;
    config::parse(&text, tokens).map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))
}
