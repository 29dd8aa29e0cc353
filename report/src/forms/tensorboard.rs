//! An event file of TensorBoard: scalars of every closed round.
//!
//! The file is a sequence of TFRecords: length (u64), checksum of the length, an `Event` of protobuf, checksum of the event;
//! little-endian. Its name and its times are those of the run, not of the clock.

use prost::Message;

use crate::error::Error;
use crate::forms::form::{Answer, Asked, Form, Output};
use crate::report::Report;
use crate::report::measures::Measures;
use crate::report::round::RoundLine;

pub(super) static FORM: Form = Form {
    name: "tensorboard",
    about: "an event file in the folder `-o DIR`",
    shows: &[Asked::Whole],
    costs: false,
    output: Output::Folder(name),
    write: |answer| match answer {
        Answer::Whole(report) => Ok(tensorboard(report).bytes),
        _ => Err(Error::NotKept("an event file holds the whole run")),
    },
};

/// Name and content of an event file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFile {
    /// `events.out.tfevents.SECONDS.fl-report`, with the time of the run's first record: a run always gets the same name.
    pub name: String,
    /// The content.
    pub bytes: Vec<u8>,
}

/// The fields of `tensorflow.Event` that are used.
#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

/// `tensorflow.Summary`.
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Scalar>,
}

/// The fields of `tensorflow.Summary.Value` that are used.
#[derive(Clone, PartialEq, Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// Writes the event file of a report. Its values are 32-bit floats, so bytes have seven significant digits.
pub fn tensorboard(report: &Report) -> EventFile {
    let opened = report.run.opened_ms;
    let mut bytes = Vec::new();
    let first = Event {
        wall_time: opened as f64 / 1000.0,
        file_version: Some("brain.Event:2".to_owned()),
        ..Event::default()
    };
    record(&mut bytes, &first.encode_to_vec());
    for line in report.closed() {
        let event = Event {
            wall_time: line.opened_ms as f64 / 1000.0 + line.seconds,
            step: i64::try_from(line.round).unwrap_or(i64::MAX),
            summary: Some(Summary { value: scalars(line) }),
            ..Event::default()
        };
        record(&mut bytes, &event.encode_to_vec());
    }
    EventFile {
        name: name(report),
        bytes,
    }
}

fn name(report: &Report) -> String {
    format!("events.out.tfevents.{:010}.fl-report", report.run.opened_ms / 1000)
}

fn scalars(line: &RoundLine) -> Vec<Scalar> {
    let values = [
        ("accuracy", line.accuracy),
        ("perplexity", line.perplexity),
        ("loss/train", line.loss),
        ("loss/evaluation", line.evaluation_loss),
        ("bits/up", line.bits_up),
        ("bits/down", line.bits_down),
        ("density/up", line.density_up),
        ("density/down", line.density_down),
        ("seconds/round", Some(line.seconds)),
        ("bytes/up", Some(line.flow.socket_up as f64)),
        ("bytes/down", Some(line.flow.socket_down as f64)),
    ];
    let kinds = line.flow.present_kinds();
    let kinds = kinds.map(|(direction, kind, bytes)| (format!("bytes_{direction}/{kind}"), Some(bytes as f64)));
    let values = values.into_iter().map(|(tag, value)| (tag.to_owned(), value));
    let named = |prefix, Measures(metrics): &Measures| {
        metrics
            .iter()
            .map(move |(name, mean)| (format!("{prefix}/{name}"), Some(*mean)))
            .collect::<Vec<_>>()
    };
    let metrics = named("train", &line.trained)
        .into_iter()
        .chain(named("evaluation", &line.measured));
    let there = values.chain(kinds).chain(metrics).filter_map(|(tag, value)| {
        // A 32-bit float has a smaller range.
        let value = value.map(|value| value as f32).filter(|value| value.is_finite())?;
        Some(Scalar {
            tag,
            simple_value: Some(value),
        })
    });
    there.collect()
}

/// Appends a TFRecord.
fn record(out: &mut Vec<u8>, data: &[u8]) {
    let len = (data.len() as u64).to_le_bytes();
    out.extend(len);
    out.extend(masked(&len).to_le_bytes());
    out.extend(data);
    out.extend(masked(data).to_le_bytes());
}

/// The checksum of a TFRecord: CRC-32C, rotated and offset, so that the CRC of data that holds CRCs stays sound.
fn masked(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_framed_with_two_masked_checksums() {
        let mut out = Vec::new();
        record(&mut out, b"hello");
        let golden = "0500000000000000eab2043e68656c6c6f";
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(&hex[..golden.len()], golden);
        // RFC 3720: the checksum of "123456789" is e3069283.
        let unmasked = masked(b"123456789").wrapping_sub(0xa282_ead8).rotate_left(15);
        assert_eq!(unmasked, 0xe306_9283);
    }

    #[test]
    fn the_event_that_begins_a_file_is_golden() {
        let event = Event {
            wall_time: 1.0,
            file_version: Some("brain.Event:2".to_owned()),
            ..Event::default()
        };
        assert_eq!(event.encode_to_vec(), b"\x09\0\0\0\0\0\0\xf0\x3f\x1a\x0dbrain.Event:2");
    }
}
