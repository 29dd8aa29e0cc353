//! Updates of a round that several threads decode at once, to be added one after another.

use std::sync::Arc;

use fl_compress::{Decoded, Frame, FrameKind, Layout};

use super::decoded_updates::DecodedUpdate;

/// A few updates, decoded, and their memory, which the next ones use again.
#[derive(Debug, Default)]
pub(super) struct DecodedAhead {
    updates: Vec<Ahead>,
    bytes: Vec<Vec<u8>>,
    scratch: Vec<Vec<f32>>,
}

#[derive(Debug)]
struct Ahead {
    /// Its place in the round.
    at: usize,
    /// What it decodes to; or why it does not.
    update: Result<Arc<DecodedUpdate>, String>,
}

impl DecodedAhead {
    /// The update at this place, or why it cannot be decoded; `None` if it is not among these.
    pub(super) fn get(&self, at: usize) -> Option<Result<Arc<DecodedUpdate>, String>> {
        let found = self.updates.iter().find(|ahead| ahead.at == at)?;
        Some(found.update.clone())
    }

    /// Memory for a frame.
    pub(super) fn spare_bytes(&mut self) -> Vec<u8> {
        self.bytes.pop().unwrap_or_default()
    }

    /// Decodes other updates, each on its own thread. `frames`: their places, their frames, and why one could not be read.
    pub(super) fn decode(&mut self, frames: Vec<(usize, Vec<u8>, Result<(), String>)>, layout: &Layout, round: u64) {
        let before = std::mem::take(&mut self.updates).into_iter();
        let mut spare = before.filter_map(|ahead| ahead.update.ok().and_then(Arc::into_inner));
        let jobs: Vec<_> = frames
            .into_iter()
            .map(|(at, bytes, read)| Job {
                at,
                bytes,
                read,
                values: spare.next().unwrap_or_default().values,
                scratch: self.scratch.pop().unwrap_or_default(),
            })
            .collect();
        let mut jobs = jobs.into_iter();
        let done: Vec<_> = std::thread::scope(|scope| {
            let first = jobs.next();
            let others: Vec<_> = jobs.map(|job| scope.spawn(move || job.decode(layout, round))).collect();
            let first = first.map(|job| job.decode(layout, round));
            let others = others.into_iter().map(|other| match other.join() {
                Ok(decoded) => decoded,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            first.into_iter().chain(others).collect()
        });
        for (ahead, bytes, scratch) in done {
            self.updates.push(ahead);
            self.bytes.push(bytes);
            self.scratch.push(scratch);
        }
    }
}

/// A frame to be decoded, and memory for it.
struct Job {
    at: usize,
    bytes: Vec<u8>,
    /// Why it could not be read.
    read: Result<(), String>,
    values: Decoded,
    scratch: Vec<f32>,
}

impl Job {
    fn decode(mut self, layout: &Layout, round: u64) -> (Ahead, Vec<u8>, Vec<f32>) {
        let decode = || {
            self.read?;
            let frame = parse(&self.bytes, layout, round)?;
            DecodedUpdate::decode(&frame, usize::MAX, self.values, &mut self.scratch).map_err(|e| e.to_string())
        };
        let update = decode().map(Arc::new);
        (Ahead { at: self.at, update }, self.bytes, self.scratch)
    }
}

/// Checks the frame of an update.
pub(super) fn parse<'f>(bytes: &'f [u8], layout: &'f Layout, round: u64) -> Result<Frame<'f>, String> {
    let frame = Frame::parse(bytes, layout).map_err(|e| e.to_string())?;
    let header = frame.header();
    if header.kind != FrameKind::Update || header.round != round {
        return Err(format!("the frame is a {:?} of round {}", header.kind, header.round));
    }
    Ok(frame)
}
