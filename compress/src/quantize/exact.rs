//! No quantization: binary32, bit for bit.

use crate::code::method::Code;
use crate::code::words::{WordPlane, Words, encode_words};
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::quantize::method::{Entry, Quantizer, Size, ValuePlane, ValueReader};
use crate::rng::KeyedRng;
use crate::wire::{Reader, Writer};

#[derive(Debug)]
pub(crate) struct Exact;

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "exact",
        about: "32-bit floats, bit for bit.",
        examples: &["'exact'"],
        leaves_out: false,
    },
    tag: 0,
    bytes: None,
    words: |_| "exact".to_owned(),
    read: |reader, expected| Ok(Box::new(Plane::<4>::read(reader, expected.shape.len(), expected.code)?)),
};

impl Quantizer for Exact {
    fn encode(&self, values: &[f32], _: Shape, code: Code, _: KeyedRng, out: &mut Vec<u8>) -> Size {
        let plain = values.len() as u64 * 4;
        let bound = match code {
            Code::Pack => {
                out.reserve(values.len() * 4);
                Writer::new(out).f32s(values);
                plain as f64
            }
            _ => encode_words(values.iter().map(|value| value.to_le_bytes()), code, out),
        };
        Size::new(plain, bound)
    }

    fn bits(&self) -> f64 {
        32.0
    }

    fn most_bytes(&self, len: usize) -> usize {
        len * 4
    }
}

/// Values of which `N` bytes are sent, the highest of a binary32; the others are zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plane<'a, const N: usize>(WordPlane<'a, N>);

impl<'a, const N: usize> Plane<'a, N> {
    pub(crate) fn read(reader: &mut Reader<'a>, count: usize, code: Code) -> Result<Self, Error> {
        WordPlane::read(reader, count, code).map(Self)
    }
}

impl<'a, const N: usize> ValuePlane<'a> for Plane<'a, N> {
    fn bound(&self, count: usize, code: Code) -> Result<f64, Error> {
        self.0.bound(count, code)
    }

    fn open(&self) -> Result<Box<dyn ValueReader + 'a>, Error> {
        self.0.open().map(|words| Box::new(Values(words)) as _)
    }
}

#[derive(Debug)]
pub(crate) struct Values<'a, const N: usize>(Words<'a, N>);

impl<const N: usize> ValueReader for Values<'_, N> {
    fn read(&mut self, out: &mut [f32]) -> Result<(), Error> {
        let mut words = [[0; N]; 1024];
        for part in out.chunks_mut(words.len()) {
            let words = self.0.next(&mut words[..part.len()]);
            for (value, word) in part.iter_mut().zip(words) {
                let mut bytes = [0; 4];
                bytes[4 - N..].copy_from_slice(word);
                *value = f32::from_le_bytes(bytes);
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        self.0.finish()
    }
}
