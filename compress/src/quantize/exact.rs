//! Values as they are.

use crate::code::method::Code;
use crate::code::words::{WordPlane, Words, encode_words};
use crate::error::Error;
use crate::quantize::numbers::Size;
use crate::wire::{Reader, Writer};

pub(crate) fn encode(values: &[f32], code: Code, out: &mut Vec<u8>) -> Size {
    let plain = values.len() as u64 * 4;
    let bound = match code {
        Code::Pack => {
            out.reserve(values.len() * 4);
            Writer::new(out).f32s(values);
            plain as f64
        }
        _ => encode_words(values.iter().map(|value| value.to_le_bytes()), code, out),
    };
    Size { plain, bound }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plane<'a>(WordPlane<'a, 4>);

impl<'a> Plane<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, count: usize, code: Code) -> Result<Self, Error> {
        WordPlane::read(reader, count, code).map(Self)
    }

    pub(crate) fn bound(&self, count: usize, code: Code) -> Result<f64, Error> {
        self.0.bound(count, code)
    }

    pub(crate) fn open(&self) -> Result<Values<'a>, Error> {
        self.0.open().map(Values)
    }
}

#[derive(Debug)]
pub(crate) struct Values<'a>(Words<'a, 4>);

impl Values<'_> {
    pub(crate) fn read(&mut self, out: &mut [f32]) {
        let mut words = [[0; 4]; 1024];
        for part in out.chunks_mut(words.len()) {
            let words = self.0.next(&mut words[..part.len()]);
            part.iter_mut()
                .zip(words)
                .for_each(|(value, word)| *value = f32::from_le_bytes(*word));
        }
    }

    pub(crate) fn finish(&self) -> Result<(), Error> {
        self.0.finish()
    }
}
