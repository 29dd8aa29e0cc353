//! A span: one step of a round, with its start, its end and its attributes.

use std::time::{SystemTime, UNIX_EPOCH};

use super::ids::{SpanId, TraceId};

/// Nanoseconds since 1970.
pub type Nanos = u64;

/// The time now.
pub fn now() -> Nanos {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// A step that took from `start` to `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The round's trace.
    pub trace: TraceId,
    /// The span's id.
    pub id: SpanId,
    /// The enclosing span; `None` for a root.
    pub parent: Option<SpanId>,
    /// The step in one word.
    pub name: &'static str,
    /// Start time.
    pub start: Nanos,
    /// Never before `start`: if the clock was set back, `end` is `start`.
    pub end: Nanos,
    /// Attributes by name.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

impl Span {
    /// The root of a round's trace.
    pub fn root(instance: &fl_compress::Digest, round: u64, start: Nanos, end: Nanos) -> Self {
        Self {
            trace: TraceId::of_round(instance, round),
            id: SpanId::of_round(instance, round),
            parent: None,
            name: "round",
            start,
            end: end.max(start),
            attributes: Vec::new(),
            error: None,
        }
    }

    /// A step of a round. Its id follows from the arguments: two steps with the same `name` and `who` must not start in the
    /// same nanosecond.
    pub fn part(
        instance: &fl_compress::Digest,
        round: u64,
        (name, who): (&'static str, &str),
        start: Nanos,
        end: Nanos,
    ) -> Self {
        Self {
            id: SpanId::of_part(instance, round, (name, who), start),
            parent: Some(SpanId::of_round(instance, round)),
            name,
            ..Self::root(instance, round, start, end)
        }
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push((key, value.into()));
        self
    }
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A number. Numbers above `i64::MAX` are sent as `i64::MAX`.
    Count(u64),
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
