//! Parallel work with results that do not depend on the number of threads.

use std::sync::{Mutex, PoisonError};

/// Applies `work` to each of `items` on up to `threads` threads; returns the results in the order of the items.
pub(crate) fn map<T: Send, R: Send>(items: Vec<T>, threads: usize, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    if threads <= 1 || items.len() <= 1 {
        return items.into_iter().map(work).collect();
    }
    let count = items.len();
    let queue = Mutex::new(items.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let worker = || std::iter::from_fn(|| next().map(|(at, item)| (at, work(item)))).collect::<Vec<_>>();
        let others: Vec<_> = (1..threads.min(count)).map(|_| scope.spawn(worker)).collect();
        let mut done = worker();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Runs both closures, the second on another thread if `threads > 1`.
pub(crate) fn both<A, B: Send>(threads: usize, one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    if threads <= 1 {
        return (one(), other());
    }
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        (
            one,
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_order_on_any_number_of_threads() {
        for threads in [0, 1, 2, 7] {
            let squares = super::map((0..100u32).collect(), threads, |value| value * value);
            assert_eq!(squares, (0..100).map(|value| value * value).collect::<Vec<u32>>());
            assert_eq!(super::both(threads, || 1, || 2), (1, 2));
        }
    }
}
