//! The folder of a sweep: one file for each finished trial, and what the sweep may not mix with other sweeps.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use fl_compress::Digest;
use serde::{Deserialize, Serialize};

use super::file::Sweep;
use super::trial::{Record, Trial};
use crate::wrong::wrong;

/// First word of a trial's file; the version follows.
const MAGIC: &str = "fl-sim-trial";
const VERSION: &str = "1";
/// What a folder has before its `sweep.json`.
const OWN: [&str; 5] = ["lock", "trials", "sweep.toml", "sweep.toml.part", "sweep.json.part"];
/// A result of 100,000 rounds takes about 40 MB.
const MAX_RECORD: u64 = 256 << 20;
const MAX_OWNER: u64 = 16 << 20;

/// The folder, used by this process alone until it is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: PathBuf,
    _lock: File,
}

/// `sweep.json`: whose folder it is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Owner {
    format: u32,
    choose: Vec<u64>,
    report: Vec<u64>,
    /// Digests of the keys of the file that must stay as they are.
    fixed: BTreeMap<String, String>,
}

impl Folder {
    /// Opens the folder of `sweep`, or makes it. `text`: the file of the sweep, of which a copy is kept.
    ///
    /// # Errors
    /// `Config` if the folder belongs to another sweep, to no sweep, or is in use.
    pub(crate) fn open(dir: &Path, sweep: &Sweep, text: &str) -> anyhow::Result<Self> {
        let owner = Owner::of(sweep);
        let path = dir.join("sweep.json");
        // A sweep that was killed before its first trial may have left the first of its own files.
        let has_others = fs::read_dir(dir).map(|mut entries| {
            entries.any(|entry| !entry.is_ok_and(|entry| OWN.iter().any(|own| entry.file_name() == *own)))
        });
        match has_others {
            Ok(true) if !path.is_file() => {
                let why = "is not empty and holds no sweep; choose another folder with `--keep`";
                return Err(wrong(dir.display(), why).into());
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(dir.join("trials")).with_context(|| format!("make {}", dir.display()))?
            }
            Err(error) => return Err(wrong(dir.display(), error).into()),
        }
        let lock = File::create(dir.join("lock")).with_context(|| format!("make a lock in {}", dir.display()))?;
        if lock.try_lock().is_err() {
            return Err(wrong(dir.display(), "another sweep is at work in this folder").into());
        }
        if path.is_file() {
            let read = read_bounded(&path, MAX_OWNER)?;
            let before: Owner = serde_json::from_slice(&read).with_context(|| path.display().to_string())?;
            let follows = owner.follows(&before);
            follows.map_err(|why| wrong(dir.display(), format_args!("{why:#}")))?;
        }
        fs::create_dir_all(dir.join("trials")).with_context(|| format!("make {}", dir.display()))?;
        let folder = Self {
            dir: dir.to_owned(),
            _lock: lock,
        };
        folder.clean()?;
        folder.write("sweep.toml", text.as_bytes())?;
        folder.write("sweep.json", &serde_json::to_vec_pretty(&owner)?)?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// Where a trial at work has its federation.
    pub(super) fn workplace(&self, trial: &Trial) -> PathBuf {
        self.dir.join("work").join(name(trial))
    }

    /// Deletes what trials have left in a folder of a sweep, unless another sweep is at work there.
    pub(super) fn clean_up(dir: &Path) {
        let lock = File::options().write(true).open(dir.join("lock"));
        let is_free = lock.as_ref().is_ok_and(|lock| lock.try_lock().is_ok());
        if is_free && dir.join("sweep.json").is_file() {
            let _ = fs::remove_dir_all(dir.join("work"));
        }
    }

    /// Deletes the federations of trials that did not finish.
    fn clean(&self) -> anyhow::Result<()> {
        let work = self.dir.join("work");
        match fs::remove_dir_all(&work) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("delete {}", work.display()))
            }
            _ => Ok(()),
        }
    }

    /// The result of `trial`, if it has finished.
    pub(super) fn find(&self, trial: &Trial) -> anyhow::Result<Option<Record>> {
        let path = self.dir.join("trials").join(name(trial));
        if !path.exists() {
            return Ok(None);
        }
        let read = read_bounded(&path, MAX_RECORD).and_then(|bytes| decode(&bytes, trial));
        read.map(Some)
            .with_context(|| format!("{}: delete the file to run its trial again", path.display()))
    }

    /// Keeps the result of `trial`; it is on disk when this returns.
    pub(super) fn keep(&self, trial: &Trial, record: &Record) -> anyhow::Result<()> {
        self.write(&format!("trials/{}", name(trial)), &encode(record)?)
    }

    /// Writes a file of the folder: to a temporary name, synced, then renamed.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        fl_client::weights::replace(&self.dir.join(name), bytes)
    }
}

