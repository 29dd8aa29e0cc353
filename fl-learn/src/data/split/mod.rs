//! Splits a data set among the clients of a federation, as a function of a seed and the client's number.

mod assignments;
mod by_label;
mod dirichlet;
mod inner_dirichlet;
mod level;
mod members;
mod slice;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::paths::MayBePath;
use super::rng::Rng;
pub(super) use assignments::read as assigned;
pub use slice::slice;

/// How the training examples are split.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// Every client draws uniformly from all examples; of a text, every client gets one stretch.
    #[default]
    Iid,
    /// The self-balancing Dirichlet split (the code of Yurochkin et al. 2019; Li et al. 2022): each class is shared out by a draw
    /// from the Dirichlet distribution of this concentration, 0.001 to 1,000,000, among the clients that have less than their
    /// equal part of the whole set. 0.1 gives most clients few classes, 100 is close to iid.
    Dirichlet(f64),
    /// The plain Dirichlet split (Yurochkin et al. 2019): each class is shared out among all clients by a draw from the
    /// Dirichlet distribution of this concentration, 0.001 to 1,000,000. Clients differ in size.
    #[serde(alias = "plain_dirichlet")]
    PlainDirichlet(f64),
    /// Each client draws its own proportions of the classes from the Dirichlet distribution of this concentration, 0.001 to
    /// 1,000,000, and takes its equal part of the set in these proportions (Acar et al. 2021; Hsu et al. 2019 with the
    /// concentration divided by the number of classes).
    #[serde(alias = "inner_dirichlet")]
    InnerDirichlet(f64),
    /// The examples are sorted by label and cut into shards, and every client gets this many (McMahan et al. 2017).
    #[serde(alias = "by_label")]
    ByLabel(u32),
    /// The client of each example is in a CSV file with the columns `index` and `client`, both from 0.
    File(PathBuf),
}

/// Positions of the examples of `client` (from 0) of `clients`, ascending. Every position of `labels` belongs to exactly one
/// client, unless a file leaves it out.
///
/// # Errors
/// `Config` if there is no such client, fewer examples than clients, or a parameter out of range; those of reading a file.
pub fn share(labels: &[u8], split: &Split, client: u32, clients: u32, seed: u64) -> Result<Vec<u32>, Error> {
    check_share_of(labels.len(), client, clients)?;
    split.check()?;
    let mut mine = match split {
        Split::Iid => drawn(labels.len(), client, clients, seed),
        Split::Dirichlet(alpha) => {
            level::level(dirichlet::balancing(labels, *alpha, clients as usize, seed)).swap_remove(client as usize)
        }
        Split::PlainDirichlet(alpha) => {
            level::level(dirichlet::plain(labels, *alpha, clients as usize, seed)).swap_remove(client as usize)
        }
        Split::InnerDirichlet(alpha) => inner_dirichlet::split(labels, *alpha, client, clients, seed),
        Split::ByLabel(shards) => by_label::split(labels, *shards, client, clients, seed)?,
        Split::File(path) => assignments::read(path, labels.len(), client, clients)?,
    };
    mine.sort_unstable();
    Ok(mine)
}

pub(super) fn check_client(client: u32, clients: u32) -> Result<(), Error> {
    if client >= clients {
        let why = format!("is {client}, but must be below `clients` = {clients}");
        return Err(Error::config("client", why));
    }
    Ok(())
}

pub(super) fn check_share_of(len: usize, client: u32, clients: u32) -> Result<(), Error> {
    check_client(client, clients)?;
    if clients as usize > len {
        let why = format!("is {clients}, more than the {len} examples");
        return Err(Error::config("clients", why));
    }
    Ok(())
}

/// An equal part of all `len` positions, drawn by the seed.
pub(super) fn drawn(len: usize, client: u32, clients: u32, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..len as u32).collect();
    Rng::of(&[seed, 1]).shuffle(&mut order);
    order[slice(len, client, clients)].to_vec()
}

impl Split {
    pub(super) fn check(&self) -> Result<(), Error> {
        let (key, alpha) = match self {
            Self::Dirichlet(alpha) => ("split.dirichlet", *alpha),
            Self::PlainDirichlet(alpha) => ("split.plain-dirichlet", *alpha),
            Self::InnerDirichlet(alpha) => ("split.inner-dirichlet", *alpha),
            Self::ByLabel(0) => return Err(Error::config("split.by-label", "is 0, but must be at least 1")),
            Self::File(path) if path.as_os_str().is_empty() => {
                return Err(Error::config("split.file", "is empty, but must be the path of a file"));
            }
            _ => return Ok(()),
        };
        if (1e-3..=1e6).contains(&alpha) {
            return Ok(());
        }
        Err(Error::config(key, format!("is {alpha}, but must be 0.001 to 1000000")))
    }
}

