//! Levels that an encoder has chosen, and what they decode to.

use std::sync::Arc;

use crate::code::context::levels::nonzero::{NonzeroLevels, Place};
use crate::error::Error;
use crate::quantize::dead_zone::decode::decoded;
use crate::quantize::method::{KnownPlane, ValueReader};

/// Levels in rows of `cols`.
#[derive(Debug)]
pub(crate) struct KnownLevels {
    pub(crate) step: f32,
    pub(crate) mean: f32,
    pub(crate) cols: usize,
    pub(crate) levels: NonzeroLevels,
}

impl KnownLevels {
    /// Decodes the next `out.len()` values.
    pub(crate) fn read(&self, place: &mut Place, out: &mut [f32]) {
        // Level zero decodes to zero times the step.
        out.fill(0.0);
        let len = out.len();
        place.read(&self.levels, len, |at, level| {
            out[at] = decoded(level, self.step, self.mean)
        });
    }
}

impl KnownPlane for KnownLevels {
    fn open(self: Arc<Self>) -> Box<dyn ValueReader> {
        let place = Place::first(self.cols);
        Box::new(KnownReader { known: self, place })
    }
}

struct KnownReader {
    known: Arc<KnownLevels>,
    place: Place,
}

impl ValueReader for KnownReader {
    fn read(&mut self, out: &mut [f32]) -> Result<(), Error> {
        self.known.read(&mut self.place, out);
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        Ok(())
    }
}
