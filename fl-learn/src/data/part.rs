//! One client's part of a data set that several clients share: which examples it trains on, and which it holds out.

use std::sync::Arc;

use super::dataset::Dataset;
use super::error::Error;
use super::examples::{ClientData, Examples};
use super::input::Target;
use super::rng::Rng;
use super::split::{Split, check_client, share, slice};
use super::unlabelled::share_unlabelled;

/// Defines the keys of a data set that several clients may share: its own keys, each with a comma after it, then those that say
/// which part a client takes. Behind the name stand the keys that may hold a path; `shared_keys` is for `DataSet::keys`.
macro_rules! shared_set {
    ($(#[$meta:meta])* pub struct $name:ident($($path:ident),*) { $($own:tt)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($own)*
            /// Number of this client, from 0.
            #[serde(default)]
            pub client: u32,
            /// Number of clients that share the set.
            #[serde(default = "crate::data::part::one")]
            pub clients: u32,
            /// How the examples are split among the clients.
            #[serde(default)]
            pub split: $crate::data::split::Split,
            /// Seed of the split, the same for all clients.
            #[serde(default = "crate::data::part::seed")]
            pub seed: u64,
            /// Take at most this many of the client's training examples.
            #[serde(default)]
            pub limit: Option<u32>,
            /// Take at most this many of its held-out examples.
            #[serde(default)]
            pub test_limit: Option<u32>,
        }

        impl $name {
            pub(crate) fn part(&self) -> $crate::data::part::Part<'_> {
                $crate::data::part::Part {
                    client: self.client,
                    clients: self.clients,
                    split: &self.split,
                    seed: self.seed,
                    limit: self.limit,
                    test_limit: self.test_limit,
                }
            }

            /// One copy in memory of the set's `part`, for all clients of this process that share it.
            fn shared(
                &self,
                part: &str,
                read: impl FnOnce() -> Result<$crate::data::dataset::Dataset, $crate::data::error::Error>,
            ) -> Result<std::sync::Arc<$crate::data::dataset::Dataset>, $crate::data::error::Error> {
                $crate::data::shared::shared(format!("{part} {}", self.identity()), read)
            }

            /// Identifies the set itself: equal for all clients that share it.
            fn identity(&self) -> String {
                let whole = Self {
                    client: 0,
                    clients: 1,
                    split: $crate::data::split::Split::Iid,
                    seed: 0,
                    limit: None,
                    test_limit: None,
                    ..self.clone()
                };
                format!("{whole:?}")
            }

            fn shared_keys(&mut self) -> $crate::data::set::Keys<'_> {
                use $crate::data::paths::MayBePath as _;
                $crate::data::set::Keys {
                    client: Some(&mut self.client),
                    clients: Some(&mut self.clients),
                    seed: Some(&mut self.seed),
                    paths: [$(self.$path.path(),)* self.split.path()].into_iter().flatten().collect(),
                }
            }
        }
    };
}
pub(crate) use shared_set;

pub(crate) fn one() -> u32 {
    1
}

pub(crate) fn seed() -> u64 {
    42
}

pub(crate) struct Part<'a> {
    pub(crate) client: u32,
    pub(crate) clients: u32,
    pub(crate) split: &'a Split,
    pub(crate) seed: u64,
    pub(crate) limit: Option<u32>,
    pub(crate) test_limit: Option<u32>,
}

/// Where the held-out examples come from.
pub(crate) enum TestSource {
    /// A set of their own, of which each client gets a contiguous stretch.
    Stretch(Arc<Dataset>),
    /// A set of their own, dealt to the clients in turn. Suits a set that is sorted by class.
    Dealt(Arc<Dataset>),
    /// This share of the client's part of the training set, drawn by the seed; of a text, its end.
    Share(f64),
    None,
}

impl TestSource {
    pub(crate) fn of_share(test: Option<f64>) -> Self {
        test.map_or(Self::None, Self::Share)
    }
}

impl Part<'_> {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_client(self.client, self.clients)?;
        check_limit(self.limit)?;
        self.split.check()
    }

    /// The client's examples out of the whole set.
    pub(crate) fn of(&self, train: Arc<Dataset>, held: TestSource) -> Result<ClientData, Error> {
        let Self {
            split,
            client,
            clients,
            seed,
            ..
        } = *self;
        let target = train.input().target;
        let mut mine = match target {
            Target::Class => share(train.labels(), split, client, clients, seed)?,
            Target::NextToken => share_unlabelled((train.len(), true), split, client, clients, seed)?,
            Target::Numbers => share_unlabelled((train.len(), false), split, client, clients, seed)?,
        };
        let test = match held {
            TestSource::Stretch(test) => {
                let stretch: Vec<u32> = slice(test.len(), self.client, self.clients).map(|i| i as u32).collect();
                Examples::new(test, stretch)?
            }
            TestSource::Dealt(test) => {
                let every = self.clients.max(1) as usize;
                let dealt: Vec<u32> = (self.client..test.len() as u32).step_by(every).collect();
                Examples::new(test, dealt)?
            }
            TestSource::Share(share) => {
                let held = match target {
                    Target::NextToken => hold_out_end(&mut mine, share),
                    _ => hold_out(&mut mine, share, Rng::of(&[self.seed, 7, u64::from(self.client)])),
                };
                Examples::new(train.clone(), held)?
            }
            TestSource::None => Examples::new(train.clone(), Vec::new())?,
        };
        Ok(ClientData {
            train: Examples::new(train, mine)?.at_most(self.limit),
            test: test.at_most(self.test_limit),
        })
    }
}

