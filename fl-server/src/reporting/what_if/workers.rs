//! Chains on several threads, with a result that does not depend on their number.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use super::WhatIfError;
use super::replay::Replayed;

/// What a worker says.
enum Said {
    /// A frame is done.
    Frame,
    /// The chain of this place is.
    Chain(usize, Result<Replayed, WhatIfError>),
}

/// `work` done on each of `chains`, by up to `threads` threads; the results are in the order of the chains. The second
/// argument of `work` is to be called after each frame, and says whether to go on. `progress` is told how many frames
/// are done of `total`, on this thread.
///
/// # Errors
/// That of the first chain which had one; then the others are given up.
pub(super) fn all<C: Sync>(
    chains: &[C],
    threads: usize,
    total: u64,
    mut progress: impl FnMut(u64, u64),
    work: impl Fn(&C, &mut dyn FnMut() -> bool) -> Result<Replayed, WhatIfError> + Sync,
) -> Result<Vec<Replayed>, WhatIfError> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, said) = mpsc::channel();
    let mut results: Vec<Option<Result<Replayed, WhatIfError>>> = chains.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, chains.len().max(1)) {
            let (sender, next, stop, work) = (sender.clone(), &next, &stop, &work);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(chain) = chains.get(at) else { return };
                    let mut done = || sender.send(Said::Frame).is_ok() && !stop.load(Ordering::Relaxed);
                    let result = work(chain, &mut done);
                    stop.fetch_or(result.is_err(), Ordering::Relaxed);
                    if sender.send(Said::Chain(at, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut done = 0;
        for said in said {
            match said {
                Said::Frame => {
                    done += 1;
                    progress(done, total);
                }
                Said::Chain(at, result) => results[at] = Some(result),
            }
        }
    });
    // Those that were given up come to light only where another failed.
    let (mut out, mut failed) = (Vec::with_capacity(chains.len()), None);
    for result in results.into_iter().flatten() {
        match result {
            Ok(replayed) => out.push(replayed),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(out), Err)
}
