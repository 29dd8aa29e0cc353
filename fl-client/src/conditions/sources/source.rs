//! What a source is, and what it may use.

use super::super::moment::Moment;
use super::super::reading::Reading;
use super::super::when::When;
use super::own_load::OwnLoad;

pub(crate) struct Source {
    /// The key in `[when]`.
    pub(crate) key: &'static str,
    pub(crate) is_set: fn(&When) -> bool,
    /// Whether the condition is fulfilled, or why the source cannot be read. Called only if the condition is set.
    pub(crate) read: fn(&mut Context<'_>) -> Result<Reading, String>,
}

impl Source {
    pub(super) const fn new(
        key: &'static str,
        is_set: fn(&When) -> bool,
        read: fn(&mut Context<'_>) -> Result<Reading, String>,
    ) -> Self {
        Self { key, is_set, read }
    }
}

pub(crate) struct Context<'a> {
    pub(crate) now: Moment,
    pub(crate) when: &'a When,
    pub(crate) own_load: &'a mut OwnLoad,
}
