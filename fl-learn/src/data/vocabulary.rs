//! From texts to token ids. All clients of a run must number tokens alike.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::files::DataFile;
use super::paths::MayBePath;
use super::tokenizer;
use super::tokens::{MAX_VOCABULARY, Tokens};

const MAX_FILE: u64 = 64 << 20;

/// Follows every line of a text that is cut into words.
pub(super) const END_OF_LINE: &str = "<eos>";
/// Stands for every word that the vocabulary lacks.
pub(super) const UNKNOWN: &str = "<unk>";

/// What the tokens of a text are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vocabulary {
    /// Bytes: 256 tokens, whatever the text.
    #[default]
    Bytes,
    /// The characters that occur in the training file, sorted. UTF-8.
    Characters,
    /// The words of the training file, split at white space, with `<eos>` after each line and `<unk>`; the most frequent first, and
    /// words of equal frequency sorted. UTF-8.
    Words,
    /// The tokens of this `tokenizer.json` of Hugging Face, or of that in this folder.
    Tokenizer(PathBuf),
    /// The words in this file, one a line; `<eos>` and `<unk>` are added if they are not among them.
    File(PathBuf),
}

impl MayBePath for Vocabulary {
    fn path(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::File(path) | Self::Tokenizer(path) => Some(path),
            _ => None,
        }
    }
}

impl Vocabulary {
    /// The tokens of the training file `text` at `path`, at most `size` words.
    pub(super) fn of(&self, text: &[u8], path: &Path, size: Option<usize>) -> Result<Names, Error> {
        let too_many = |count: usize, what: &str| {
            let why =
                format!("has {count} different {what}, more than the {MAX_VOCABULARY} that a vocabulary can have");
            Error::malformed(path, why)
        };
        match self {
            Self::Bytes => Ok(Names::default()),
            Self::Characters => {
                let characters: BTreeSet<char> = utf8(text, path)?.chars().collect();
                if characters.len() > MAX_VOCABULARY {
                    return Err(too_many(characters.len(), "characters"));
                }
                Ok(Names(characters.into_iter().map(String::from).collect()))
            }
            Self::Words => {
                let counts = counted(utf8(text, path)?);
                if size.is_none() && counts.len() > MAX_VOCABULARY {
                    return Err(too_many(counts.len(), "words (set `vocabulary_size`)"));
                }
                Ok(Names(by_frequency(counts, size)))
            }
            Self::File(path) => listed(path),
            Self::Tokenizer(path) => tokenizer::names(path).map(Names),
        }
    }

    /// The tokens of `text` at `path`, by the names that [`Vocabulary::of`] gave for the training file.
    ///
    /// # Errors
    /// `Malformed`, naming the line, if the text is not UTF-8 but must be, or has a character that the training file lacks.
    pub(super) fn tokens(&self, names: &[String], text: &[u8], path: &Path) -> Result<Tokens, Error> {
        if *self == Self::Bytes {
            let mut tokens = Tokens::new(256);
            text.iter().try_for_each(|&byte| tokens.push(u32::from(byte)))?;
            return Ok(tokens);
        }
        if let Self::Tokenizer(from) = self {
            return tokenizer::tokens(from, names.len(), utf8(text, path)?, path);
        }
        let mut tokens = Tokens::new(names.len());
        let ids: HashMap<&str, u32> = names.iter().map(String::as_str).zip(0..).collect();
        let text = utf8(text, path)?;
        if *self == Self::Characters {
            for (at, line) in text.split_inclusive('\n').enumerate() {
                for (from, character) in line.char_indices() {
                    let Some(&id) = ids.get(&line[from..from + character.len_utf8()]) else {
                        let why = format!(
                            "line {}: the character {character:?} is not in the training file; remove it, or set \
                             `vocabulary = \"bytes\"`",
                            at + 1
                        );
                        return Err(Error::malformed(path, why));
                    };
                    tokens.push(id)?;
                }
            }
            return Ok(tokens);
        }
        // `of` has put both among the names.
        let id = |word: &str| ids.get(word).copied();
        let end = id(END_OF_LINE).unwrap_or(0);
        let unknown = id(UNKNOWN).unwrap_or(0);
        for line in text.lines() {
            for word in line.split_whitespace() {
                tokens.push(id(word).unwrap_or(unknown))?;
            }
            tokens.push(end)?;
        }
        Ok(tokens)
    }
}

