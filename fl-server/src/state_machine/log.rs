//! An append-only list in chunks that its copies share: copying takes constant time.

use std::sync::Arc;

/// Items in a chunk: the most that the first change after a copy has to copy.
const CHUNK: usize = 64;

#[derive(Debug, Clone, PartialEq)]
pub struct Log<T> {
    /// Each of `CHUNK` items.
    full: Arc<Vec<Arc<Vec<T>>>>,
    /// Fewer than that.
    last: Arc<Vec<T>>,
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self {
            full: Arc::default(),
            last: Arc::default(),
        }
    }
}

impl<T: Clone> Log<T> {
    pub(super) fn push(&mut self, item: T) {
        let last = Arc::make_mut(&mut self.last);
        last.push(item);
        if last.len() == CHUNK {
            let chunk = std::mem::take(&mut self.last);
            Arc::make_mut(&mut self.full).push(chunk);
        }
    }
}

impl<T> Log<T> {
    pub fn len(&self) -> usize {
        self.full.len() * CHUNK + self.last.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item at `index`, from 0.
    pub fn get(&self, index: usize) -> Option<&T> {
        let chunk = self.full.get(index / CHUNK).unwrap_or(&self.last);
        chunk.get(index % CHUNK).filter(|_| index < self.len())
    }

    /// The items from `from` to before `to`; `None` if there are not that many, or `from` is beyond `to`.
    pub fn range(&self, from: usize, to: usize) -> Option<impl Iterator<Item = &T>> {
        (from <= to && to <= self.len()).then(|| (from..to).filter_map(|index| self.get(index)))
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.full.iter().chain([&self.last]).flat_map(|chunk| chunk.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(len: usize) -> Log<usize> {
        let mut log = Log::default();
        (0..len).for_each(|i| log.push(i));
        log
    }

    #[test]
    fn it_is_a_list() {
        for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 7] {
            let log = log(len);
            assert_eq!((log.len(), log.is_empty()), (len, len == 0));
            assert!(log.iter().copied().eq(0..len));
            assert!((0..len).all(|i| log.get(i) == Some(&i)));
            assert!((len..len + 2 * CHUNK).all(|i| log.get(i).is_none()), "{len}");
            let from = len / 2;
            assert!(log.range(from, len).unwrap().copied().eq(from..len));
            assert!(log.range(0, len + 1).is_none() && log.range(len + 1, len).is_none());
        }
    }

    #[test]
    fn a_copy_shares_all_chunks_and_changes_alone() {
        let old = log(10 * CHUNK + 5);
        let mut new = old.clone();
        assert!(Arc::ptr_eq(&old.full, &new.full) && Arc::ptr_eq(&old.last, &new.last));
        (0..CHUNK).for_each(|i| new.push(i));
        assert_eq!((old.len(), new.len()), (10 * CHUNK + 5, 11 * CHUNK + 5));
        assert!(
            old.full
                .iter()
                .zip(new.full.iter())
                .all(|(old, new)| Arc::ptr_eq(old, new))
        );
    }
}
