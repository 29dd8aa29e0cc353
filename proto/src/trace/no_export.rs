//! Replaces `export` in builds without the feature `otlp`: no collector can be configured, so no span is created.

use std::time::Duration;

use tonic::transport::Uri;

use super::span::Span;

/// A collector; uninhabited in this build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Collector {}

impl Collector {
    pub(super) fn at(_: Uri) -> Result<Self, &'static str> {
        Err("this program was built without traces: build it with `--features otlp`, or set it to \"off\"")
    }
}

/// Drops all spans.
#[derive(Debug, Clone, Default)]
pub struct Spans;

impl Spans {
    /// Always false.
    pub fn wanted(&self) -> bool {
        false
    }

    /// Does nothing.
    pub fn give(&self, _: impl FnOnce() -> Span) {}
}

/// A task that sends to a [`Collector`], which this program cannot have.
#[derive(Debug)]
pub struct Exporter(Collector);

impl Exporter {
    /// Cannot be called.
    pub fn start(collector: &Collector, _: &str, _: Option<&str>, _: &str) -> (Spans, Self) {
        match *collector {}
    }

    /// Cannot be called.
    pub async fn finish(self, _: Duration) {
        match self.0 {}
    }
}
