//! A map that its copies share: copying takes constant time, and a change logarithmic time.

use fl_proto::ClientId;
use rpds::RedBlackTreeMapSync;

#[derive(Debug, Clone, PartialEq)]
pub struct ByClient<T>(RedBlackTreeMapSync<ClientId, T>);

impl<T> Default for ByClient<T> {
    fn default() -> Self {
        Self(RedBlackTreeMapSync::default())
    }
}

impl<T> ByClient<T> {
    pub fn len(&self) -> usize {
        self.0.size()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, client: &ClientId) -> Option<&T> {
        self.0.get(client)
    }

    pub fn contains(&self, client: &ClientId) -> bool {
        self.0.contains_key(client)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ClientId, &T)> {
        self.0.iter()
    }

    pub fn clients(&self) -> impl Iterator<Item = &ClientId> {
        self.0.keys()
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }

    pub(super) fn insert(&mut self, client: ClientId, value: T) {
        self.0.insert_mut(client, value);
    }
}

impl<T: Clone> ByClient<T> {
    pub(super) fn remove(&mut self, client: &ClientId) -> Option<T> {
        let removed = self.0.get(client).cloned();
        self.0.remove_mut(client);
        removed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map_and_a_copy_changes_alone(changes in prop::collection::vec((0..40u32, any::<bool>()), 0..200)) {
            let (mut map, mut model) = (ByClient::default(), BTreeMap::new());
            for (at, (number, inserts)) in changes.into_iter().enumerate() {
                let (before, was) = (map.clone(), model.clone());
                let client: ClientId = format!("client-{number}").parse().unwrap();
                if inserts {
                    map.insert(client.clone(), at);
                    model.insert(client, at);
                } else {
                    prop_assert_eq!(map.remove(&client), model.remove(&client));
                }
                prop_assert!(before.iter().eq(&was) && map.iter().eq(&model));
                prop_assert!(map.clients().eq(model.keys()) && map.values().eq(model.values()));
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(model.iter().all(|(client, at)| map.get(client) == Some(at) && map.contains(client)));
            }
        }
    }
}
