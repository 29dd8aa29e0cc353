//! Whether the client may train, by all its conditions.

use super::reading::Reading;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Available,
    Paused(Reasons),
    /// Not before a time in seconds since 1970.
    NotBefore(u64, Reasons),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reasons(pub(super) Vec<(&'static str, String)>);

impl Decision {
    /// What follows from the readings. `strict`: whether a condition without a source counts as not fulfilled.
    pub(crate) fn of(readings: &[(&'static str, Reading)], strict: bool) -> Self {
        let mut reasons = Vec::new();
        let mut until = 0;
        let mut open = false;
        for (key, reading) in readings {
            match reading {
                Reading::Holds(_) => continue,
                Reading::Missing(_) if !strict => continue,
                Reading::FailsUntil(at, why) => {
                    until = until.max(*at);
                    reasons.push((*key, why.clone()));
                }
                Reading::Fails(why) | Reading::Missing(why) => {
                    open = true;
                    reasons.push((*key, why.clone()));
                }
            }
        }
        match (reasons.is_empty(), open) {
            (true, _) => Self::Available,
            (false, true) => Self::Paused(Reasons(reasons)),
            (false, false) => Self::NotBefore(until, Reasons(reasons)),
        }
    }

    pub(crate) fn is_available(&self) -> bool {
        *self == Self::Available
    }

    /// Why the client may not train: `on battery; 34 °C ...`.
    pub(crate) fn why(&self) -> Option<String> {
        let texts: Vec<_> = self.reasons().iter().map(|(_, why)| why.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    fn reasons(&self) -> &[(&'static str, String)] {
        match self {
            Self::Available => &[],
            Self::Paused(Reasons(reasons)) | Self::NotBefore(_, Reasons(reasons)) => reasons,
        }
    }

    pub(crate) fn is_because_of(&self, key: &str) -> bool {
        self.reasons().iter().any(|(reason, _)| *reason == key)
    }

    /// Whether both say the same but for the texts, in which numbers change.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let is_alike = match (self, other) {
            (Self::Available, Self::Available) | (Self::Paused(_), Self::Paused(_)) => true,
            (Self::NotBefore(one, _), Self::NotBefore(two, _)) => one == two,
            _ => false,
        };
        let [own, others] = [self, other]
            .map(Self::reasons)
            .map(|reasons| reasons.iter().map(|(key, _)| *key));
        is_alike && own.eq(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_condition_that_is_not_fulfilled_pauses_and_a_time_counts_if_only_times_are_missing() {
        let (holds, fails) = (Reading::Holds("mains".into()), Reading::Fails("on battery".into()));
        let until = |at, why: &str| Reading::FailsUntil(at, why.into());
        let gone = Reading::Missing("no source".into());
        assert!(Decision::of(&[], true).is_available());
        assert!(Decision::of(&[("a", holds.clone()), ("b", gone.clone())], false).is_available());
        let strict = Decision::of(&[("a", holds), ("b", gone)], true);
        assert_eq!(strict.why().unwrap(), "no source");
        assert!(strict.is_because_of("b") && !strict.is_because_of("a"));
        let two = Decision::of(&[("a", until(5, "hours")), ("b", until(9, "more"))], false);
        assert!(matches!(two, Decision::NotBefore(9, _)));
        let open = Decision::of(&[("a", until(5, "hours")), ("b", fails)], false);
        assert!(matches!(open, Decision::Paused(_)));
        assert_eq!(open.why().unwrap(), "hours; on battery");
    }

    #[test]
    fn decisions_are_alike_if_only_their_texts_differ() {
        let paused = |key, why: &str| Decision::of(&[(key, Reading::Fails(why.into()))], false);
        let until = |at| Decision::of(&[("hours", Reading::FailsUntil(at, "x".into()))], false);
        assert!(paused("a", "63 %").is_like(&paused("a", "62 %")));
        assert!(!paused("a", "63 %").is_like(&paused("b", "63 %")));
        assert!(until(1).is_like(&until(1)) && !until(1).is_like(&until(2)) && !until(1).is_like(&Decision::Available));
    }
}
