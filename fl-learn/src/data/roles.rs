//! Shakespeare by speaking role: each client has the speeches of one role, character by character.
//!
//! As in LEAF (Caldas et al. 2018), the first part of a role's text is for training and the rest is held out.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::csv_file::CsvFile;
use super::dataset::Dataset;
use super::error::Error;
use super::examples::{ClientData, Examples};
use super::features::Features;
use super::files::DataFile;
use super::part::{check_limit, check_share};
use super::set::{DataSet, Keys};
use super::split::check_client;
use super::text::{MAX_TEXT, check_length};
use super::tokens::cut;
use super::vocabulary::{Vocabulary, utf8};

/// Names that the file of the text may have.
const TEXTS: [&str; 2] = ["input.txt", "plays.txt"];
const SPEECHES: &str = "speeches.tsv";
/// Fewest characters of a client.
const FEWEST: u32 = 10;

/// The speeches of one role, or of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roles {
    /// Folder with the text, `input.txt` or `plays.txt`, and `speeches.tsv`.
    pub dir: PathBuf,
    /// Number of this client, from 0: it has the role of this rank by size.
    #[serde(default)]
    pub client: u32,
    /// Number of clients.
    #[serde(default = "crate::data::part::one")]
    pub clients: u32,
    /// Roles of each client: those of rank `client`, `client + clients` and so on.
    #[serde(default = "crate::data::part::one")]
    pub roles: u32,
    /// Roles with fewer bytes of text are left out.
    #[serde(default = "least")]
    pub least: u32,
    /// Characters of an example.
    #[serde(default = "length")]
    pub length: u32,
    /// Share of each role's text that is held out, at its end.
    #[serde(default = "held_out")]
    pub test: f64,
    /// Take at most this many of the client's training examples.
    #[serde(default)]
    pub limit: Option<u32>,
    /// Take at most this many of its held-out examples.
    #[serde(default)]
    pub test_limit: Option<u32>,
}

fn least() -> u32 {
    1000
}

fn length() -> u32 {
    80
}

fn held_out() -> f64 {
    0.2
}

impl DataSet for Roles {
    fn load(&self) -> Result<ClientData, Error> {
        let (bytes, path) = text_file(&self.dir)?.all(MAX_TEXT)?;
        let text = utf8(&bytes, &path)?;
        if text.starts_with('\u{feff}') {
            let why =
                format!("begins with a byte order mark, which `{SPEECHES}` may count or not; save the text without it");
            return Err(Error::malformed(&path, why));
        }
        let speeches = speeches(&self.dir, text)?;
        let mine = chosen(self, &speeches)?;

        let vocabulary = Vocabulary::Characters;
        let names = vocabulary.of(&bytes, &path, None)?.0;
        let mut own = String::new();
        let mut train = Vec::new();
        let mut test = Vec::new();
        let mut begun = 0;
        for ranges in mine {
            let mut count = 0;
            for (at, range) in ranges.iter().enumerate() {
                if at > 0 {
                    own.push('\n');
                    count += 1;
                }
                own.push_str(&text[range.clone()]);
                count += text[range.clone()].chars().count() as u32;
            }
            // The first held-out token only begins the held-out text, and so nothing of it is trained on.
            let kept = begun + (f64::from(count) * (1.0 - self.test)) as u32;
            train.extend(cut(begun..kept, self.length as usize));
            test.extend(cut(kept..begun + count, self.length as usize));
            begun += count;
        }
        if train.is_empty() {
            let why = format!(
                "leaves client {} no text to train on; lower it, or raise `least`",
                self.client
            );
            return Err(Error::config("test", why));
        }
        // Speeches are joined by line ends, which a text of one line lacks.
        let names = if names.iter().any(|name| name == "\n") {
            names
        } else {
            std::iter::once("\n".to_owned()).chain(names).collect()
        };
        let tokens = vocabulary.tokens(&names, own.as_bytes(), &path)?;
        let cut = train.len() as u32;
        let all = cut + test.len() as u32;
        train.extend(test);
        let set = Dataset::of_text(Features::Text { tokens, pieces: train }, self.length as usize)?;
        let set = Arc::new(set.with_class_names(names)?);
        Ok(ClientData {
            train: Examples::new(set.clone(), (0..cut).collect::<Vec<_>>())?.at_most(self.limit),
            test: Examples::new(set, (cut..all).collect::<Vec<_>>())?.at_most(self.test_limit),
        })
    }

