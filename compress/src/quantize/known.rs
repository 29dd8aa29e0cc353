//! A plane whose decoded values its encoder has.

use std::sync::Arc;

use crate::error::Error;
use crate::quantize::method::{KnownPlane, ValueReader};

#[derive(Debug)]
pub(crate) struct KnownValues(pub(crate) Vec<f32>);

impl KnownPlane for KnownValues {
    fn open(self: Arc<Self>) -> Box<dyn ValueReader> {
        Box::new(KnownReader { known: self, read: 0 })
    }
}

struct KnownReader {
    known: Arc<KnownValues>,
    read: usize,
}

impl ValueReader for KnownReader {
    fn read(&mut self, out: &mut [f32]) -> Result<(), Error> {
        let left = self.known.0.iter().skip(self.read);
        out.iter_mut().zip(left).for_each(|(out, value)| *out = *value);
        self.read += out.len();
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        Ok(())
    }
}
