//! Runs chains on several threads; the result does not depend on their number.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use super::WhatIfError;
use super::replay::ChainResult;

enum Progress {
    Frame,
    /// The chain with this index is finished.
    Chain(usize, Result<ChainResult, WhatIfError>),
}

/// Runs `work` on each of `chains`, on up to `threads` threads; the results are in the order of the chains. The second
/// argument of `work` must be called after each frame, and returns whether to continue. `progress` gets the finished
/// frames and `total`, on this thread.
///
/// # Errors
/// That of the first chain that failed; the others are cancelled then.
pub(super) fn all<C: Sync>(
    chains: &[C],
    threads: usize,
    total: u64,
    mut progress: impl FnMut(u64, u64),
    work: impl Fn(&C, &mut dyn FnMut() -> bool) -> Result<ChainResult, WhatIfError> + Sync,
) -> Result<Vec<ChainResult>, WhatIfError> {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let (sender, messages) = mpsc::channel();
    let mut results: Vec<Option<Result<ChainResult, WhatIfError>>> = chains.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, chains.len().max(1)) {
            let (sender, next, stop, work) = (sender.clone(), &next, &stop, &work);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(chain) = chains.get(at) else { return };
                    let result = work(chain, &mut || {
                        sender.send(Progress::Frame).is_ok() && !stop.load(Ordering::Relaxed)
                    });
                    stop.fetch_or(result.is_err(), Ordering::Relaxed);
                    if sender.send(Progress::Chain(at, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut done = 0;
        for message in messages {
            match message {
                Progress::Frame => {
                    done += 1;
                    progress(done, total);
                }
                Progress::Chain(at, result) => results[at] = Some(result),
            }
        }
    });
    // Cancelled chains have no result; the failed one is before or after them.
    results.into_iter().flatten().collect()
}
