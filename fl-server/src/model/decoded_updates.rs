//! What the frames of a round's updates decode to, kept from their arrival, where they are verified, until the round closes; and
//! what the last model update decodes to, if updates are encoded against it.
//!
//! Decoding the arithmetic code takes far longer than adding its values. What does not fit into the memory is decoded again,
//! with the same values, and so is a frame that is hardly shorter than its values, such as fp32: it is read and decoded as fast.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use fl_compress::{Decoded, Digest, Error, Frame, Layout};

use super::sections::sections;
use crate::accounting::ledger::Section;
use crate::lock::lock;

/// Bytes of all values that are kept, and of the memory for the next ones.
const MOST: usize = 64 << 20;
/// Bytes of the values of an update that are kept.
const MOST_EACH: usize = 8 << 20;

/// A decoded update.
#[derive(Debug, Default)]
pub(crate) struct DecodedUpdate {
    pub(crate) values: Decoded,
    /// The frame that it was encoded against.
    pub(crate) predictor: Option<u64>,
    /// Where its bytes went, in the order of the frame.
    pub(crate) sections: Vec<Section>,
    /// `None` if the values of the predictor belong to it, or if not all values are here.
    pub(super) norms: Option<UpdateNorms>,
}

/// L2 norms of an update's trained values and of its buffers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct UpdateNorms {
    pub(super) trained: f64,
    pub(super) buffers: f64,
}

/// Decoded updates by the digest of their frame.
#[derive(Debug, Default)]
pub(crate) struct DecodedUpdates {
    kept: Mutex<Kept>,
    /// The last model update. Its values take at most [`MOST_EACH`], which are not among the bytes of `kept`.
    model_update: Mutex<Option<(Digest, Arc<Decoded>)>>,
}

#[derive(Debug, Default)]
struct Kept {
    updates: HashMap<Digest, Arc<DecodedUpdate>>,
    /// Memory to be used again: fresh pages cost as much as writing to them.
    spare: Vec<Decoded>,
    /// Bytes of `updates` and `spare`.
    bytes: usize,
    /// Memory to measure norms: at most as many as frames are decoded at once.
    scratch: Vec<Vec<f32>>,
}

impl DecodedUpdate {
    /// Decodes a frame into `values`, which hold at most `limit` bytes. `scratch` is overwritten.
    ///
    /// # Errors
    /// As [`Frame::verify`].
    pub(super) fn decode(
        frame: &Frame<'_>,
        limit: usize,
        mut values: Decoded,
        scratch: &mut Vec<f32>,
    ) -> Result<Self, Error> {
        frame.decode_to(limit, &mut values)?;
        let mut decoded = Self {
            predictor: frame.predictor(),
            sections: sections(frame, values.nonzeros()),
            values,
            norms: None,
        };
        if decoded.predictor.is_none() && decoded.values.is_whole() {
            decoded.norms = Some(decoded.measure(frame.layout(), None, scratch));
        }
        Ok(decoded)
    }

    /// Its norms, with its predictor. Shapes: `predictor: [layout.len()]`.
    pub(super) fn measure(&self, layout: &Layout, predictor: Option<&[f32]>, scratch: &mut Vec<f32>) -> UpdateNorms {
        let ranges = [layout.trained(), layout.buffers()];
        let [trained, buffers] = self.values.norms(ranges, layout.len(), predictor, scratch);
        UpdateNorms { trained, buffers }
    }
}

/// Whether a frame is hardly shorter than its values, such as fp32: it is read and decoded as fast as they are kept and read.
pub(super) fn is_long(frame: &Frame<'_>) -> bool {
    frame.len() > 2 * frame.layout().len()
}

impl DecodedUpdates {
    /// Decodes a frame. Not all values may be there, see [`Decoded::is_whole`].
    ///
    /// # Errors
    /// As [`Frame::verify`].
    pub(crate) fn decode(&self, frame: &Frame<'_>) -> Result<DecodedUpdate, Error> {
        let (spare, mut scratch) = {
            let mut kept = lock(&self.kept);
            let spare = kept.spare.pop().unwrap_or_default();
            kept.bytes -= spare.bytes();
            (spare, kept.scratch.pop().unwrap_or_default())
        };
        let limit = if is_long(frame) { 0 } else { MOST_EACH };
        let update = DecodedUpdate::decode(frame, limit, spare, &mut scratch);
        if scratch.capacity() > 0 && size_of_val(scratch.as_slice()) <= MOST_EACH {
            lock(&self.kept).scratch.push(scratch);
        }
        update
    }

