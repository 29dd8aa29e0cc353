//! Spans in the form of OTLP.

use super::span::{Span, Value};
use wire::StatusCode;
use wire::any_value::Value as Any;

/// Messages and client, generated from the part of OTLP that is used.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub(super) mod wire {
    tonic::include_proto!("opentelemetry.proto.collector.trace.v1");
}

/// Attributes of the process that made the spans.
pub(super) fn resource(service: &str, instance: Option<&str>, version: &str) -> wire::Resource {
    let text = |key: &str, text: &str| attribute(key, Any::StringValue(text.to_owned()));
    let mut attributes = vec![text("service.name", service), text("service.version", version)];
    attributes.extend(instance.map(|instance| text("service.instance.id", instance)));
    wire::Resource { attributes }
}

pub(super) fn request(resource: &wire::Resource, spans: Vec<Span>) -> wire::ExportTraceServiceRequest {
    let scope = wire::InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    wire::ExportTraceServiceRequest {
        resource_spans: vec![wire::ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![wire::ScopeSpans {
                scope: Some(scope),
                spans: spans.into_iter().map(span).collect(),
            }],
        }],
    }
}

fn span(span: Span) -> wire::Span {
    let attributes = span.attributes.into_iter().map(|(key, value)| {
        let value = match value {
            Value::Text(text) => Any::StringValue(text),
            Value::Count(count) => Any::IntValue(i64::try_from(count).unwrap_or(i64::MAX)),
        };
        attribute(key, value)
    });
    wire::Span {
        trace_id: span.trace.0.to_vec(),
        span_id: span.id.0.to_vec(),
        parent_span_id: span.parent.map(|id| id.0.to_vec()).unwrap_or_default(),
        name: span.name.to_owned(),
        kind: wire::SpanKind::Internal.into(),
        start_time_unix_nano: span.start,
        end_time_unix_nano: span.end,
        attributes: attributes.collect(),
        status: span.error.map(|message| wire::Status {
            message,
            code: StatusCode::Error.into(),
        }),
    }
}

fn attribute(key: &str, value: Any) -> wire::KeyValue {
    wire::KeyValue {
        key: key.to_owned(),
        value: Some(wire::AnyValue { value: Some(value) }),
    }
}
