//! Traces of rounds, sent by whoever wants them to an OpenTelemetry collector.
//!
//! A round is one trace. Its id, and that of its root span, follow from the run's instance and the round's number, so
//! that server and clients name the same trace without a word about it on the wire, and go on with it after a restart.
//! Nothing here may ever slow or end a run: what cannot be sent is dropped and counted.

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
