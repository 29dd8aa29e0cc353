//! The `[data]` table of a client's configuration.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::shared::shared;
use super::{ClientData, Dataset, Error, Examples, Hand, Split, draw, read_cifar10, read_hapt};
use super::{read_hapt_windows, read_idx_pair, share, slice};

/// Most examples the built-in set draws for one client.
const MAX_DRAWN: u32 = 1_000_000;

/// Where a client's examples come from. Checked when it is read: a `DataSource` out of a file is in range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", try_from = "Raw")]
pub enum DataSource {
    /// Handwriting-like digits drawn by the program, every client in its own hand.
    Builtin(Builtin),
    /// Images and labels in idx files, under the names that MNIST and Fashion-MNIST have.
    Idx(Shard),
    /// CIFAR-10's binary files.
    Cifar10(Shard),
    /// One person of the HAPT recordings.
    Hapt(Hapt),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Raw {
    Builtin(Builtin),
    Idx(Shard),
    Cifar10(Shard),
    Hapt(Hapt),
}

/// The built-in set of one client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Builtin {
    /// Seed of the whole federation.
    pub seed: u64,
    /// Whose hand; any number.
    pub client: u32,
    /// Examples to train on, 1 to 1,000,000.
    pub train: u32,
    /// Examples held out, at most 1,000,000.
    pub test: u32,
}

impl Default for Builtin {
    fn default() -> Self {
        Self {
            seed: 42,
            client: 0,
            train: 600,
            test: 100,
        }
    }
}

/// One client's share of a set that is the same file for all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// Folder of the files.
    pub dir: PathBuf,
    /// Which client this is, from 0.
    #[serde(default)]
    pub client: u32,
    /// Number of clients that share the set.
    #[serde(default = "one")]
    pub clients: u32,
    /// Who gets what.
    #[serde(default)]
    pub split: Split,
    /// Seed of the split, the same for all clients.
    #[serde(default = "seed")]
    pub seed: u64,
    /// Take at most this many of the client's training examples.
    #[serde(default)]
    pub limit: Option<u32>,
    /// Take at most this many of its held-out examples.
    #[serde(default)]
    pub test_limit: Option<u32>,
    /// CIFAR-10 only: train on batches 1 to 4 and evaluate on batch 5, in place of the test batch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold_out_batch_5: bool,
}

/// One person of HAPT. Of each activity the last fifth of the person's windows is held out: activities come in blocks,
/// so the last fifth of all windows would hold activities that were hardly trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hapt {
    /// Folder of the files.
    pub dir: PathBuf,
    /// The person, 1 to 30.
    pub user: u8,
    /// Take at most this many of the person's training windows.
    #[serde(default)]
    pub limit: Option<u32>,
}

fn one() -> u32 {
    1
}

fn seed() -> u64 {
    42
}

impl TryFrom<Raw> for DataSource {
    type Error = Error;

    fn try_from(raw: Raw) -> Result<Self, Error> {
        let source = match raw {
            Raw::Builtin(builtin) => Self::Builtin(builtin),
            Raw::Idx(shard) => Self::Idx(shard),
            Raw::Cifar10(shard) => Self::Cifar10(shard),
            Raw::Hapt(hapt) => Self::Hapt(hapt),
        };
        source.check()?;
        Ok(source)
    }
}

impl DataSource {
    /// Makes a relative folder relative to `base`, where the configuration file lies.
    pub fn relative_to(&mut self, base: &Path) {
        match self {
            Self::Builtin(_) => {}
            Self::Idx(shard) | Self::Cifar10(shard) => shard.dir = base.join(&shard.dir),
            Self::Hapt(hapt) => hapt.dir = base.join(&hapt.dir),
        }
    }

    /// Reads or draws this client's examples. Clients of one process share one copy of a file's set.
    ///
    /// # Errors
    /// `Config` if a number is out of range, otherwise those of the reader.
    pub fn load(&self) -> Result<ClientData, Error> {
        self.check()?;
        match self {
            Self::Builtin(builtin) => builtin.load(),
            Self::Idx(shard) => shard.load("idx", idx_train, idx_test),
            Self::Cifar10(shard) if shard.hold_out_batch_5 => {
                shard.load("cifar10 without batch 5", cifar_first_four, cifar_fifth)
            }
            Self::Cifar10(shard) => shard.load("cifar10", cifar_train, cifar_test),
            Self::Hapt(hapt) => hapt.load(),
        }
    }

    fn check(&self) -> Result<(), Error> {
        match self {
            Self::Builtin(b) if !(1..=MAX_DRAWN).contains(&b.train) || b.test > MAX_DRAWN => Err(Error::config(
                "train",
                format!("must be 1 to {MAX_DRAWN}, and `test` at most that"),
            )),
            Self::Idx(s) | Self::Cifar10(s) if s.client >= s.clients => Err(Error::config(
                "client",
                format!("is {}, but must be below `clients` = {}", s.client, s.clients),
            )),
            Self::Idx(s) if s.hold_out_batch_5 => Err(Error::config("hold_out_batch_5", "is for CIFAR-10 only")),
            Self::Idx(s) | Self::Cifar10(s) if s.limit == Some(0) => Err(Error::config("limit", "must be at least 1")),
            Self::Idx(s) | Self::Cifar10(s) => s.split.check(),
            Self::Hapt(h) if !(1..=30).contains(&h.user) => {
                Err(Error::config("user", format!("is {}, but must be 1 to 30", h.user)))
            }
            Self::Hapt(h) if h.limit == Some(0) => Err(Error::config("limit", "must be at least 1")),
            Self::Builtin(_) | Self::Hapt(_) => Ok(()),
        }
    }
}

