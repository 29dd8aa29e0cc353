//! Between a text that a person types and the tokens of a data set.

use super::error::Error;
use super::source::DataSource;
use super::tokenizer::Tokenizer;
use super::vocabulary::Vocabulary;

pub(crate) enum Coder {
    Bytes,
    Characters(Vec<String>),
    Words(Vec<String>),
    Tokenizer(Box<Tokenizer>),
}

impl Coder {
    /// The coder of the texts that `source` names. `names`: [`Dataset::class_names`](super::Dataset::class_names) of its set.
    pub(crate) fn of(source: &DataSource, names: &[String]) -> Result<Self, Error> {
        Ok(match source.set().vocabulary() {
            Vocabulary::Tokenizer(path) => Self::Tokenizer(Box::new(Tokenizer::read(&path)?)),
            _ if names.is_empty() => Self::Bytes,
            Vocabulary::Bytes | Vocabulary::Characters => Self::Characters(names.to_vec()),
            Vocabulary::Words | Vocabulary::File(_) => Self::Words(names.to_vec()),
        })
    }

    pub(crate) fn ids(&self, text: &str) -> Result<Vec<u32>, Error> {
        match self {
            Self::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Self::Characters(names) => {
                let mut buffer = [0; 4];
                text.chars()
                    .map(|character| find(names, character.encode_utf8(&mut buffer)))
                    .collect()
            }
            Self::Words(names) => text.split_whitespace().map(|word| find(names, word)).collect(),
            Self::Tokenizer(tokenizer) => tokenizer.ids(text),
        }
    }

    pub(crate) fn text(&self, ids: &[u32]) -> Result<String, Error> {
        match self {
            Self::Bytes => {
                let bytes: Vec<u8> = ids.iter().map(|&id| id as u8).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Self::Characters(names) => Ok(named(names, ids).concat()),
            Self::Words(names) => Ok(named(names, ids).join(" ")),
            Self::Tokenizer(tokenizer) => tokenizer.text(ids),
        }
    }
}

fn find(names: &[String], part: &str) -> Result<u32, Error> {
    let at = names.iter().position(|name| name == part);
    at.map(|at| at as u32)
        .ok_or_else(|| Error::config("prompt", format!("`{part}` is not in the vocabulary")))
}

fn named<'a>(names: &'a [String], ids: &[u32]) -> Vec<&'a str> {
    ids.iter()
        .filter_map(|&id| Some(names.get(id as usize)?.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        for (coder, text) in [
            (Coder::Bytes, "tö be"),
            (Coder::Characters(names(&["\n", "a", "ä"])), "aä\na"),
            (Coder::Words(names(&["to", "be"])), "be to be"),
        ] {
            assert_eq!(coder.text(&coder.ids(text).unwrap()).unwrap(), text);
        }
        let error = Coder::Words(names(&["to"])).ids("to sleep").unwrap_err().to_string();
        assert!(error.contains("`sleep` is not in the vocabulary"), "{error}");
    }
}