    /// Keeps a decoded update, if its values are whole and there is room.
    pub(crate) fn keep(&self, frame: Digest, mut update: DecodedUpdate) {
        // The memory may have been that of a longer update.
        update.values.trim();
        let mut kept = lock(&self.kept);
        if !update.values.is_whole() || kept.updates.contains_key(&frame) {
            return kept.free(update.values);
        }
        let bytes = update.values.bytes();
        while kept.bytes + bytes > MOST
            && let Some(spare) = kept.spare.pop()
        {
            kept.bytes -= spare.bytes();
        }
        if kept.bytes + bytes <= MOST {
            kept.bytes += bytes;
            kept.updates.insert(frame, Arc::new(update));
        }
    }

    pub(super) fn get(&self, frame: &Digest) -> Option<Arc<DecodedUpdate>> {
        lock(&self.kept).updates.get(frame).cloned()
    }

    /// Applies the frame of a model update to `model` and returns what it decodes to. If `keeps`, its values are to be kept:
    /// not all of them may be there, see [`Decoded::is_whole`]. Shapes: `model: [layout.len()]`.
    ///
    /// # Errors
    /// As [`Frame::accumulate`].
    pub(super) fn apply(&self, frame: &Frame<'_>, keeps: bool, model: &mut [f32]) -> Result<Decoded, Error> {
        let before = lock(&self.model_update).take();
        let mut values = before
            .and_then(|(_, values)| Arc::into_inner(values))
            .unwrap_or_default();
        frame.accumulate_to(1.0, model, if keeps { MOST_EACH } else { 0 }, &mut values)?;
        Ok(values)
    }

    /// Keeps the values of the last model update.
    pub(super) fn keep_model_update(&self, frame: Digest, mut values: Decoded) {
        values.trim();
        *lock(&self.model_update) = Some((frame, Arc::new(values)));
    }

    /// What the model update with this digest decodes to, if it is kept. Not all values may be there, but the largest magnitude
    /// is.
    pub(crate) fn model_update(&self, frame: &Digest) -> Option<Arc<Decoded>> {
        let last = lock(&self.model_update);
        last.as_ref()
            .filter(|(of, _)| of == frame)
            .map(|(_, values)| Arc::clone(values))
    }

    /// As [`DecodedUpdates::model_update`]; one that is not kept, as it was made before the server started, is decoded once for
    /// all callers. Returns why if its frame, which `read` returns, cannot be decoded.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn read_model_update<E>(
        &self,
        digest: &Digest,
        layout: &Layout,
        read: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Result<Arc<Decoded>, String>, E> {
        let mut last = lock(&self.model_update);
        if let Some((_, values)) = last.as_ref().filter(|(of, _)| of == digest) {
            return Ok(Ok(Arc::clone(values)));
        }
        let bytes = read()?;
        let mut values = Decoded::default();
        let decoded = Frame::parse(&bytes, layout).and_then(|frame| frame.decode_to(MOST_EACH, &mut values));
        Ok(match decoded {
            Ok(()) => {
                values.trim();
                let values = Arc::new(values);
                *last = Some((*digest, Arc::clone(&values)));
                Ok(values)
            }
            Err(why) => Err(format!("its predictor cannot be decoded: {why}")),
        })
    }

    /// Forgets an update that does not count.
    pub(crate) fn forget(&self, frame: &Digest) {
        let mut kept = lock(&self.kept);
        if let Some(update) = kept.updates.remove(frame) {
            kept.end(update);
        }
    }

    /// Forgets all updates: their round is closed.
    pub(super) fn clear(&self) {
        let mut kept = lock(&self.kept);
        let updates = std::mem::take(&mut kept.updates);
        updates.into_values().for_each(|update| kept.end(update));
    }
}

impl Kept {
    fn end(&mut self, update: Arc<DecodedUpdate>) {
        self.bytes -= update.values.bytes();
        if let Some(update) = Arc::into_inner(update) {
            self.free(update.values);
        }
    }

