//! Texts, whose tokens are predicted one after another.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dataset::Dataset;
use super::error::Error;
use super::examples::ClientData;
use super::features::Features;
use super::files::DataFile;
use super::part::{TestSource, check_share, shared_set};
use super::set::{DataSet, Keys};
use super::tokens::{MAX_VOCABULARY, cut};
use super::vocabulary::Vocabulary;

/// Most bytes of a text. Positions in a text fit 32 bits.
pub(super) const MAX_TEXT: u64 = 1 << 30;
const MAX_LENGTH: u32 = 65_535;

shared_set! {
    /// A text file that all clients have: each trains on a stretch of it.
    pub struct Text(file, test_file, vocabulary) {
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

pub(super) fn check_length(length: u32) -> Result<(), Error> {
    if (1..=MAX_LENGTH).contains(&length) {
        return Ok(());
    }
    let why = format!("is {length}, but must be 1 to {MAX_LENGTH}");
    Err(Error::config("length", why))
}

impl DataSet for Text {
    fn load(&self) -> Result<ClientData, Error> {
        let train = self.shared("train", || read(self, &self.file, "`file` names it", None))?;
        let held = match &self.test_file {
            Some(file) => {
                TestSource::Stretch(self.shared("test", || read(self, file, "`test_file` names it", Some(&train)))?)
            }
            None => TestSource::of_share(self.test),
        };
        self.part().of(train, held)
    }

    fn check(&self) -> Result<(), Error> {
        check_length(self.length)?;
        if let Some(size) = self.vocabulary_size {
            if self.vocabulary != Vocabulary::Words {
                return Err(Error::config("vocabulary_size", "needs `vocabulary = \"words\"`"));
            }
            if !(2..=MAX_VOCABULARY).contains(&(size as usize)) {
                let why = format!("is {size}, but must be 2 to {MAX_VOCABULARY}");
                return Err(Error::config("vocabulary_size", why));
            }
        }
        check_share(self.test, self.test_file.as_ref().map(|_| "test_file"))?;
        let part = self.part();
        part.check()?;
        part.split.expect_without_classes(true)
    }

    fn keys(&mut self) -> Keys<'_> {
        self.shared_keys()
    }

    fn vocabulary(&self) -> Vocabulary {
        self.vocabulary.clone()
    }
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
