//! Traces of rounds, sent to an OpenTelemetry collector.
//!
//! A round is one trace. Its id and that of its root span follow from the run's instance and the round's number. Server and
//! clients use the same trace without an exchange, and continue it after a restart. Tracing never slows or ends a run: spans
//! that cannot be sent are dropped and counted.

#[cfg(feature = "otlp")]
mod export;
#[cfg(not(feature = "otlp"))]
#[path = "no_export.rs"]
mod export;
mod ids;
#[cfg(feature = "otlp")]
mod otlp;
mod setting;
mod span;

pub use export::{Collector, Exporter, Spans};
pub use ids::{SpanId, TraceId};
pub use setting::collector;
pub use span::{Nanos, Span, Value, now};