/// The token of each id; none of bytes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Names(pub(super) Vec<String>);

/// How often each word of `text` occurs, `<eos>` and `<unk>` included.
fn counted(text: &str) -> HashMap<&str, u64> {
    let mut counts = HashMap::from([(END_OF_LINE, 0), (UNKNOWN, 0)]);
    for line in text.lines() {
        for word in line.split_whitespace().chain([END_OF_LINE]) {
            *counts.entry(word).or_default() += 1;
        }
    }
    counts
}

/// The words of `counts`, the most frequent first. `size`: at most so many, with `<eos>` and `<unk>` always among them.
fn by_frequency(counts: HashMap<&str, u64>, size: Option<usize>) -> Vec<String> {
    // Sorted by all that differs, so the order of the map is of no consequence.
    let mut words: Vec<(&str, u64)> = counts.into_iter().collect();
    words.sort_unstable_by(|(a, many), (b, more)| more.cmp(many).then(a.cmp(b)));
    let mut free = size.map_or(usize::MAX, |size| size.saturating_sub(2));
    words.retain(|(word, _)| {
        let always = [END_OF_LINE, UNKNOWN].contains(word);
        let kept = always || free > 0;
        free -= usize::from(kept && !always);
        kept
    });
    words.into_iter().map(|(word, _)| word.to_owned()).collect()
}

fn listed(path: &Path) -> Result<Names, Error> {
    let (bytes, path) = DataFile::open(path, "`vocabulary.file` names it")?.text(MAX_FILE)?;
    let mut words: Vec<String> = Vec::new();
    let mut lines: HashMap<&str, usize> = HashMap::new();
    for (at, line) in utf8(&bytes, &path)?.lines().enumerate() {
        let word = line.trim();
        let wrong = |why: String| Err(Error::malformed(&path, format!("line {}: {why}", at + 1)));
        if word.is_empty() || word.contains(char::is_whitespace) {
            return wrong("expected one word".to_owned());
        }
        if let Some(first) = lines.insert(word, at) {
            return wrong(format!("`{word}` is already in line {}", first + 1));
        }
        words.push(word.to_owned());
    }
    for word in [END_OF_LINE, UNKNOWN] {
        if !lines.contains_key(word) {
            words.push(word.to_owned());
        }
    }
    if words.len() > MAX_VOCABULARY {
        let why = format!(
            "has {} words, but a vocabulary has at most {MAX_VOCABULARY}",
            words.len()
        );
        return Err(Error::malformed(&path, why));
    }
    Ok(Names(words))
}