    /// Keeps the memory, if there is room.
    fn free(&mut self, values: Decoded) {
        let bytes = values.bytes();
        if bytes > 0 && self.bytes + bytes <= MOST {
            self.bytes += bytes;
            self.spare.push(values);
        }
    }
}

#[cfg(test)]
mod tests {
    use fl_compress::{Encoder, FrameHeader, FrameKind, Spec};

    use super::*;

    fn frame(layout: &Arc<Layout>, spec: &str) -> Vec<u8> {
        let spec: Spec = toml::from_str(spec).unwrap();
        let header = FrameHeader {
            kind: FrameKind::Update,
            round: 1,
            seed: 1,
        };
        let mut values: Vec<f32> = (1..=layout.len()).map(|at| at as f32).collect();
        let mut encoder = Encoder::new(Arc::clone(layout), &spec).unwrap();
        encoder.encode(&mut values, header).unwrap().frame
    }

    #[test]
    fn updates_are_kept_while_there_is_room_and_their_memory_is_used_again() {
        let layout = Arc::new(Layout::new([("w", vec![500_000])]).unwrap());
        let frame = frame(&layout, "default = { quantize = { uniform = 4 } }");
        let frame = Frame::parse(&frame, &layout).unwrap();
        let updates = DecodedUpdates::default();
        let digest = |at: u32| Digest::of(&at.to_le_bytes());
        for at in 0..100 {
            updates.keep(digest(at), updates.decode(&frame).unwrap());
        }
        let kept = (0..100).filter(|at| updates.get(&digest(*at)).is_some()).count();
        assert!((MOST / 4_000_000..=MOST / 2_000_000).contains(&kept), "{kept}");
        assert!(lock(&updates.kept).bytes <= MOST);
        updates.forget(&digest(0));
        assert!(updates.get(&digest(0)).is_none());
        updates.clear();
        assert_eq!(lock(&updates.kept).spare.len(), kept);
        let update = updates.decode(&frame).unwrap();
        assert_eq!(lock(&updates.kept).spare.len(), kept - 1);
        assert!(update.values.is_whole() && update.sections.len() == 1);
        drop(update);
        let left = lock(&updates.kept);
        assert_eq!(left.bytes, left.spare.iter().map(Decoded::bytes).sum::<usize>());
    }

    #[test]
    fn frames_that_are_hardly_shorter_than_their_values_are_not_kept() {
        let layout = Arc::new(Layout::new([("w", vec![2_000])]).unwrap());
        let updates = DecodedUpdates::default();
        for (spec, is_kept) in [("", true), ("default = {}", false)] {
            let frame = frame(&layout, spec);
            let frame = Frame::parse(&frame, &layout).unwrap();
            let update = updates.decode(&frame).unwrap();
            assert_eq!(update.values.largest(), frame.verify().unwrap(), "{spec}");
            updates.keep(Digest::of(spec.as_bytes()), update);
            assert_eq!(updates.get(&Digest::of(spec.as_bytes())).is_some(), is_kept, "{spec}");
        }
    }

    /// One client sends updates with many values, all others short ones: the memory of the former becomes that of the latter.
    #[test]
    fn memory_of_long_updates_does_not_keep_short_ones_out() {
        let layout = Arc::new(Layout::new([("w", vec![1_500_000])]).unwrap());
        let (long, short) = (
            frame(&layout, "default = { quantize = { uniform = 4 } }"),
            frame(&layout, "default = { reduce = { top_k = 0.02 } }"),
        );
        let (long, short) = (
            Frame::parse(&long, &layout).unwrap(),
            Frame::parse(&short, &layout).unwrap(),
        );
        let updates = DecodedUpdates::default();
        let digest = |at: u32| Digest::of(&at.to_le_bytes());
        for round in 0..12 {
            updates.keep(digest(0), updates.decode(&long).unwrap());
            for at in 1..100 {
                updates.keep(digest(at), updates.decode(&short).unwrap());
            }
            let kept = (0..100).filter(|at| updates.get(&digest(*at)).is_some()).count();
            assert!(kept >= 99, "round {round}: {kept}");
            updates.clear();
        }
    }
}