    fn check(&self) -> Result<(), Error> {
        check_client(self.client, self.clients)?;
        if self.roles == 0 {
            return Err(Error::config("roles", "is 0, but must be at least 1"));
        }
        if self.least < FEWEST {
            let why = format!("is {}, but must be at least {FEWEST}", self.least);
            return Err(Error::config("least", why));
        }
        check_limit(self.limit)?;
        check_length(self.length)?;
        check_share(Some(self.test), None)
    }

    fn keys(&mut self) -> Keys<'_> {
        Keys {
            client: Some(&mut self.client),
            clients: Some(&mut self.clients),
            paths: vec![&mut self.dir],
            ..Keys::default()
        }
    }
}

fn text_file(dir: &Path) -> Result<DataFile, Error> {
    let hint = "give the folder that holds `input.txt` or `plays.txt`, and `speeches.tsv`";
    let first = DataFile::open(&dir.join(TEXTS[0]), hint);
    match first {
        Err(Error::Missing { .. }) => DataFile::open(&dir.join(TEXTS[1]), hint),
        found => found,
    }
}

/// What to do about a range that does not suit the text.
const FETCH: &str = "fetch the text and its speeches together";

/// Where the speeches of each role are in `text`, in its order.
///
/// # Errors
/// `Malformed`, naming the line, if a speech is not within the text, or begins before the one above it ends.
fn speeches(dir: &Path, text: &str) -> Result<BTreeMap<String, Vec<Range<usize>>>, Error> {
    let path = dir.join(SPEECHES);
    let mut file = CsvFile::open(
        &path,
        b'\t',
        "it has the columns `start`, `end` and `role` or `role_id`",
    )?;
    let [start, end] = [file.column("start")?, file.column("end")?];
    let role = file.column("role_id").or_else(|_| file.column("role"))?;
    let mut roles: BTreeMap<String, Vec<Range<usize>>> = BTreeMap::new();
    let mut last = 0;
    let faults = file.each_row(|row, _| {
        let range = row.integer::<usize>(start)?..row.integer::<usize>(end)?;
        if range.start < last {
            let what = format!(
                "begins at {}, before {last}, where the speech above it ends",
                range.start
            );
            return Err(row.wrong(what, FETCH));
        }
        if text.get(range.clone()).is_none() {
            let why = format!(
                "`start` {} and `end` {} are not in the text of {} bytes",
                range.start,
                range.end,
                text.len()
            );
            return Err(row.wrong(why, FETCH));
        }
        if row.text(role).is_empty() {
            return Err(row.wrong("the role is empty", "name it"));
        }
        last = range.end;
        roles.entry(row.text(role).to_owned()).or_default().push(range);
        Ok(())
    })?;
    faults.into_result(&path)?;
    Ok(roles)
}

/// The speeches of the client's roles. Roles are ranked by their bytes, the largest first, and equal ones by name.
fn chosen<'a>(
    roles: &Roles,
    speeches: &'a BTreeMap<String, Vec<Range<usize>>>,
) -> Result<Vec<&'a [Range<usize>]>, Error> {
    let mut ranked: Vec<(usize, &[Range<usize>])> = speeches
        .values()
        .map(|ranges| (ranges.iter().map(ExactSizeIterator::len).sum(), ranges.as_slice()))
        .filter(|(bytes, _)| *bytes >= roles.least as usize)
        .collect();
    // Stable: equal ones keep the order of their names.
    ranked.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let wanted = u64::from(roles.clients) * u64::from(roles.roles);
    if wanted > ranked.len() as u64 {
        let why = format!(
            "is {} with {} role(s) each, but {} roles have at least `least` = {} bytes; lower one of them",
            roles.clients,
            roles.roles,
            ranked.len(),
            roles.least
        );
        return Err(Error::config("clients", why));
    }
    let mine = ranked
        .iter()
        .skip(roles.client as usize)
        .step_by(roles.clients as usize);
    Ok(mine.take(roles.roles as usize).map(|(_, ranges)| *ranges).collect())
}

#[cfg(test)]
mod tests;