/// `text` as UTF-8.
///
/// # Errors
/// `Malformed`, naming the line.
pub(super) fn utf8<'a>(text: &'a [u8], path: &Path) -> Result<&'a str, Error> {
    std::str::from_utf8(text).map_err(|error| {
        let line = 1 + text[..error.valid_up_to()]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count();
        let why = format!("line {line}: not UTF-8; convert the file, or set `vocabulary = \"bytes\"`");
        Error::malformed(path, why)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(vocabulary: &Vocabulary, text: &str, size: Option<usize>) -> Vec<String> {
        vocabulary.of(text.as_bytes(), Path::new("t"), size).unwrap().0
    }

    fn ids(vocabulary: &Vocabulary, train: &str, text: &str) -> Result<Vec<u32>, String> {
        let names = names(vocabulary, train, None);
        let tokens = vocabulary.tokens(&names, text.as_bytes(), Path::new("held.txt"));
        let tokens = tokens.map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        tokens.append(0..tokens.len(), &mut out);
        Ok(out)
    }

    #[test]
    fn words_are_numbered_by_frequency_and_then_by_bytes() {
        let text = "b a b\nc a \n\n d\n";
        assert_eq!(
            names(&Vocabulary::Words, text, None),
            ["<eos>", "a", "b", "c", "d", "<unk>"]
        );
        assert_eq!(names(&Vocabulary::Words, text, Some(4)), ["<eos>", "a", "b", "<unk>"]);
        assert_eq!(names(&Vocabulary::Words, text, Some(2)), ["<eos>", "<unk>"]);
        assert_eq!(
            names(&Vocabulary::Words, "<unk> <unk> <unk>\nx", None),
            ["<unk>", "<eos>", "x"]
        );
        assert_eq!(ids(&Vocabulary::Words, text, "a zz\nd").unwrap(), [1, 5, 0, 4, 0]);
    }

    #[test]
    fn characters_and_bytes_are_sorted() {
        assert_eq!(names(&Vocabulary::Characters, "bä\na", None), ["\n", "a", "b", "ä"]);
        assert_eq!(ids(&Vocabulary::Characters, "bä\na", "ab\nä").unwrap(), [1, 2, 0, 3]);
        assert_eq!(ids(&Vocabulary::Bytes, "", "a\u{e4}").unwrap(), [97, 195, 164]);
        let error = ids(&Vocabulary::Characters, "ab\n", "ab\nabc").unwrap_err();
        assert!(
            error.contains("held.txt: line 2: the character 'c' is not in the training file"),
            "{error}"
        );
    }

    #[test]
    fn a_text_that_is_not_utf8_is_refused_by_its_line_unless_its_bytes_are_the_tokens() {
        let text = b"good\nb\xffd\n";
        for vocabulary in [Vocabulary::Characters, Vocabulary::Words] {
            let error = vocabulary.of(text, Path::new("t.txt"), None).unwrap_err().to_string();
            assert!(
                error.contains("t.txt: line 2: not UTF-8") && error.contains("bytes"),
                "{error}"
            );
        }
        assert_eq!(Vocabulary::Bytes.tokens(&[], text, Path::new("t")).unwrap().len(), 9);
    }

    #[test]
    fn a_vocabulary_file_has_one_word_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("words.txt");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Vocabulary::File(path.clone()).of(b"", Path::new("t"), None)
        };
        assert_eq!(read("the\n<unk>\na\n").unwrap().0, ["the", "<unk>", "a", "<eos>"]);
        for (text, part) in [
            ("the\na b\n", "line 2: expected one word"),
            ("the\n\na\n", "line 2: expected one word"),
            ("the\na\nthe\n", "line 3: `the` is already in line 1"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("words.txt"), "{error}");
        }
        let missing = Vocabulary::File(dir.path().join("none.txt")).of(b"", Path::new("t"), None);
        assert!(missing.unwrap_err().to_string().contains("`vocabulary.file` names it"));
    }

    #[test]
    fn more_words_than_a_vocabulary_holds_are_refused() {
        let text: String = (0..MAX_VOCABULARY).map(|at| format!("{at:x}\n")).collect();
        let error = Vocabulary::Words
            .of(text.as_bytes(), Path::new("t.txt"), None)
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("t.txt: has 1048578 different words (set `vocabulary_size`), more than"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn a_text_comes_back_from_its_tokens(text in "[a-d ä\n]{0,60}", size in 2usize..6) {
            let tokens = ids(&Vocabulary::Characters, &text, &text).unwrap();
            let all = names(&Vocabulary::Characters, &text, None);
            let back: String = tokens.iter().map(|&id| all[id as usize].as_str()).collect();
            prop_assert_eq!(back, &text[..]);
            let all = names(&Vocabulary::Words, &text, None);
            let words: Vec<&str> = ids(&Vocabulary::Words, &text, &text).unwrap().iter().map(|&id| &*all[id as usize]).collect();
            let want: Vec<&str> = text.lines().flat_map(|line| line.split_whitespace().chain([END_OF_LINE])).collect();
            prop_assert_eq!(words, want);
            let few = names(&Vocabulary::Words, &text, Some(size));
            prop_assert!(few.len() <= size && few.iter().all(|word| all.contains(word)));
        }
    }
}
