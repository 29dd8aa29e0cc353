//! Where each condition is read. A source is a file and a line in [`SOURCES`].

mod battery;
mod command;
#[cfg(test)]
mod fake;
mod free_memory;
mod hours;
mod load;
mod mains;
mod metered;
pub(super) mod own_load;
mod power_supply;
pub(super) mod source;
mod temperature;

pub(crate) use metered::KEY as METERED;
use source::Source;

/// All sources. Programs come last: they cost the most.
pub(super) const SOURCES: &[Source] = &[
    mains::SOURCE,
    battery::SOURCE,
    load::SOURCE,
    free_memory::SOURCE,
    temperature::SOURCE,
    hours::SOURCE,
    metered::SOURCE,
    command::SOURCE,
];

#[cfg(test)]
mod tests {
    use super::super::when::When;
    use super::*;

    #[test]
    fn keys_are_distinct_and_nothing_is_set_by_default() {
        let when = When::default();
        let keys: std::collections::BTreeSet<_> = SOURCES.iter().map(|source| source.key).collect();
        assert_eq!(keys.len(), SOURCES.len());
        assert!(SOURCES.iter().all(|source| !(source.is_set)(&when)));
    }
}
