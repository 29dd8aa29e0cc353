//! The data sets by name: the `data` table of a client's configuration.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::array::{self, Arrays};
use super::builtin::{self, Builtin};
use super::cmapss::{self, Cmapss};
use super::csv::{self, Csv};
use super::error::Error;
use super::examples::ClientData;
use super::hapt::{self, Hapt};
use super::images::{self, Images};
use super::roles::{self, Roles};
use super::shard::Shard;
use super::text::{self, Text};
use super::{cifar, idx};

/// Each row is a data set: its name in a configuration, its keys, and the module that has `check`, `relative_to`,
/// `of_client`, `with_seed` and `load` for them.
macro_rules! data_sets {
    ($($(#[$doc:meta])* $name:ident($keys:ty) in $module:ident,)*) => {
        /// Where a client's examples come from. Checked when it is read: a `DataSource` out of a file is in range.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case", try_from = "Raw")]
        pub enum DataSource {
            $($(#[$doc])* $name($keys),)*
        }

        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Raw {
            $($name($keys),)*
        }

        impl TryFrom<Raw> for DataSource {
            type Error = Error;

            fn try_from(raw: Raw) -> Result<Self, Error> {
                let source = match raw {
                    $(Raw::$name(set) => Self::$name(set),)*
                };
                source.check()?;
                Ok(source)
            }
        }

        impl DataSource {
            /// Makes a relative folder relative to `base`, where the configuration file lies.
            pub fn relative_to(&mut self, base: &Path) {
                match self {
                    $(Self::$name(set) => $module::relative_to(set, base),)*
                }
            }

            /// The part of one of `clients` clients, counted from 0.
            ///
            /// # Errors
            /// `Config` if the set cannot be shared by so many.
            pub fn of_client(&self, client: u32, clients: u32) -> Result<Self, Error> {
                match self {
                    $(Self::$name(set) => $module::of_client(set, client, clients).map(Self::$name),)*
                }
            }

            /// The same set with another seed of the split, or of the drawing; unchanged if the set has no seed.
            #[must_use]
            pub fn with_seed(&self, seed: u64) -> Self {
                match self {
                    $(Self::$name(set) => Self::$name($module::with_seed(set, seed)),)*
                }
            }

            /// Reads or draws this client's examples. Clients of one process share one copy of a file's set.
            ///
            /// # Errors
            /// `Config` if a number is out of range, otherwise those of the reader.
            pub fn load(&self) -> Result<ClientData, Error> {
                self.check()?;
                match self {
                    $(Self::$name(set) => $module::load(set),)*
                }
            }

            fn check(&self) -> Result<(), Error> {
                match self {
                    $(Self::$name(set) => $module::check(set),)*
                }
            }
        }
    };
}

data_sets! {
    /// Handwriting-like digits drawn by the program; each client writes in its own style.
    Builtin(Builtin) in builtin,
    /// Images and labels in idx files, under the names that MNIST and Fashion-MNIST have.
    Idx(Shard) in idx,
    /// CIFAR-10's binary files.
    Cifar10(Shard) in cifar,
    /// One person of the HAPT recordings.
    Hapt(Hapt) in hapt,
    /// Arrays in npy or safetensors files.
    Arrays(Arrays) in array,
    /// Rows of a CSV file.
    Csv(Csv) in csv,
    /// A folder of images for each class.
    Images(Images) in images,
    /// A text file, whose tokens are predicted one after another.
    Text(Text) in text,
    /// Shakespeare: the speeches of one role.
    Roles(Roles) in roles,
    /// C-MAPSS: windows of the sensors of some engines, with their remaining lives.
    Cmapss(Cmapss) in cmapss,
}

impl DataSource {
    /// The set that a command line gives, such as `{ idx = { dir = "data/fashion-mnist" } }`.
    ///
    /// # Errors
    /// `Config` if it is no such set, a key is unknown, or a number is out of range.
    pub fn from_argument(text: &str) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Given {
            data: DataSource,
        }
        let given = toml::from_str::<Given>(&format!("data = {text}"));
        given
            .map(|given| given.data)
            .map_err(|error| Error::config("--data", error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::cifar::read_cifar10;
    use super::super::idx::read_idx;
    use super::super::split::{Split, share};
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
        for (text, split) in [
            ("{ plain-dirichlet = 1 }", Split::PlainDirichlet(1.0)),
            ("{ plain_dirichlet = 0.5 }", Split::PlainDirichlet(0.5)),
            ("{ inner-dirichlet = 0.5 }", Split::InnerDirichlet(0.5)),
            ("{ by_label = 2 }", Split::ByLabel(2)),
            ("{ file = 'who.csv' }", Split::File("/base/who.csv".into())),
        ] {
            let mut source = parse(&format!("[data.idx]\ndir = 'x'\nsplit = {text}")).unwrap();
            source.relative_to(Path::new("/base"));
            let DataSource::Idx(shard) = source else { panic!("idx") };
            assert_eq!(shard.split, split);
        }
        assert!(parse("data = { arrays = { x = 'x.npy', y = 'y.npy' } }").is_ok());
        assert!(parse("data = { csv = { file = 'a.csv', label = 'b', classes = ['x', 'y'] } }").is_ok());
        assert!(parse("data = { images = { dir = 'a', resize = [32, 32] } }").is_ok());
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
            ("[data.arrays]\nx = 'x.npy'\ny = 'y.npy'\nclinet = 3", "clinet"),
            ("[data.arrays]\nx = 'x.npy'", "`y`"),
            ("[data.csv]\nfile = 'x.csv'", "`label`"),
            (
                "[data.csv]\nfile = 'x.csv'\nlabel = 'a'\nclasses = 'a'",
                "the number of classes",
            ),
            ("[data.images]\ndir = 'x'\nresize = [0, 1]", "resize"),
            (
                "[data.idx]\ndir = 'x'\nsplit = { plain-dirichlet = 0 }",
                "plain-dirichlet",
            ),
            ("[data.idx]\ndir = 'x'\nsplit = { file = '' }", "split.file"),
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

    /// Over 4 seeds, of 10 clients: mean distance of a client's labels from those of all (total variation, 0 to 1), mean share of
    /// a client's largest class, and standard deviation of the sizes relative to their mean.
    fn skew(labels: &[u8], split: &Split) -> [f64; 3] {
        const CLIENTS: u32 = 10;
        const SEEDS: u64 = 4;
        let (mut distance, mut largest, mut spread) = (0.0, 0.0, 0.0);
        for seed in 0..SEEDS {
            let mut sizes = Vec::new();
            for client in 0..CLIENTS {
                let mine = share(labels, split, client, CLIENTS, seed).unwrap();
                let mut shares = [0.0f64; 10];
                mine.iter()
                    .for_each(|&at| shares[usize::from(labels[at as usize])] += 1.0 / mine.len() as f64);
                distance += shares.iter().map(|share| (share - 0.1).abs()).sum::<f64>() / 2.0;
                largest += shares.iter().copied().fold(0.0, f64::max);
                sizes.push(mine.len() as f64);
            }
            let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
            let variance = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / sizes.len() as f64;
            spread += variance.sqrt() / mean;
        }
        let parts = (SEEDS * u64::from(CLIENTS)) as f64;
        [distance / parts, largest / parts, spread / SEEDS as f64]
    }

    /// The table in `docs/reference/data-sets.md`: `cargo test -p fl-learn --lib splits_differ -- --nocapture`.
    #[test]
    fn splits_differ_in_labels_and_sizes_as_documented() {
        let Some(dir) = real("fashion-mnist") else { return };
        let (_, labels) = read_idx(&dir.join("train-labels-idx1-ubyte")).unwrap();
        let measured = |split: Split| {
            let found = skew(&labels, &split);
            println!("{split:?}: {found:.3?}");
            found
        };
        for alpha in [0.1, 0.5, 1.0] {
            let balancing = measured(Split::Dirichlet(alpha));
            let plain = measured(Split::PlainDirichlet(alpha));
            let inner = measured(Split::InnerDirichlet(alpha));
            assert!(
                balancing[0] > plain[0] && balancing[2] < plain[2],
                "{balancing:?} {plain:?}"
            );
            assert_eq!(inner[2], 0.0);
        }
        let shards = measured(Split::ByLabel(2));
        let iid = measured(Split::Iid);
        assert!(shards[0] > 0.7 && iid[0] < 0.02);
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
        let batch = held[0].train.batch(&[0]);
        let values = batch.values.numbers();
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
