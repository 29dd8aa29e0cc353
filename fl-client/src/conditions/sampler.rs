//! Reads the conditions.

use super::decision::Decision;
use super::moment::Moment;
use super::reading::Reading;
use super::sources::SOURCES;
use super::sources::own_load::OwnLoad;
use super::sources::source::Context;
use super::when::When;

/// Reads the conditions of a `[when]`, and remembers from one time to the next what a source needs.
#[derive(Debug)]
pub(crate) struct Sampler {
    when: When,
    own_load: OwnLoad,
}

impl Sampler {
    pub(crate) fn new(when: When) -> Self {
        Self {
            when,
            own_load: OwnLoad::default(),
        }
    }

    /// Whether there is no condition at all.
    pub(crate) fn is_empty(&self) -> bool {
        SOURCES.iter().all(|source| !(source.is_set)(&self.when))
    }

    pub(crate) fn now(&self) -> Moment {
        (self.when.surroundings.clock)()
    }

    /// The readings of the conditions that are set, by key. Runs the programs that some need, each for a bounded time.
    pub(crate) fn readings(&mut self) -> Vec<(&'static str, Reading)> {
        let mut context = Context {
            now: self.now(),
            when: &self.when,
            own_load: &mut self.own_load,
        };
        let set = SOURCES.iter().filter(|source| (source.is_set)(context.when));
        let set: Vec<_> = set.collect();
        set.into_iter()
            .map(|source| (source.key, (source.read)(&mut context)))
            .collect()
    }

    pub(crate) fn decide(&mut self) -> Decision {
        Decision::of(&self.readings(), self.when.strict)
    }

    pub(super) fn when(&self) -> &When {
        &self.when
    }
}