impl Builtin {
    fn load(&self) -> Result<ClientData, Error> {
        let hand = Hand::new(self.seed, self.client);
        let (train, test) = (self.train as usize, self.test as usize);
        let set = Arc::new(draw(&hand, train + test)?);
        let part = |from: usize, to: usize| Examples::new(set.clone(), (from as u32..to as u32).collect::<Vec<_>>());
        Ok(ClientData {
            train: part(0, train)?,
            test: part(train, train + test)?,
        })
    }
}

impl Shard {
    fn load(
        &self,
        kind: &str,
        train: fn(&Path) -> Result<Dataset, Error>,
        test: fn(&Path) -> Result<Dataset, Error>,
    ) -> Result<ClientData, Error> {
        let key = |part: &str| format!("{kind} {part} {}", self.dir.display());
        let train = shared(key("train"), || train(&self.dir))?;
        let test = shared(key("test"), || test(&self.dir))?;
        let mine = share(train.labels(), self.split, self.client, self.clients, self.seed)?;
        let held: Vec<u32> = slice(test.len(), self.client, self.clients).map(|i| i as u32).collect();
        let limit = |limit: Option<u32>| limit.map_or(usize::MAX, |limit| limit as usize);
        Ok(ClientData {
            train: Examples::new(train, mine)?.take(limit(self.limit)),
            test: Examples::new(test, held)?.take(limit(self.test_limit)),
        })
    }
}

impl Hapt {
    fn load(&self) -> Result<ClientData, Error> {
        let windows = read_hapt_windows(&self.dir)?;
        let (mut train, mut test) = (Vec::new(), Vec::new());
        for activity in 0..12 {
            let is_one = |&i: &u32| (windows.users[i as usize], windows.labels[i as usize]) == (self.user, activity);
            let own: Vec<u32> = (0..windows.users.len() as u32).filter(is_one).collect();
            let (first, last) = own.split_at(own.len() - own.len() / 5);
            train.extend_from_slice(first);
            test.extend_from_slice(last);
        }
        if train.is_empty() {
            return Err(Error::config(
                "user",
                format!("is {}, of whom there are no windows", self.user),
            ));
        }
        let set = shared(format!("hapt {}", self.dir.display()), || read_hapt(&self.dir, windows))?;
        let limit = self.limit.map_or(usize::MAX, |limit| limit as usize);
        Ok(ClientData {
            train: Examples::new(set.clone(), train)?.take(limit),
            test: Examples::new(set, test)?,
        })
    }
}

fn idx_train(dir: &Path) -> Result<Dataset, Error> {
    read_idx_pair(
        &dir.join("train-images-idx3-ubyte"),
        &dir.join("train-labels-idx1-ubyte"),
        10,
    )
}

fn idx_test(dir: &Path) -> Result<Dataset, Error> {
    read_idx_pair(
        &dir.join("t10k-images-idx3-ubyte"),
        &dir.join("t10k-labels-idx1-ubyte"),
        10,
    )
}

fn cifar_train(dir: &Path) -> Result<Dataset, Error> {
    cifar_batches(dir, 1..=5)
}

fn cifar_first_four(dir: &Path) -> Result<Dataset, Error> {
    cifar_batches(dir, 1..=4)
}

fn cifar_fifth(dir: &Path) -> Result<Dataset, Error> {
    cifar_batches(dir, 5..=5)
}

fn cifar_batches(dir: &Path, numbers: RangeInclusive<u32>) -> Result<Dataset, Error> {
    let files: Vec<PathBuf> = numbers.map(|n| dir.join(format!("data_batch_{n}.bin"))).collect();
    read_cifar10(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>())
}

