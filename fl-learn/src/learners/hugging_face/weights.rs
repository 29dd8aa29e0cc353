//! `model.safetensors`, whole or in parts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use fl_compress::weights::TensorReader;
use serde::Deserialize;

const MAX_INDEX: u64 = 16 << 20;
const MAX_PARTS: usize = 1_000;

pub(super) fn read_text(path: &Path, limit: u64) -> anyhow::Result<String> {
    let file = fl_proto::open_regular(File::options().read(true), path);
    let text = file.and_then(|file| fl_compress::text::read(file, limit));
    text.with_context(|| path.display().to_string())
}

/// `model.safetensors.index.json`.
#[derive(Debug, Deserialize)]
struct PartList {
    weight_map: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(crate) struct Weights {
    parts: Vec<(PathBuf, TensorReader<File>)>,
    /// The part of each tensor that was not read yet.
    left: BTreeMap<String, usize>,
}

impl Weights {
    /// Opens the files and reads their headers.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Self> {
        let whole = folder.join("model.safetensors");
        let index = folder.join("model.safetensors.index.json");
        let files: Vec<PathBuf> = if whole.exists() {
            vec![whole]
        } else if index.exists() {
            let text = read_text(&index, MAX_INDEX)?;
            let list: PartList = serde_json::from_str(&text).with_context(|| index.display().to_string())?;
            let names: BTreeSet<String> = list.weight_map.into_values().collect();
            ensure!(
                !names.is_empty() && names.len() <= MAX_PARTS,
                "{}: {} files; 1 to {MAX_PARTS} are possible",
                index.display(),
                names.len()
            );
            let mut every = names.iter();
            if let Some(name) = every.find(|name| Path::new(name).file_name().is_none_or(|file| file != name.as_str()))
            {
                bail!("{}: `{name}` is not the name of a file in this folder", index.display());
            }
            names.iter().map(|name| folder.join(name)).collect()
        } else {
            bail!(
                "{}: there is neither model.safetensors nor model.safetensors.index.json",
                folder.display()
            );
        };
        let mut parts = Vec::new();
        let mut left = BTreeMap::new();
        for (at, path) in files.into_iter().enumerate() {
            let context = || path.display().to_string();
            let file = fl_proto::open_regular(File::options().read(true), &path).with_context(context)?;
            let reader = TensorReader::open(file).with_context(context)?;
            for name in reader.names() {
                if left.insert(name.clone(), at).is_some() {
                    bail!("{}: tensor `{name}` is in another file too", path.display());
                }
            }
            parts.push((path, reader));
        }
        Ok(Self { parts, left })
    }

    /// The values of a tensor, which can be taken once. Some files leave the prefix out that the model's code has.
    pub(crate) fn take(&mut self, name: &str, shape: &[usize]) -> anyhow::Result<Vec<f32>> {
        let short = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
        let stored = [Some(name), short]
            .into_iter()
            .flatten()
            .find(|name| self.left.contains_key(*name));
        let Some((stored, at)) = stored.and_then(|name| self.left.remove_entry(name)) else {
            bail!("tensor `{name}` of the model is missing in its safetensors files");
        };
        let (path, reader) = &mut self.parts[at];
        let found = reader.shape(&stored).unwrap_or_default();
        ensure!(
            found == shape,
            "{}: tensor `{stored}` is {found:?}, but config.json makes it {shape:?}",
            path.display()
        );
        reader.values(&stored).with_context(|| path.display().to_string())
    }

    /// Succeeds if all tensors were taken, but for those that older programs store beside the weights.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        match self
            .left
            .iter()
            .find(|(name, _)| !UNUSED.iter().any(|suffix| name.ends_with(suffix)))
        {
            None => Ok(()),
            Some((name, &at)) => bail!(
                "{}: tensor `{name}` is not one of the model that config.json describes",
                self.parts[at].0.display()
            ),
        }
    }
}

const PREFIXES: [&str; 2] = ["transformer.", "model."];

/// Masks and frequencies, and the copy of a tied embedding.
const UNUSED: [&str; 4] = [
    ".attn.bias",
    ".attn.masked_bias",
    ".rotary_emb.inv_freq",
    "lm_head.weight",
];