/// Takes a `share` of `mine` out of it: at least one example, and at least one remains. Both parts are ascending.
fn hold_out(mine: &mut Vec<u32>, share: f64, mut rng: Rng) -> Vec<u32> {
    if mine.len() < 2 {
        return Vec::new();
    }
    rng.shuffle(mine);
    let mut held = hold_out_end(mine, share);
    mine.sort_unstable();
    held.sort_unstable();
    held
}

/// As [`hold_out`], but takes the last examples, as is usual for a text.
fn hold_out_end(mine: &mut Vec<u32>, share: f64) -> Vec<u32> {
    if mine.len() < 2 {
        return Vec::new();
    }
    let count = ((share * mine.len() as f64).round() as usize).clamp(1, mine.len() - 1);
    mine.split_off(mine.len() - count)
}

pub(crate) fn check_limit(limit: Option<u32>) -> Result<(), Error> {
    match limit {
        Some(0) => Err(Error::config("limit", "must be at least 1")),
        _ => Ok(()),
    }
}

/// Succeeds if `test` is a share that can be held out, and is not given together with a test set, whose key is `files`.
pub(crate) fn check_share(test: Option<f64>, files: Option<&'static str>) -> Result<(), Error> {
    match (test, files) {
        (Some(_), Some(files)) => Err(Error::config(
            "test",
            format!("is a share; give it or `{files}`, not both"),
        )),
        (Some(share), _) if !(share > 0.0 && share < 1.0) => Err(Error::config(
            "test",
            format!("is {share}, but must be above 0 and below 1"),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::features::Features;
    use super::super::input::Input;
    use super::super::rng::Rng;
    use super::*;

    fn set(len: usize) -> Arc<Dataset> {
        let input = Input::of_classes([1, 1, 1], 10);
        let labels = (0..len).map(|at| (at % 10) as u8).collect();
        Arc::new(Dataset::new(Features::Floats(vec![0.0; len]), labels, input).unwrap())
    }

    fn any_held() -> impl Strategy<Value = u8> {
        0u8..4
    }

    proptest! {
        #[test]
        fn every_example_is_trained_or_held_out_by_exactly_one_client(
            len in 40usize..300, clients in 1u32..12, seed: u64, kind in any_held(), share in 0.001f64..0.999
        ) {
            let (train, test) = (set(len), set(len / 3));
            let mut seen = vec![0; len];
            let mut tested = vec![0; test.len()];
            for client in 0..clients {
                let split = Split::Dirichlet(0.5);
                let part = Part { client, clients, split: &split, seed, limit: None, test_limit: None };
                let held = match kind {
                    0 => TestSource::Stretch(test.clone()),
                    1 => TestSource::Dealt(test.clone()),
                    2 => TestSource::Share(share),
                    _ => TestSource::None,
                };
                let data = part.of(train.clone(), held).unwrap();
                prop_assert!(!data.train.is_empty());
                data.train.indices().iter().for_each(|&at| seen[at as usize] += 1);
                if kind < 2 {
                    data.test.indices().iter().for_each(|&at| tested[at as usize] += 1);
                } else {
                    data.test.indices().iter().for_each(|&at| seen[at as usize] += 1);
                }
                prop_assert_eq!(data.test.is_empty(), kind == 3 || (kind < 2 && (client as usize) >= test.len()));
            }
            prop_assert!(seen.iter().all(|&count| count == 1), "{:?}", seen);
            prop_assert!(kind >= 2 || tested.iter().all(|&count| count == 1), "{:?}", tested);
        }
    }

    #[test]
    fn a_share_is_held_out_by_the_seed() {
        let held = |share, seed| {
            let mut mine: Vec<u32> = (0..100).collect();
            let held = hold_out(&mut mine, share, Rng::new(seed));
            assert_eq!(mine.len() + held.len(), 100);
            assert!(mine.is_sorted() && held.is_sorted());
            held
        };
        assert_eq!(held(0.1, 1).len(), 10);
        assert_eq!(held(0.1, 1), held(0.1, 1));
        assert_ne!(held(0.1, 1), held(0.1, 2));
        assert_eq!((held(1e-9, 1).len(), held(0.999_999, 1).len()), (1, 99));
        assert!(hold_out(&mut vec![7], 0.5, Rng::new(1)).is_empty());
    }

    #[test]
    fn a_sorted_test_set_is_dealt_with_all_its_classes() {
        let input = Input::of_classes([1, 1, 1], 2);
        let labels = (0..40).map(|at| u8::from(at >= 20)).collect();
        let sorted = Arc::new(Dataset::new(Features::Floats(vec![0.0; 40]), labels, input).unwrap());
        for client in 0..4 {
            let part = Part {
                client,
                clients: 4,
                split: &Split::Iid,
                seed: 1,
                limit: None,
                test_limit: None,
            };
            let data = part.of(sorted.clone(), TestSource::Dealt(sorted.clone())).unwrap();
            assert_eq!(data.test.class_counts(), [5, 5]);
        }
    }

    #[test]
    fn shares_out_of_range_and_beside_files_are_refused() {
        for (test, files, good) in [
            (None, None, true),
            (None, Some("test_x"), true),
            (Some(0.1), None, true),
            (Some(0.1), Some("test_x"), false),
            (Some(0.0), None, false),
            (Some(1.0), None, false),
            (Some(f64::NAN), None, false),
        ] {
            assert_eq!(check_share(test, files).is_ok(), good, "{test:?} {files:?}");
        }
    }
}
