//! Reads the conditions.

use std::fmt;

use super::decision::Decision;
use super::moment::Moment;
use super::reading::Reading;
use super::sources::SOURCES;
use super::sources::own_load::OwnLoad;
use super::sources::source::Context;
use super::when::When;

/// Readings beside the conditions, such as those of limits.
pub(crate) type Extra = Box<dyn Fn(Moment) -> Vec<(&'static str, Reading)> + Send>;

/// Reads the conditions of a `[when]`, and remembers from one time to the next what a source needs.
pub(crate) struct Sampler {
    when: When,
    own_load: OwnLoad,
    extra: Option<Extra>,
}

impl Sampler {
    pub(crate) fn new(when: When, extra: Option<Extra>) -> Self {
        Self {
            when,
            own_load: OwnLoad::default(),
            extra,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.extra.is_none() && SOURCES.iter().all(|source| !(source.is_set)(&self.when))
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
        let mut readings = Vec::new();
        for source in SOURCES.iter().filter(|source| (source.is_set)(&self.when)) {
            let reading = (source.read)(&mut context).unwrap_or_else(Reading::Missing);
            readings.push((source.key, reading));
        }
        if let Some(extra) = &self.extra {
            readings.extend(extra(self.now()));
        }
        readings
    }

    pub(crate) fn decide(&mut self) -> Decision {
        Decision::of(&self.readings(), self.when.strict)
    }

    pub(super) fn when(&self) -> &When {
        &self.when
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler")
            .field("when", &self.when)
            .finish_non_exhaustive()
    }
}