impl Owner {
    fn of(sweep: &Sweep) -> Self {
        let fixed = sweep.fixed.iter();
        let fixed = fixed.map(|(key, value)| ((*key).to_owned(), Digest::of(value.as_bytes()).to_string()));
        Self {
            format: 1,
            choose: sweep.choose.clone(),
            report: sweep.report.clone(),
            fixed: fixed.collect(),
        }
    }

    /// Whether this sweep may go on in the folder of `before`: variants, grids and seeds may be added.
    fn follows(&self, before: &Self) -> anyhow::Result<()> {
        ensure!(
            before.format == self.format,
            "the folder has format {}, not {}",
            before.format,
            self.format
        );
        for (key, digest) in &self.fixed {
            ensure!(
                before.fixed.get(key) == Some(digest),
                "the folder belongs to another sweep: `{key}` differs; choose another folder with `--keep`"
            );
        }
        for (then, seeds, now, others) in [
            ("choose", &before.choose, "report", &self.report),
            ("report", &before.report, "choose", &self.choose),
        ] {
            if let Some(seed) = seeds.iter().find(|seed| others.contains(seed)) {
                bail!(
                    "seed {seed} of `{now}` was in `{then}` when the folder was made; take a seed that is in neither"
                );
            }
        }
        Ok(())
    }
}

fn name(trial: &Trial) -> String {
    trial.key.to_string()[..32].to_owned()
}

/// A line `MAGIC VERSION DIGEST`, and the result as JSON, of which it is the digest.
fn encode(record: &Record) -> anyhow::Result<Vec<u8>> {
    let json = serde_json::to_vec(record)?;
    let mut bytes = format!("{MAGIC} {VERSION} {}\n", Digest::of(&json)).into_bytes();
    bytes.extend(json);
    Ok(bytes)
}

fn decode(bytes: &[u8], trial: &Trial) -> anyhow::Result<Record> {
    let end = bytes.iter().take(200).position(|&byte| byte == b'\n');
    let (head, json) = bytes.split_at(end.context("not a trial's file: no first line")?);
    let head = std::str::from_utf8(head).context("not a trial's file: its first line is no text")?;
    let json = &json[1..];
    let words: Vec<&str> = head.split(' ').collect();
    match words.as_slice() {
        [MAGIC, VERSION, digest] => ensure!(*digest == Digest::of(json).to_string(), "bad checksum"),
        [MAGIC, version, _] => bail!("version {version}, but this program reads version {VERSION}"),
        _ => bail!("not a trial's file: bad magic"),
    }
    let record: Record = serde_json::from_slice(json)?;
    ensure!(
        (record.phase, record.seed, &record.variant) == (trial.phase, trial.seed, &trial.variant),
        "holds the result of another trial"
    );
    Ok(record)
}

