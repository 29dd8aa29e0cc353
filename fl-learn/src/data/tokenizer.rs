//! `tokenizer.json`: the tokens of Hugging Face's models.

use std::path::{Path, PathBuf};

use fl_proto::caught;
use serde::Deserialize;
use serde_json::Value;
use tokenizers::{ModelWrapper, NormalizedString, Normalizer as _, NormalizerWrapper};

use super::error::Error;
use super::files::DataFile;
use super::tokens::{MAX_VOCABULARY, Tokens};

const MAX_FILE: u64 = 64 << 20;
/// Longest `precompiled_charsmap`, in bytes of base64: sixteen characters that each become all of it take less than a gigabyte.
const MAX_CHARSMAP: usize = 4 << 20;
/// How many times as long its steps may make a text: a space becomes three bytes, a ligature a phrase.
const MAX_GROWTH: usize = 64;
/// Pieces of a text that are tried before the whole, in bytes: where a character becomes a megabyte, few are enough.
const TRIED: [usize; 2] = [16, 4096];

pub(crate) struct Tokenizer {
    inner: tokenizers::Tokenizer,
    path: PathBuf,
    /// Whether its normalizer may lengthen a text beyond measure: the text is then tried in pieces.
    tries: bool,
}

impl Tokenizer {
    /// Reads `tokenizer.json`, or that in the folder `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let path = if path.is_dir() {
            path.join("tokenizer.json")
        } else {
            path.to_owned()
        };
        let (bytes, path) = DataFile::open(&path, "`vocabulary.tokenizer` names it")?.text(MAX_FILE)?;
        let not_one = "not a tokenizer";
        let trusted: TextSteps =
            serde_json::from_slice(&bytes).map_err(|error| Error::malformed(&path, format!("{not_one}: {error}")))?;
        if !is_whole(&trusted.normalizer) {
            let why = format!(
                "{not_one}: `precompiled_charsmap` says that it is longer than it is, or than {MAX_CHARSMAP} bytes"
            );
            return Err(Error::malformed(&path, why));
        }
        if growth(&trusted.pre_tokenizer).max(growth(&trusted.decoder)) > MAX_GROWTH {
            return Err(too_long(&path));
        }
        let mut inner = guarded(&path, not_one, || tokenizers::Tokenizer::from_bytes(&bytes))?;
        // What fine-tuning leaves in the file is for batches of short inputs: a text would lose all after its first tokens, or be
        // filled up with others.
        inner
            .with_truncation(None)
            .map_err(|error| Error::malformed(&path, error.to_string()))?;
        inner.with_padding(None);
        // It draws another tokenization of the same text at each start.
        if let ModelWrapper::BPE(model) = inner.get_model()
            && model.dropout.is_some()
        {
            let mut model = model.clone();
            model.dropout = None;
            inner.with_model(model);
        }
        let tries = growth(&trusted.normalizer) > MAX_GROWTH;
        Ok(Self { inner, path, tries })
    }

    /// The token of each id, up to the highest.
    pub(crate) fn names(&self) -> Result<Vec<String>, Error> {
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
        let tried = guarded(&self.path, "cannot read a text", || self.try_pieces(text))?;
        if !tried {
            return Err(too_long(&self.path));
        }
        let encoding = guarded(&self.path, "cannot read a text", || self.inner.encode_fast(text, false))?;
        Ok(encoding.get_ids().to_vec())
    }

    fn try_pieces(&self, text: &str) -> tokenizers::Result<bool> {
        let Some(normalizer) = self.inner.get_normalizer().filter(|_| self.tries) else {
            return Ok(true);
        };
        for len in TRIED {
            let mut rest = text;
            while !rest.is_empty() {
                let piece;
                (piece, rest) = rest.split_at(rest.floor_char_boundary(len));
                // A short piece may become a word.
                let most = piece.len().max(TRIED[0]) * MAX_GROWTH;
                if !grows_little(normalizer, &mut NormalizedString::from(piece), most)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    pub(crate) fn text(&self, ids: &[u32]) -> Result<String, Error> {
        guarded(&self.path, "cannot write a text", || self.inner.decode(ids, true))
    }
}

/// The parts of the file whose lengths the library trusts.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TextSteps {
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
}

/// How many times as long the steps of a part may make any text, at most. Of normalization forms: the greatest factors in UTF-8 that
/// the FAQ of Unicode lists.
fn growth(part: &Value) -> usize {
    match part {
        Value::Array(all) => all.iter().map(growth).fold(1, usize::saturating_mul),
        Value::Object(keys) => {
            let text = |key| keys.get(key).and_then(Value::as_str);
            let own = match text("type") {
                Some("Replace") => 1 + text("content").map_or(0, str::len),
                Some("Prepend") => 1 + text("prepend").map_or(0, str::len),
                Some("Lowercase" | "ByteLevel") => 2,
                Some("NFC" | "NFD") => 3,
                Some("NFKC" | "NFKD" | "BertNormalizer") => 12,
                Some("Precompiled") => usize::MAX,
                _ => 1,
            };
            keys.values().map(growth).fold(own, usize::saturating_mul)
        }
        _ => 1,
    }
}

fn too_long(path: &Path) -> Error {
    Error::malformed(
        path,
        format!("its steps make a text more than {MAX_GROWTH} times as long"),
    )
}

/// Whether no step of a normalizer makes `text` longer than `most` bytes. The library takes all steps at once, and each may multiply
/// what the one before has left.
fn grows_little(normalizer: &NormalizerWrapper, text: &mut NormalizedString, most: usize) -> tokenizers::Result<bool> {
    if let NormalizerWrapper::Sequence(steps) = normalizer {
        for step in steps.as_ref() {
            if !grows_little(step, text, most)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let put = match normalizer {
        NormalizerWrapper::Replace(step) => step.content.len(),
        NormalizerWrapper::Prepend(step) => step.prepend.len(),
        _ => 0,
    };
    if put <= MAX_GROWTH {
        normalizer.normalize(text)?;
    }
    Ok(put <= MAX_GROWTH && text.get().len() <= most)
}

/// Whether each `precompiled_charsmap` in a normalizer has the bytes of the trie that its first four bytes announce. The library
/// allocates them before it reads them.
fn is_whole(normalizer: &Value) -> bool {
    match normalizer {
        Value::Array(all) => all.iter().all(is_whole),
        Value::Object(keys) => keys.iter().all(|(key, value)| match (key.as_str(), value) {
            ("precompiled_charsmap", Value::String(text)) => {
                text.len() <= MAX_CHARSMAP && announced(text).is_none_or(|len| len <= text.len() as u64)
            }
            _ => is_whole(value),
        }),
        _ => true,
    }
}

/// The first four bytes of a text in base64, as a little-endian number.
fn announced(base64: &str) -> Option<u64> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = base64.as_bytes().get(..6)?;
    let mut digits = digits
        .iter()
        .map(|digit| DIGITS.iter().position(|known| known == digit));
    let bits = digits.try_fold(0, |bits, digit| Some(bits << 6 | digit? as u64))?;
    Some(u64::from(((bits >> 4) as u32).swap_bytes()))
}

/// What the library returns. It panics on some files: those of normalizers above all.
fn guarded<T>(path: &Path, what: &str, call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, Error> {
    let result = caught(|| call().map_err(|error| error.to_string())).unwrap_or_else(Err);
    result.map_err(|why| Error::malformed(path, format!("{what}: {why}")))
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

    /// Every fine-tuned model has such a file.
    #[test]
    fn settings_for_batches_of_short_inputs_change_no_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        let ids = |file: &str, text: &str| {
            std::fs::write(&path, file).unwrap();
            Tokenizer::read(&path).unwrap().ids(text).unwrap()
        };
        let truncation =
            r#""truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}"#;
        let padding = r#""padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": 8, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "<unk>"}"#;
        let marks = r#""post_processor": {"type": "TemplateProcessing", "special_tokens": {"<s>": {"id": "<s>", "ids": [1],
            "tokens": ["to"]}}, "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}]}"#;
        for (plain, tuned) in [
            (r#""truncation": null"#, truncation),
            (r#""padding": null"#, padding),
            (r#""post_processor": null"#, marks),
        ] {
            let file = WORDS.replace(plain, tuned);
            assert_ne!(file, WORDS);
            assert_eq!(ids(&file, "to be or\nnot"), [1, 2, 4, 0], "{tuned}");
        }
        let bpe = |dropout: &str| {
            let model = format!(
                r#""model": {{"type": "BPE", "dropout": {dropout}, "unk_token": null, "fuse_unk": false, "vocab": {{"a": 0, "b": 1, "ab": 2,
                "abab": 3}}, "merges": ["a b", "ab ab"]}}"#
            );
            format!("{}{model}}}", WORDS.split(r#""model""#).next().unwrap())
        };
        assert_eq!(ids(&bpe("null"), "abab abab"), [3, 3]);
        assert_eq!(ids(&bpe("1.0"), "abab abab"), [3, 3], "dropout would merge nothing");
    }

    #[test]
    fn letters_in_place_of_letters_lengthen_no_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        let letters = ["أ", "إ", "آ", "ٱ", "ؤ", "ئ", "ى", "ة"];
        let step = |from| format!(r#"{{"type": "Replace", "pattern": {{"String": "{from}"}}, "content": "ا"}}"#);
        let steps = letters.map(step).join(",");
        let normalizer = format!(r#""normalizer": {{"type": "Sequence", "normalizers": [{steps}]}}"#);
        std::fs::write(&path, WORDS.replace(r#""normalizer": null"#, &normalizer)).unwrap();
        let tokenizer = Tokenizer::read(&path).unwrap();
        assert_eq!(tokenizer.ids("to be أ").unwrap(), [1, 2, 0]);
    }

    #[test]
    fn a_panic_of_the_library_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        let lacks_map = r#"{"type": "Precompiled", "precompiled_charsmap": null}"#;
        let no_map = r#"{"type": "Precompiled", "precompiled_charsmap": "!"}"#;
        // Its first four bytes announce 4 GiB.
        let short_map = r#"{"type": "Precompiled", "precompiled_charsmap": "/////w=="}"#;
        let inner = format!(r#"{{"type": "Sequence", "normalizers": [{lacks_map}]}}"#);
        let deep = format!(r#"{{"type": "Sequence", "normalizers": [{short_map}]}}"#);
        for normalizer in [lacks_map, no_map, short_map, &inner, &deep] {
            let file = WORDS.replace(r#""normalizer": null"#, &format!(r#""normalizer": {normalizer}"#));
            std::fs::write(&path, file).unwrap();
            let why = Tokenizer::read(&path).err().unwrap().to_string();
            assert!(
                why.contains("tokenizer.json: not a tokenizer") && why.to_lowercase().contains("precompiled"),
                "{why}"
            );
        }
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