impl MayBePath for Split {
    fn path(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::File(path) => Some(path),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::level::MIN_EXAMPLES;
    use super::*;

    /// Digests of the splits. The first four are older than the others.
    const GOLDEN: [&str; 6] = [
        "64d7c64e73b9eff4",
        "286d8ad36e55e09d",
        "47225fcc9be086ca",
        "4c1e27dfe4c0464f",
        "9e1f714c6b9d17ce",
        "d7f02770f1d73007",
    ];

    fn any_split() -> impl Strategy<Value = Split> {
        prop_oneof![
            Just(Split::Iid),
            (-3.0f64..3.0).prop_map(|power| Split::Dirichlet(10f64.powf(power))),
            (-3.0f64..3.0).prop_map(|power| Split::PlainDirichlet(10f64.powf(power))),
            (-3.0f64..3.0).prop_map(|power| Split::InnerDirichlet(10f64.powf(power))),
            (1u32..4).prop_map(Split::ByLabel)
        ]
    }

    proptest! {
        #[test]
        fn every_example_goes_to_exactly_one_client(
            labels in prop::collection::vec(0u8..10, 60..400), split in any_split(), clients in 1u32..15, seed: u64
        ) {
            let mut all = Vec::new();
            for client in 0..clients {
                let mine = share(&labels, &split, client, clients, seed).unwrap();
                prop_assert!(mine.len() >= MIN_EXAMPLES.min(labels.len() / clients as usize / 2), "{}", mine.len());
                prop_assert_eq!(&mine, &share(&labels, &split, client, clients, seed).unwrap());
                all.extend(mine);
            }
            all.sort_unstable();
            prop_assert_eq!(all, (0..labels.len() as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_small_alpha_concentrates_classes_and_a_large_one_spreads_them() {
        let labels: Vec<u8> = (0..10_000).map(|i| (i % 10) as u8).collect();
        let largest = |split| {
            let mine = share(&labels, &split, 3, 10, 42).unwrap();
            let count = |class| mine.iter().filter(|&&i| labels[i as usize] == class).count();
            (0..10).map(count).max().unwrap() as f64 / mine.len() as f64
        };
        assert!(largest(Split::Dirichlet(0.05)) > 0.35);
        assert!(largest(Split::Dirichlet(1000.0)) < 0.12);
        assert!(largest(Split::PlainDirichlet(0.05)) > 0.35);
        assert!(largest(Split::PlainDirichlet(1000.0)) < 0.12);
        assert!(largest(Split::InnerDirichlet(0.05)) > 0.35);
        assert!(largest(Split::InnerDirichlet(1000.0)) < 0.12);
        assert!(largest(Split::ByLabel(2)) >= 0.5);
        assert!(largest(Split::Iid) < 0.14);
    }

    /// Digest of the parts of 7 clients.
    fn digest(split: &Split) -> String {
        let labels: Vec<u8> = (0..3_000u32).map(|i| ((i * i / 7) % 10) as u8).collect();
        let mut bytes = Vec::new();
        for client in 0..7 {
            let mine = share(&labels, split, client, 7, 42).unwrap();
            bytes.extend((mine.len() as u32).to_le_bytes());
            bytes.extend(mine.iter().flat_map(|at| at.to_le_bytes()));
        }
        fl_compress::Digest::of(&bytes).to_string()[..16].to_owned()
    }

    #[test]
    fn a_split_and_a_seed_name_the_same_parts_for_ever() {
        let found = [
            Split::Iid,
            Split::Dirichlet(0.5),
            Split::Dirichlet(0.05),
            Split::ByLabel(2),
            Split::PlainDirichlet(0.5),
            Split::InnerDirichlet(0.5),
        ]
        .map(|split| digest(&split));
        assert_eq!(found, GOLDEN);
    }

    #[test]
    fn sizes_are_equal_nearly_equal_or_free() {
        let labels: Vec<u8> = (0..10_000).map(|i| (i % 10) as u8).collect();
        let spread = |split: &Split| {
            let sizes = (0..10).map(|c| share(&labels, split, c, 10, 42).unwrap().len());
            sizes.clone().max().unwrap() - sizes.min().unwrap()
        };
        assert_eq!(
            [
                spread(&Split::Iid),
                spread(&Split::InnerDirichlet(0.1)),
                spread(&Split::ByLabel(2))
            ],
            [0; 3]
        );
        assert!(spread(&Split::PlainDirichlet(0.1)) > spread(&Split::Dirichlet(0.1)));
    }

    /// Splits 20 examples of 3 clients by the file `text`.
    fn by_file(text: &str, client: u32) -> Result<Vec<u32>, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("split.csv"), text).unwrap();
        let mut split = Split::File("split.csv".into());
        if let Some(path) = split.path() {
            *path = dir.path().join(&*path);
        }
        share(&[0; 20], &split, client, 3, 1).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_gives_each_client_its_examples() {
        let rows = |client: fn(u32) -> String| -> String {
            (0..20).rev().map(|at| format!("{},x,{at}\n", client(at))).collect()
        };
        let text = format!("client,note,index\n{}", rows(|at| (at % 3).to_string()));
        let all: Vec<Vec<u32>> = (0..3).map(|client| by_file(&text, client).unwrap()).collect();
        assert_eq!(all[1], (0..20).filter(|at| at % 3 == 1).collect::<Vec<_>>());
        assert_eq!(all.concat().len(), 20);
        let some = rows(|at| if at < 5 { "2".to_owned() } else { String::new() });
        let text = format!("client,note,index\n{some}");
        assert_eq!(by_file(&text, 2).unwrap(), [0, 1, 2, 3, 4]);
        assert!(by_file(&text, 0).unwrap_err().contains("no example to client 0"));
    }

    #[test]
    fn a_file_that_is_no_split_is_refused_by_its_line() {
        let rows: String = (0..20).map(|at| format!("{at},{}\n", at % 3)).collect();
        for (text, part) in [
            ("index,clients\n0,1\n".to_owned(), "has no column `client`"),
            (
                format!("index,client\n{rows}7,1\n"),
                "line 22: index 7 occurs a second time",
            ),
            (
                format!("index,client\n{rows}20,1\n"),
                "line 22: index 20, but the set has 20",
            ),
            (
                format!("index,client\n{}", rows.replace("7,1\n8,2", "8,2")),
                "has no row for index 7",
            ),
            (
                format!("index,client\n{}", rows.replace("8,2", "8,3")),
                "line 10: client 3, but there are",
            ),
            (
                format!("index,client\n{}", rows.replace("8,2", "8,b")),
                "line 10: `client` is `b`",
            ),
            (
                format!("index,client\n{}", rows.replace("8,2", "-8,2")),
                "line 10: `index` is `-8`",
            ),
            (
                "index,client\n0,7\n1,x\n0,1\n".to_owned(),
                "3 faults\n  line 2: client 7, but there are `clients` = 3, counted from 0\n  line 3: `client` is `x`",
            ),
            (
                "index;client\n0;1\n".to_owned(),
                "has one column, which \";\" would split into 2; write the file with `,`",
            ),
            (String::new(), "is empty"),
        ] {
            let error = by_file(&text, 0).unwrap_err();
            assert!(error.contains(part) && error.contains("split.csv"), "{error}");
        }
        assert!(share(&[0; 20], &Split::File("none.csv".into()), 0, 3, 1).is_err());
        assert!(Split::File("".into()).check().is_err());
    }

    proptest! {
        #[test]
        fn any_file_gives_every_example_to_one_client_or_is_refused(text in "(index|client|[0-9]{1,2}|,|\n| |\"){0,60}") {
            let parts: Result<Vec<_>, _> = (0..3).map(|client| by_file(&text, client)).collect();
            if let Ok(parts) = parts {
                let mut all = parts.concat();
                all.sort_unstable();
                prop_assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }

    #[test]
    fn dirichlet_clients_differ_in_classes_more_than_in_numbers() {
        let labels: Vec<u8> = (0..10_000).map(|i| (i % 10) as u8).collect();
        for seed in 0..20 {
            let sizes = (0..10).map(|c| share(&labels, &Split::Dirichlet(0.5), c, 10, seed).unwrap().len());
            let largest = sizes.max().unwrap();
            assert!(largest < 2_000, "{largest}");
        }
    }

    #[test]
    fn test_slices_cover_the_whole_without_overlap() {
        for (len, clients) in [(10_000, 10), (7, 3), (2, 5), (0, 4)] {
            let all: Vec<usize> = (0..clients).flat_map(|client| slice(len, client, clients)).collect();
            assert_eq!(all, (0..len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn impossible_shares_are_refused() {
        let labels = [0; 20];
        for (split, client, clients) in [
            (Split::Iid, 3, 3),
            (Split::Iid, 0, 21),
            (Split::Iid, 0, 0),
            (Split::Dirichlet(0.0), 0, 2),
            (Split::Dirichlet(f64::NAN), 0, 2),
            (Split::PlainDirichlet(1e-4), 0, 2),
            (Split::InnerDirichlet(1e7), 0, 2),
            (Split::ByLabel(0), 0, 2),
            (Split::ByLabel(11), 0, 2),
            (Split::ByLabel(u32::MAX), 0, 2),
        ] {
            assert!(
                matches!(share(&labels, &split, client, clients, 1), Err(Error::Config { .. })),
                "{split:?}"
            );
        }
    }
}
