//! Texts, whose tokens are predicted one after another.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dataset::Dataset;
use super::error::Error;
use super::examples::ClientData;
use super::features::Features;
use super::files::DataFile;
use super::part::{Held, check_share, shared_set};
use super::shared::shared;
use super::tokens::{MAX_VOCABULARY, cut};
use super::vocabulary::Vocabulary;

/// Most bytes of a text. Positions in a text fit 32 bits.
pub(super) const MAX_TEXT: u64 = 1 << 30;
/// Most tokens of an example.
const MAX_LENGTH: u32 = 65_535;

shared_set! {
    /// A text file that all clients have: each trains on a stretch of it.
    pub struct Text {
        /// The file to train on. Its tokens are the vocabulary.
        pub file: PathBuf,
        /// File of held-out text, of which each client gets a stretch.
        #[serde(default)]
        pub test_file: Option<PathBuf>,
        /// Share of the client's stretch that is held out, at its end, in place of `test_file`.
        #[serde(default)]
        pub test: Option<f64>,
        /// What a token is.
        #[serde(default)]
        pub vocabulary: Vocabulary,
        /// Most words of the vocabulary: the most frequent, with `<eos>` and `<unk>`.
        #[serde(default)]
        pub vocabulary_size: Option<u32>,
        /// Tokens of an example.
        #[serde(default = "length")]
        pub length: u32,
    }
}

fn length() -> u32 {
    64
}

pub(super) fn check(text: &Text) -> Result<(), Error> {
    check_length(text.length)?;
    if let Some(size) = text.vocabulary_size {
        if text.vocabulary != Vocabulary::Words {
            return Err(Error::config("vocabulary_size", "needs `vocabulary = \"words\"`"));
        }
        if !(2..=MAX_VOCABULARY).contains(&(size as usize)) {
            let why = format!("is {size}, but must be 2 to {MAX_VOCABULARY}");
            return Err(Error::config("vocabulary_size", why));
        }
    }
    check_share(text.test, text.test_file.as_ref().map(|_| "test_file"))?;
    let part = text.part();
    part.check()?;
    part.split.expect_without_classes(true)
}

/// Succeeds if examples can have `length` tokens.
///
/// # Errors
/// `Config`.
pub(super) fn check_length(length: u32) -> Result<(), Error> {
    if (1..=MAX_LENGTH).contains(&length) {
        return Ok(());
    }
    let why = format!("is {length}, but must be 1 to {MAX_LENGTH}");
    Err(Error::config("length", why))
}

pub(super) fn relative_to(text: &mut Text, base: &Path) {
    text.file = base.join(&text.file);
    text.test_file = text.test_file.as_ref().map(|file| base.join(file));
    text.vocabulary.relative_to(base);
    text.split.relative_to(base);
}

pub(super) fn load(text: &Text) -> Result<ClientData, Error> {
    let key = |part: &str| format!("text {part} {}", text.identity());
    let train = shared(key("train"), || read(text, &text.file, "`file` names it", None))?;
    let test = |file| shared(key("test"), || read(text, file, "`test_file` names it", Some(&train)));
    let held = text.test_file.as_deref().map(test).transpose()?.map(Held::Stretch);
    text.part().of(train, Held::or_share(held, text.test))
}

/// Reads the file at `path`. A held-out text has the vocabulary of the text to train on.
fn read(text: &Text, path: &Path, hint: &str, train: Option<&Arc<Dataset>>) -> Result<Dataset, Error> {
    let (bytes, path) = DataFile::open(path, hint)?.text(MAX_TEXT)?;
    let own = match train {
        Some(_) => None,
        None => Some(
            text.vocabulary
                .of(&bytes, &path, text.vocabulary_size.map(|size| size as usize))?,
        ),
    };
    let names = match (&own, train) {
        (Some(own), _) => own.0.as_slice(),
        (None, train) => train.map_or(&[][..], |train| train.class_names()),
    };
    let tokens = text.vocabulary.tokens(names, &bytes, &path)?;
    let length = text.length as usize;
    if tokens.len() < 2 {
        let why = format!("has {} tokens; there must be at least 2", tokens.len());
        return Err(Error::malformed(&path, why));
    }
    let pieces = cut(0..tokens.len() as u32, length).collect();
    let set = Dataset::of_text(Features::Text { tokens, pieces }, length)?;
    match (own, train) {
        (_, Some(train)) => Ok(set.named_as(train)),
        (Some(own), None) if !own.0.is_empty() => set.with_class_names(own.0),
        _ => Ok(set),
    }
}

#[cfg(test)]
mod tests;
