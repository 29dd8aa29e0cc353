//! Whether the data of all clients has the same classes: a number in the labels of one must mean the same class to all others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use fl_proto::ClientId;
use tonic::Status;

use crate::lock::lock;

/// Digests of the clients' classes. Those of most clients are the run's, and of as many, those that were before: one client with
/// other ones, however early it joins, keeps no two others out. In memory alone, because clients join again after a restart.
#[derive(Debug, Default)]
pub(crate) struct Classes(Mutex<Digests>);

#[derive(Debug, Default)]
struct Digests {
    of: HashMap<ClientId, u64>,
    /// The run's.
    most: u64,
}

impl Classes {
    /// Notes the digest of a client that joins; `None` if it has not read its data yet.
    pub(super) fn note(&self, client: &ClientId, digest: Option<u64>) {
        let mut digests = lock(&self.0);
        let before = match digest {
            Some(digest) => digests.of.insert(client.clone(), digest),
            None => digests.of.remove(client),
        };
        // As nearly always: the run's digest has one client more, or nothing has changed.
        if digest == before || digest == Some(digests.most) {
            return;
        }
        let mut counts = BTreeMap::<u64, usize>::new();
        digests
            .of
            .values()
            .for_each(|digest| *counts.entry(*digest).or_default() += 1);
        let standing = counts.get(&digests.most).copied().unwrap_or(0);
        let found = counts.into_iter().max_by_key(|(_, count)| *count);
        if let Some((digest, _)) = found.filter(|(_, count)| *count > standing) {
            digests.most = digest;
        }
    }

    /// Succeeds if the client has the run's classes, or has not said which it has.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`, naming both digests.
    pub(super) fn check(&self, client: &ClientId) -> Result<(), Status> {
        let digests = lock(&self.0);
        let most = digests.most;
        match digests.of.get(client) {
            Some(&own) if own != most => Err(Status::failed_precondition(format!(
                "the classes of this client's data (digest {own:016x}) differ from those of the other clients (digest {most:016x}), \
                 so that one number would mean two classes; give `data` on every client the same list `classes`, or the same \
                 vocabulary"
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clients that are refused after these have joined, in this order.
    fn refused(joins: &[(&str, Option<u64>)]) -> Vec<String> {
        let classes = Classes::default();
        let client = |name: &str| name.parse::<ClientId>().unwrap();
        joins
            .iter()
            .for_each(|(name, digest)| classes.note(&client(name), *digest));
        let mut names: Vec<&str> = joins.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| classes.check(&client(name)).is_err());
        names.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn of_two_clients_the_second_is_refused_and_of_three_the_one_with_other_classes() {
        assert_eq!(refused(&[("a", Some(1)), ("b", Some(1)), ("c", None)]), [""; 0]);
        assert_eq!(refused(&[("a", Some(1)), ("b", Some(2))]), ["b"]);
        assert_eq!(refused(&[("a", Some(1)), ("b", Some(2)), ("c", Some(2))]), ["a"]);
        assert_eq!(
            refused(&[("a", Some(1)), ("b", Some(2)), ("a", Some(1))]),
            ["b"],
            "a client counts once"
        );
    }

    #[test]
    fn a_client_whose_data_was_corrected_is_taken_and_one_that_left_decides_nothing() {
        assert_eq!(refused(&[("a", Some(1)), ("b", Some(2)), ("b", None)]), [""; 0]);
        assert_eq!(
            refused(&[("a", Some(1)), ("b", Some(2)), ("b", None), ("b", Some(1))]),
            [""; 0]
        );
        assert_eq!(refused(&[("a", Some(1)), ("b", Some(2)), ("a", None)]), [""; 0]);
    }

    #[test]
    fn the_refusal_names_both_digests_and_what_to_do() {
        let classes = Classes::default();
        let [a, b] = ["a", "b"].map(|name| name.parse::<ClientId>().unwrap());
        classes.note(&a, Some(1));
        classes.note(&b, Some(0xabc));
        let status = classes.check(&b).unwrap_err();
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);
        for part in ["digest 0000000000000abc", "digest 0000000000000001", "list `classes`"] {
            assert!(status.message().contains(part), "{status}");
        }
    }
}
