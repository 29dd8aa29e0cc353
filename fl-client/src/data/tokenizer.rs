//! `tokenizer.json`: the tokens of Hugging Face's models.

use std::path::{Path, PathBuf};

use super::error::Error;
use super::files::DataFile;
use super::tokens::{MAX_VOCABULARY, Tokens};

/// Most bytes of a `tokenizer.json`.
const MAX_FILE: u64 = 64 << 20;

/// A tokenizer that was read from a file.
pub(crate) struct Tokenizer {
    inner: tokenizers::Tokenizer,
    path: PathBuf,
}

impl Tokenizer {
    /// Reads `tokenizer.json`, or that in the folder `path`.
    ///
    /// # Errors
    /// `Malformed` if it is none; those of reading a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let path = if path.is_dir() {
            path.join("tokenizer.json")
        } else {
            path.to_owned()
        };
        let (bytes, path) = DataFile::open(&path, "`vocabulary.tokenizer` names it")?.all(MAX_FILE)?;
        let inner = tokenizers::Tokenizer::from_bytes(&bytes);
        let inner = inner.map_err(|error| Error::malformed(&path, format!("not a tokenizer: {error}")))?;
        Ok(Self { inner, path })
    }

    /// The token of each id, up to the highest.
    fn names(&self) -> Result<Vec<String>, Error> {
        let vocabulary = self.inner.get_vocab(true);
        let len = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
        if !(1..=MAX_VOCABULARY).contains(&len) {
            let why = format!("the highest token is {len}; a vocabulary has 1 to {MAX_VOCABULARY} tokens");
            return Err(Error::malformed(&self.path, why));
        }
        let mut names = vec![String::new(); len];
        vocabulary.into_iter().for_each(|(name, id)| names[id as usize] = name);
        Ok(names)
    }

    /// The ids of a text, without the marks that the tokenizer can add at its ends.
    pub(crate) fn ids(&self, text: &str) -> Result<Vec<u32>, Error> {
        let encoding = self.inner.encode_fast(text, false);
        let encoding = encoding.map_err(|error| Error::malformed(&self.path, error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of some ids.
    pub(crate) fn text(&self, ids: &[u32]) -> Result<String, Error> {
        let text = self.inner.decode(ids, true);
        text.map_err(|error| Error::malformed(&self.path, error.to_string()))
    }
}

/// The token of each id of the tokenizer at `path`.
pub(super) fn names(path: &Path) -> Result<Vec<String>, Error> {
    Tokenizer::read(path)?.names()
}

/// The tokens of `text`, which is from the file `origin`, by the tokenizer at `path`, whose vocabulary has `len` tokens.
pub(super) fn tokens(path: &Path, len: usize, text: &str, origin: &Path) -> Result<Tokens, Error> {
    let mut tokens = Tokens::new(len);
    let ids = Tokenizer::read(path)?
        .ids(text)
        .map_err(|error| Error::malformed(origin, error.to_string()))?;
    ids.into_iter().try_for_each(|id| tokens.push(id))?;
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words and a token for unknown ones, with a gap in the ids.
    const WORDS: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "to": 1, "be": 2, "or": 4}, "unk_token": "<unk>"}}"#;

    #[test]
    fn texts_become_the_ids_of_the_file_and_back() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tokenizer.json"), WORDS).unwrap();
        let tokenizer = Tokenizer::read(dir.path()).unwrap();
        assert_eq!(tokenizer.names().unwrap(), ["<unk>", "to", "be", "", "or"]);
        assert_eq!(tokenizer.ids("to be or\nnot").unwrap(), [1, 2, 4, 0]);
        assert_eq!(tokenizer.text(&[1, 2]).unwrap(), "to be");
        let tokens = tokens(dir.path(), 5, "be to", Path::new("t.txt")).unwrap();
        let mut ids = Vec::new();
        tokens.append(0..tokens.len(), &mut ids);
        assert_eq!(ids, [2, 1]);
    }

    #[test]
    fn what_is_no_tokenizer_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        let error = |path: &Path| Tokenizer::read(path).err().unwrap().to_string();
        assert!(error(&path).contains("`vocabulary.tokenizer` names it"));
        for text in ["", "{}", "[1, 2]", &WORDS[..200]] {
            std::fs::write(&path, text).unwrap();
            let error = error(dir.path());
            assert!(
                error.contains("tokenizer.json") && error.contains("not a tokenizer"),
                "{error}"
            );
        }
    }
}