fn read_bounded(path: &Path, max: u64) -> anyhow::Result<Vec<u8>> {
    let len = fs::metadata(path).with_context(|| path.display().to_string())?.len();
    ensure!(len <= max, "{}: has {len} bytes, more than {max}", path.display());
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::{FILE, read};
    use super::super::phase::Phase;
    use super::super::summary::tests::record;
    use super::*;

    const GOLDEN: &str = concat!(
        "fl-sim-trial 1 96c7328414fa34258978517bb1d487c81154d0b559c35774bb6b057237c4f8ae\n",
        "{\"phase\":\"report\",\"variant\":\"fp32\",\"settings\":[[\"run.rounds\",\"1\"]],\"seed\":11,\"build\":\"\",",
        "\"score\":{\"parameters\":10,\"clients\":2,\"rounds\":[{\"round\":1,\"updates\":2,\"accuracy\":0.5,",
        "\"perplexity\":null,\"test_loss\":1.0,\"train_loss\":1.0,\"up\":10,\"down\":10,\"frames_up\":5,",
        "\"frames_down\":5,\"seconds\":0.5,\"metrics\":{\"train/x\":null}}],\"server_socket\":[15,15],",
        "\"client_socket\":[15,15],\"ledger\":[15,15],\"model\":\"\"}}",
    );

    fn open(dir: &Path, text: &str) -> anyhow::Result<Folder> {
        Folder::open(dir, &read(text).unwrap(), text)
    }

    fn trial() -> Trial {
        Trial::new(&read(FILE).unwrap(), Phase::Report, "fp32", 0, 11).unwrap()
    }

    #[test]
    fn a_result_is_found_again_to_the_bit() {
        let dir = tempfile::tempdir().unwrap();
        let folder = open(dir.path(), FILE).unwrap();
        assert_eq!(folder.find(&trial()).unwrap(), None);
        let mut result = record("fp32", 11, &[0.1 + 0.2, 1.0 / 3.0], 10);
        result.score.rounds[1].train_loss = f64::INFINITY;
        folder.keep(&trial(), &result).unwrap();
        let found = folder.find(&trial()).unwrap().unwrap();
        assert!(found.score.rounds[1].train_loss.is_nan(), "what is not finite is null");
        assert_eq!(found.score.rounds[0], result.score.rounds[0]);
        drop(folder);
        assert!(open(dir.path(), FILE).unwrap().find(&trial()).unwrap().is_some());
    }

    /// Version 1 is read for ever: a change of this text needs a new version.
    #[test]
    fn a_result_is_written_as_version_1() {
        let mut result = record("fp32", 11, &[0.5], 10);
        result.settings = vec![("run.rounds".into(), "1".into())];
        result.score.rounds[0].metrics.insert("train/x".into(), f64::NAN);
        let text = String::from_utf8(encode(&result).unwrap()).unwrap();
        assert_eq!(text, GOLDEN);
        let read = decode(GOLDEN.as_bytes(), &trial()).unwrap();
        assert_eq!(encode(&read).unwrap(), GOLDEN.as_bytes());
    }

    #[test]
    fn a_folder_without_its_first_file_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), FILE).unwrap());
        fs::remove_file(dir.path().join("sweep.json")).unwrap();
        assert!(open(dir.path(), FILE).is_ok());
    }

    #[test]
    fn a_damaged_result_is_refused_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder = open(dir.path(), FILE).unwrap();
        let bytes = encode(&record("fp32", 11, &[0.5], 10)).unwrap();
        let path = dir.path().join("trials").join(name(&trial()));
        let fails = |bytes: &[u8], want: &str| {
            fs::write(&path, bytes).unwrap();
            let error = format!("{:#}", folder.find(&trial()).unwrap_err());
            assert!(error.contains(want) && error.contains("delete the file"), "{error}");
        };
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            fails(&flipped, "");
            fails(&bytes[..at], "");
        }
        fails(&[bytes.clone(), b" ".to_vec()].concat(), "bad checksum");
        fails(b"fl-sim-trial 2 0\n{}", "version 2");
        fails(b"something else\n{}", "bad magic");
        fails(&encode(&record("fp32", 12, &[0.5], 10)).unwrap(), "another trial");
    }

    #[test]
    fn the_folder_of_another_sweep_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), FILE).unwrap());
        for (from, to, want) in [
            ("clients = 2", "clients = 3", "`workload` differs"),
            ("rounds = 3", "rounds = 4", "`run` differs"),
            ("baseline", "validation = 0.2\nbaseline", "`validation` differs"),
            ("[11, 12, 13]", "[11, 2]", ""),
        ] {
            let changed = FILE
                .replace(from, to)
                .replace("[1, 2]", if want.is_empty() { "[1]" } else { "[1, 2]" });
            let error = open(dir.path(), &changed).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
        let moved = FILE.replace("[11, 12, 13]", "[11, 2]").replace("[1, 2]", "[1]");
        let error = open(dir.path(), &moved).unwrap_err().to_string();
        assert!(error.contains("seed 2 of `report` was in `choose`"), "{error}");
        let longer = FILE
            .replace("[11, 12, 13]", "[11, 12, 13, 14]")
            .replace("\"1 bits\"", "\"2 bits\"");
        assert!(open(dir.path(), &longer).is_ok(), "seeds and points may be added");
    }

    #[test]
    fn a_folder_with_other_files_or_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "").unwrap();
        let error = open(dir.path(), FILE).unwrap_err().to_string();
        assert!(error.contains("is not empty and holds no sweep"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let first = open(&dir.path().join("new"), FILE).unwrap();
        let error = open(&dir.path().join("new"), FILE).unwrap_err().to_string();
        assert!(error.contains("another sweep is at work"), "{error}");
        drop(first);
        assert!(open(&dir.path().join("new"), FILE).is_ok());
    }

    #[test]
    fn federations_of_a_killed_sweep_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let folder = open(dir.path(), FILE).unwrap();
        let left = folder.workplace(&trial());
        fs::create_dir_all(left.join("server")).unwrap();
        drop(folder);
        open(dir.path(), FILE).unwrap();
        assert!(!left.exists());
    }

    #[test]
    fn a_sweep_that_is_refused_deletes_nothing_of_the_one_at_work() {
        let dir = tempfile::tempdir().unwrap();
        let folder = open(dir.path(), FILE).unwrap();
        let left = folder.workplace(&trial());
        fs::create_dir_all(&left).unwrap();
        assert!(open(dir.path(), FILE).is_err());
        Folder::clean_up(dir.path());
        assert!(left.exists());
        drop(folder);
        Folder::clean_up(dir.path());
        assert!(!left.exists());
    }
}