/// The official test batch, or the first thousand of it where only these are there.
fn cifar_test(dir: &Path) -> Result<Dataset, Error> {
    match read_cifar10(&[&dir.join("test_batch.bin")]) {
        Err(Error::Missing { .. }) => read_cifar10(&[&dir.join("test_batch_first1000.bin")]),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Client {
        data: DataSource,
    }

    fn parse(text: &str) -> Result<DataSource, String> {
        toml::from_str::<Client>(text)
            .map(|client| client.data)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_source_is_read_from_toml() {
        assert_eq!(
            parse("[data]\nbuiltin = {}").unwrap(),
            DataSource::Builtin(Builtin::default())
        );
        let text = "[data.idx]\ndir = 'fashion'\nclient = 3\nclients = 10\nsplit = { dirichlet = 0.5 }\nlimit = 60";
        let DataSource::Idx(shard) = parse(text).unwrap() else {
            panic!("idx")
        };
        assert_eq!((shard.client, shard.split, shard.seed), (3, Split::Dirichlet(0.5), 42));
        assert!(parse("[data.cifar10]\ndir = 'c'\nsplit = 'iid'").is_ok());
        assert!(parse("[data.cifar10]\ndir = 'c'\nclients = 5\nsplit = { by-label = 2 }").is_ok());
        let mut hapt = parse("[data.hapt]\ndir = 'h'\nuser = 30").unwrap();
        hapt.relative_to(Path::new("/base"));
        let DataSource::Hapt(hapt) = hapt else { panic!("hapt") };
        assert_eq!(hapt.dir, Path::new("/base/h"));
    }

    #[test]
    fn unknown_keys_and_numbers_out_of_range_are_refused() {
        for (text, part) in [
            ("[data.idx]\ndir = 'x'\nclinet = 3", "clinet"),
            ("[data.mnist]\ndir = 'x'", "mnist"),
            ("[data.idx]\ndir = 'x'\nclient = 3\nclients = 3", "client"),
            ("[data.idx]\ndir = 'x'\nsplit = { dirichlet = -1.0 }", "dirichlet"),
            ("[data.idx]\ndir = 'x'\nlimit = 0", "limit"),
            ("[data.hapt]\ndir = 'x'\nuser = 31", "user"),
            ("[data.idx]\ndir = 'x'\nhold_out_batch_5 = true", "hold_out_batch_5"),
            ("[data.builtin]\ntrain = 0", "train"),
            ("[data.idx]\nclient = 0", "dir"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn train_and_test_of_the_built_in_set_differ() {
        let data = DataSource::Builtin(Builtin {
            train: 30,
            test: 10,
            ..Builtin::default()
        })
        .load()
        .unwrap();
        assert_eq!((data.train.len(), data.test.len()), (30, 10));
        assert!(data.train.indices().iter().all(|i| !data.test.indices().contains(i)));
    }

    #[test]
    fn a_missing_folder_says_what_to_do() {
        let shard = parse("[data.idx]\ndir = '/nowhere/at/all'").unwrap();
        let error = shard.load().unwrap_err().to_string();
        assert!(
            error.contains("/nowhere/at/all/train-images-idx3-ubyte") && error.contains("data get"),
            "{error}"
        );
    }

    /// A folder of `../shared/data` beside the workspace, if this machine has it.
    fn real(name: &str) -> Option<PathBuf> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../shared/data")
            .join(name);
        if !dir.is_dir() {
            eprintln!("skipped: {} is not on this machine", dir.display());
            return None;
        }
        Some(dir)
    }

    fn toml_of(kind: &str, dir: &Path, rest: &str) -> DataSource {
        parse(&format!("[data.{kind}]\ndir = '{}'\n{rest}", dir.display())).unwrap()
    }

    #[test]
    fn fashion_mnist_is_shared_whole_and_held_once() {
        let Some(dir) = real("fashion-mnist") else { return };
        let load = |client| {
            let rest = format!("client = {client}\nclients = 10\nsplit = {{ dirichlet = 0.5 }}");
            toml_of("idx", &dir, &rest).load().unwrap()
        };
        let all: Vec<ClientData> = (0..10).map(load).collect();
        assert_eq!(all.iter().map(|data| data.train.len()).sum::<usize>(), 60_000);
        assert_eq!(all.iter().map(|data| data.test.len()).sum::<usize>(), 10_000);
        let mut counts = vec![0; 10];
        for data in &all {
            counts
                .iter_mut()
                .zip(data.train.class_counts())
                .for_each(|(sum, count)| *sum += count);
        }
        assert_eq!(counts, [6000; 10]);
    }

    #[test]
    fn every_person_of_hapt_has_windows_to_train_and_to_test_on() {
        let Some(dir) = real("hapt") else { return };
        let mut held = Vec::new();
        for user in 1..=30 {
            let data = toml_of("hapt", &dir, &format!("user = {user}")).load().unwrap();
            assert!(data.train.len() > 200 && data.test.len() > 40);
            held.push(data);
        }
        assert_eq!(held.iter().map(|d| d.train.len() + d.test.len()).sum::<usize>(), 10_929);
        let (mut values, mut labels) = (Vec::new(), Vec::new());
        held[0].train.batch(&[0], &mut values, &mut labels);
        let mean = |channel: usize| values[channel * 128..(channel + 1) * 128].iter().sum::<f32>() / 128.0;
        let gravity = (0..3).map(|channel| mean(channel).powi(2)).sum::<f32>().sqrt();
        assert!((0.8..1.2).contains(&gravity), "{gravity}");
    }

    #[test]
    fn cifar_10_is_read_through_its_delta_filters() {
        let Some(dir) = real("cifar10") else { return };
        let set = read_cifar10(&[&dir.join("test_batch_first1000.bin")]).unwrap();
        let mut counts = [0; 10];
        set.labels().iter().for_each(|&label| counts[usize::from(label)] += 1);
        assert_eq!(set.len(), 1000);
        assert!(counts.iter().all(|count| (86..=112).contains(count)), "{counts:?}");
    }
}
