//! Limits that the system keeps for the whole process. They are set before it has a second thread, and its threads and trainers
//! inherit them.

use rustix::process::nice;
#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::table::Limits;
use crate::error::Error;

impl Limits {
    /// Gives the calling thread, and those that it starts from now on, `cpus` processors and the priority `nice`.
    ///
    /// # Errors
    /// `Config` if the system refuses.
    pub fn apply_to_process(&self) -> Result<(), Error> {
        if self.nice > 0 {
            nice(i32::from(self.nice)).map_err(|e| Error::Config(format!("`limits.nice` cannot be set: {e}")))?;
        }
        self.cpus.map_or(Ok(()), limit_processors)
    }
}

#[cfg(target_os = "linux")]
fn limit_processors(count: usize) -> Result<(), Error> {
    let failed = |e| Error::Config(format!("`limits.cpus` cannot be set: {e}"));
    let allowed = sched_getaffinity(None).map_err(failed)?;
    sched_setaffinity(None, &last(&allowed, count)).map_err(failed)
}

#[cfg(not(target_os = "linux"))]
fn limit_processors(_: usize) -> Result<(), Error> {
    Err(Error::Config(
        "`limits.cpus` works on Linux only; delete the key".to_owned(),
    ))
}

/// The last `count` processors of `allowed`, or all of them: interrupts are handled by the first ones.
#[cfg(target_os = "linux")]
fn last(allowed: &CpuSet, count: usize) -> CpuSet {
    let mut chosen = CpuSet::new();
    let processors = (0..CpuSet::MAX_CPU).rev().filter(|cpu| allowed.is_set(*cpu));
    processors.take(count).for_each(|cpu| chosen.set(cpu));
    chosen
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_last_processors_are_taken_of_those_that_are_allowed() {
        let mut allowed = CpuSet::new();
        [0, 3, 5].into_iter().for_each(|cpu| allowed.set(cpu));
        let two = last(&allowed, 2);
        assert!(!two.is_set(0) && two.is_set(3) && two.is_set(5) && two.count() == 2);
        assert_eq!(last(&allowed, 9), allowed);
    }

    #[test]
    fn a_thread_that_is_limited_hands_its_limit_on() {
        // In a thread of its own: the limits stay.
        let limits = Limits {
            cpus: Some(1),
            nice: 1,
            ..Limits::default()
        };
        let seen = std::thread::spawn(move || {
            limits.apply_to_process().unwrap();
            std::thread::spawn(std::thread::available_parallelism)
                .join()
                .unwrap()
                .unwrap()
                .get()
        });
        assert_eq!(seen.join().unwrap(), 1);
    }
}
