//! The data sets by name: the `data` table of a client's configuration.

use std::fmt;
use std::path::Path;

use fl_proto::caught;
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};

use super::array::Arrays;
use super::builtin::Builtin;
use super::cifar::Cifar10;
use super::cmapss::Cmapss;
use super::csv::Csv;
use super::error::Error;
use super::examples::ClientData;
use super::hapt::Hapt;
use super::idx::Idx;
use super::images::Images;
use super::roles::Roles;
use super::set::DataSet;
use super::text::Text;

/// A kind of data set.
#[derive(Debug, Clone)]
pub struct DataSetInfo {
    /// The name that configurations use.
    pub name: &'static str,
    read: fn(Value) -> Result<Box<dyn AnySet>, String>,
}

impl DataSetInfo {
    /// Data sets of type `T`, called `name`.
    pub const fn of<T: DataSet + Clone + DeserializeOwned + 'static>(name: &'static str) -> Self {
        Self { name, read: read::<T> }
    }
}

pub(crate) static DATA_SETS: &[DataSetInfo] = &[
    DataSetInfo::of::<Builtin>("builtin"),
    DataSetInfo::of::<Idx>("idx"),
    DataSetInfo::of::<Cifar10>("cifar10"),
    DataSetInfo::of::<Hapt>("hapt"),
    DataSetInfo::of::<Arrays>("arrays"),
    DataSetInfo::of::<Csv>("csv"),
    DataSetInfo::of::<Images>("images"),
    DataSetInfo::of::<Text>("text"),
    DataSetInfo::of::<Roles>("roles"),
    DataSetInfo::of::<Cmapss>("cmapss"),
];

fn read<T: DataSet + Clone + DeserializeOwned + 'static>(keys: Value) -> Result<Box<dyn AnySet>, String> {
    let set: T = keys
        .try_into()
        .map_err(|error: toml::de::Error| error.message().to_owned())?;
    set.check().map_err(|error| error.to_string())?;
    Ok(Box::new(set))
}

/// A data set behind a pointer, which can be copied.
trait AnySet: DataSet {
    fn copy(&self) -> Box<dyn AnySet>;
}

impl<T: DataSet + Clone + 'static> AnySet for T {
    fn copy(&self) -> Box<dyn AnySet> {
        Box::new(self.clone())
    }
}

/// Where a client's examples come from: a data set by its name, with its keys, `{ csv = { file = "a.csv", label = "b" } }`. Every key
/// is in range.
pub struct DataSource {
    name: &'static str,
    /// The keys as they were given.
    given: Value,
    set: Box<dyn AnySet>,
}

impl DataSource {
    /// The set of one of `kinds` that a `data` table names.
    ///
    /// # Errors
    /// Which set or key is wrong, and how.
    pub fn of(table: &Value, kinds: &[DataSetInfo]) -> Result<Self, String> {
        let keys = table
            .as_table()
            .filter(|table| table.len() == 1)
            .and_then(|table| table.iter().next());
        let (name, keys) =
            keys.ok_or("must be a table with one data set, such as { csv = { file = \"a.csv\", label = \"b\" } }")?;
        let mut found = kinds.iter().filter(|kind| kind.name == name);
        let kind = found.next().ok_or_else(|| {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
            format!("there is no data set `{name}`; the data sets are {}", names.join(", "))
        })?;
        if found.next().is_some() {
            return Err(format!(
                "two data sets of this program are called `{name}`; give one of them another name"
            ));
        }
        Ok(Self {
            name: kind.name,
            given: keys.clone(),
            set: (kind.read)(keys.clone()).map_err(|why| format!("`{name}`: {why}"))?,
        })
    }

    /// A set of this crate, `name`, with the keys of `set`.
    ///
    /// # Errors
    /// As [`DataSource::of`]; if a number of `set` is larger than TOML can hold.
    pub fn new(name: &str, set: &impl Serialize) -> Result<Self, Error> {
        let keys = Value::try_from(set).map_err(|error| error.to_string());
        let table = keys.map(|keys| Value::Table(Table::from_iter([(name.to_owned(), keys)])));
        let source = table.and_then(|table| Self::of(&table, DATA_SETS));
        source.map_err(|why| Error::config("data", why))
    }

    /// The set.
    pub fn set(&self) -> &dyn DataSet {
        self.set.as_ref()
    }

    /// Makes relative paths relative to `base`, where the configuration file lies.
    pub fn relative_to(&mut self, base: &Path) {
        self.set.keys().relative_to(base);
    }

    /// The part of one of `clients` clients, counted from 0.
    ///
    /// # Errors
    /// `Config` if the set cannot be shared by so many.
    pub fn of_client(&self, client: u32, clients: u32) -> Result<Self, Error> {
        let mut part = self.clone();
        part.set.of_client(client, clients)?;
        Ok(part)
    }

    /// The same set with another seed of the split, or of the drawing; unchanged if the set has no seed.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        let mut other = self.clone();
        if let Some(own) = other.set.keys().seed {
            *own = seed;
        }
        other
    }

    /// Reads or draws this client's examples. Clients of one process share one copy of a file's set.
    ///
    /// # Errors
    /// `Config` if a number is out of range, otherwise those of the reader.
    pub fn load(&self) -> Result<ClientData, Error> {
        let loaded = caught(|| self.set.check().and_then(|()| self.set.load()));
        loaded.unwrap_or_else(|why| Err(Error::config("data", format!("the data set panicked: {why}"))))
    }

    /// The set that a command line gives, such as `{ idx = { dir = "data/fashion-mnist" } }`.
    ///
    /// # Errors
    /// `Config` if it is no such set, a key is unknown, or a number is out of range.
    pub fn from_argument(text: &str) -> Result<Self, Error> {
        let source = fl_cli::task::one_table("--data", text).and_then(|table| Self::of(&table, DATA_SETS));
        source.map_err(|why| Error::config("data", why))
    }
}

