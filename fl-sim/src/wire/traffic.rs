//! The bytes of one client's messages: their own length, and what they take on a socket.

use fl_compress::FrameKind;
use fl_proto::wire::{self, model_chunk, update_chunk};
use fl_proto::{
    CHUNK, CLIENT_WINDOW, EvaluationReport, FetchRequest, JoinRequest, Joined, JoinedRun, MAX_PUSH, ModelHeader,
    ProtocolError, RoundState, SERVER_WINDOW, UpdateHeader, UpdateReply,
};
use fl_server::ledger::Flow;
use prost::Message;

use super::costs;
use super::links::Load;

/// Milliseconds in the header of an update: its length must not depend on the machine.
const MILLIS: u64 = 1_000;

/// The bytes of one client since they were taken last.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) flow: Flow,
    /// Ways between server and client that follow one another.
    ways: u32,
}

impl Traffic {
    /// What the client has moved. `examples`: that it trained on.
    pub(super) fn load(&self, examples: u64) -> Load {
        Load {
            up: self.flow.socket_up,
            down: self.flow.socket_down,
            ways: self.ways,
            examples,
        }
    }

    /// Connects, joins and begins to watch; before its first training, a client joins once more.
    pub(super) fn join(&mut self, tasks: Vec<String>, joined: &Joined) -> Result<(), ProtocolError> {
        let request: wire::JoinRequest = JoinRequest {
            tasks,
            ..JoinRequest::default()
        }
        .into();
        let watch = wire::WatchRequest {
            run: joined.run.to_string(),
            ..wire::WatchRequest::default()
        };
        self.flow.connections += 1;
        // TCP, TLS 1.3, and each `Join`: a round trip each.
        self.ways += 8;
        self.up(costs::OPENING.0 + costs::CLASSES.0 + len(&request) + len(&watch));
        let reply = JoinedRun::of(joined)?.reply(&joined.client, joined.pending.clone(), None);
        self.down(costs::OPENING.1 + costs::CLASSES.1 + len(&reply));
        Ok(())
    }

    /// Leaves after the run.
    pub(super) fn leave(&mut self) {
        self.up(costs::CLOSING.0);
        self.down(costs::CLOSING.1);
    }

    /// A state on the stream, with the model update that travels with it.
    pub(super) fn state(&mut self, state: &RoundState) {
        self.flow.steps += state.step.len() as u64;
        // A state that replaces an earlier one follows at once.
        self.ways = self.ways.max(1);
        self.down(costs::message(len(&wire::RoundState::from(state.clone()))));
    }

    /// A fetch of model updates or of a snapshot.
    pub(super) fn fetch(&mut self, request: &FetchRequest, header: &ModelHeader) {
        self.ways += 2;
        self.up(costs::FETCH.0 + len(&wire::FetchRequest::from(request.clone())));
        let part = Some(model_chunk::Part::Header(header.into()));
        let header_len = len(&wire::ModelChunk { part });
        let mut bytes = costs::FETCH.1 + costs::message(header_len);
        for (kind, part) in header.parts() {
            bytes += chunks(part.len);
            match kind {
                FrameKind::Snapshot => self.flow.snapshot += part.len,
                _ => self.flow.steps += part.len,
            }
        }
        self.up(costs::windows(header.sent_bytes(), CLIENT_WINDOW.into()));
        self.down(bytes);
    }

    /// An update, on the stream if it is small.
    pub(super) fn update(&mut self, header: &UpdateHeader) {
        let mut sent = wire::UpdateHeader::from(header);
        sent.train_ms = MILLIS;
        sent.encode_ms = MILLIS;
        self.ways += 1;
        if header.len <= MAX_PUSH {
            if let Some(id) = &mut sent.id {
                id.run.clear();
            }
            let request = wire::WatchRequest {
                update: Some(sent),
                ..wire::WatchRequest::default()
            };
            self.up(costs::message(len(&request) + field(header.len)));
            return;
        }
        let part = Some(update_chunk::Part::Header(sent));
        let header_len = len(&wire::UpdateChunk { part });
        self.up(costs::SUBMIT.0 + costs::message(header_len) + chunks(header.len));
        self.down(costs::windows(header.len, SERVER_WINDOW.into()));
    }

    /// The answer to an update of `frame` bytes.
    pub(super) fn answer(&mut self, frame: u64, reply: &UpdateReply) {
        match reply {
            UpdateReply::Accepted => self.flow.update += frame,
            _ => self.flow.refused += frame,
        }
        let reply = wire::UpdateReply::from(reply.clone());
        if frame <= MAX_PUSH {
            let reply = wire::RoundState {
                reply: Some(reply),
                ..wire::RoundState::default()
            };
            self.down(costs::message(len(&reply)));
        } else {
            self.down(costs::SUBMIT.1 + len(&reply));
        }
    }

    /// An evaluation by a call of its own, and its answer.
    pub(super) fn evaluation(&mut self, report: &EvaluationReport, counted: bool) {
        self.up(costs::EVALUATE.0 + len(&wire::EvaluationReport::from(report.clone())));
        self.down(costs::EVALUATE.1 + len(&wire::EvaluationReply { counted }));
    }

    fn up(&mut self, bytes: u64) {
        self.flow.socket_up += bytes;
    }

    fn down(&mut self, bytes: u64) {
        self.flow.socket_down += bytes;
    }
}

/// The chunks of a frame.
fn chunks(frame: u64) -> u64 {
    let chunk = CHUNK as u64;
    let rest = match frame % chunk {
        0 => 0,
        rest => costs::message(field(rest)),
    };
    frame / chunk * costs::message(field(chunk)) + rest
}

/// Bytes of a field of `bytes` with its key and its length.
fn field(bytes: u64) -> u64 {
    bytes + 1 + prost::length_delimiter_len(bytes as usize) as u64
}

fn len(message: &impl Message) -> u64 {
    message.encoded_len() as u64
}