impl Clone for DataSource {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            given: self.given.clone(),
            set: self.set.copy(),
        }
    }
}

impl fmt::Debug for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.name, self.set)
    }
}

/// Whether both were given alike.
impl PartialEq for DataSource {
    fn eq(&self, other: &Self) -> bool {
        (self.name, &self.given) == (other.name, &other.given)
    }
}

impl Serialize for DataSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut table = serializer.serialize_map(Some(1))?;
        table.serialize_entry(self.name, &self.given)?;
        table.end()
    }
}

impl<'de> Deserialize<'de> for DataSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = Value::deserialize(deserializer)?;
        Self::of(&table, DATA_SETS).map_err(serde::de::Error::custom)
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
        let shown = |text: &str| format!("{:?}", parse(text).unwrap());
        assert_eq!(
            shown("[data]\nbuiltin = {}"),
            format!("builtin: {:?}", Builtin::default())
        );
        let text = "[data.idx]\ndir = 'fashion'\nclient = 3\nclients = 10\nsplit = { dirichlet = 0.5 }\nlimit = 60";
        let keys = "client: 3, clients: 10, split: Dirichlet(0.5), seed: 42, limit: Some(60)";
        assert!(shown(text).contains(keys));
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
            let found = format!("{source:?}");
            assert!(
                found.contains(&format!("split: {split:?}")) && found.contains("\"/base/x\""),
                "{found}"
            );
        }
        assert!(parse("data = { arrays = { x = 'x.npy', y = 'y.npy' } }").is_ok());
        assert!(parse("data = { csv = { file = 'a.csv', label = 'b', classes = ['x', 'y'] } }").is_ok());
        assert!(parse("data = { images = { dir = 'a', resize = [32, 32] } }").is_ok());
        let text = "text = { file = 'a', test_file = 'b', vocabulary = { file = 'c' } }";
        let mut text = parse(&format!("data = {{ {text} }}")).unwrap();
        text.relative_to(Path::new("/base"));
        let found = format!("{text:?}");
        assert!(
            ["/base/a", "/base/b", "/base/c"]
                .iter()
                .all(|path| found.contains(path)),
            "{found}"
        );
    }

    #[test]
    fn a_part_has_its_client_and_a_copy_another_seed() {
        let of = |text: &str| parse(&format!("data = {text}")).unwrap();
        for (text, part, seeded) in [
            ("{ builtin = {} }", "client: 3", "seed: 7"),
            ("{ idx = { dir = 'x' } }", "client: 3, clients: 9", "seed: 7"),
            (
                "{ csv = { file = 'x', label = 'y' } }",
                "client: 3, clients: 9",
                "seed: 7",
            ),
            ("{ hapt = { dir = 'x', user = 1 } }", "user: 4", ""),
            ("{ roles = { dir = 'x' } }", "client: 3, clients: 9", ""),
            ("{ cmapss = { dir = 'x' } }", "client: 3, clients: 9", ""),
        ] {
            let found = format!("{:?}", of(text).of_client(3, 9).unwrap());
            assert!(found.contains(part), "{text}: {found}");
            let found = format!("{:?}", of(text).with_seed(7));
            assert!(found.contains(seeded), "{text}: {found}");
        }
        let error = of("{ hapt = { dir = 'x', user = 1 } }").of_client(30, 31).unwrap_err();
        assert!(error.to_string().contains("at most 30"), "{error}");
    }

    #[test]
    fn a_set_without_a_client_is_not_shared_and_is_read_with_its_own_kinds() {
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Echo {
            count: usize,
        }
        impl DataSet for Echo {
            fn load(&self) -> Result<ClientData, Error> {
                assert!(self.count < 9, "no such row");
                Err(Error::config("count", format!("is {}", self.count)))
            }
        }
        let kinds = [DataSetInfo::of::<Echo>("echo")];
        let of = |text: &str| DataSource::of(&toml::from_str::<Table>(text).unwrap().into(), &kinds);
        let echo = of("echo = { count = 7 }").unwrap();
        assert_eq!(echo.load().unwrap_err().to_string(), "`count` is 7");
        let error = of("echo = { count = 9 }").unwrap().load().unwrap_err().to_string();
        assert!(error.contains("the data set panicked: no such row"), "{error}");
        assert!(echo.of_client(0, 1).is_ok() && echo.of_client(0, 2).is_err());
        let twice = [DataSetInfo::of::<Echo>("echo"), DataSetInfo::of::<Echo>("echo")];
        let error =
            DataSource::of(&toml::from_str::<Table>("echo = { count = 7 }").unwrap().into(), &twice).unwrap_err();
        assert!(
            error.contains("two data sets of this program are called `echo`"),
            "{error}"
        );
        for (text, why) in [
            ("ehco = { count = 7 }", "no data set `ehco`; the data sets are echo"),
            ("echo = { cuont = 7 }", "`echo`: unknown field `cuont`"),
            ("", "one data set"),
            ("echo = { count = 7 }\nother = 1", "one data set"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
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
        let builtin = Builtin {
            train: 30,
            test: 10,
            ..Builtin::default()
        };
        let data = builtin.load().unwrap();
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

    /// The table in `docs/decisions/self-balancing-dirichlet.md`:
    /// `cargo test -p fl-learn --lib splits_differ -- --nocapture`.
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
