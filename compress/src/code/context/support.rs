//! The support of a matrix: its flags up to the last nonzero value.

use crate::code::context::coder::{Decoder as Decisions, Encoder};
use crate::code::context::columns::GROUP;
use crate::code::context::flags::Flags;
use crate::layout::Shape;

/// Appends ascending `indices` below `shape.len()`.
#[inline(never)]
pub(crate) fn encode(indices: &[u32], shape: Shape, out: &mut Vec<u8>) {
    let mut flags = Flags::new(shape);
    let mut coder = Encoder::new(out);
    let mut start = 0u64;
    let mut left = indices;
    while !left.is_empty() {
        let width = flags.width();
        let end = start + width as u64;
        let mut mask = 0;
        while let Some((&index, rest)) = left.split_first().filter(|&(&index, _)| u64::from(index) < end) {
            mask |= 1 << (u64::from(index) - start);
            left = rest;
        }
        flags.code(&mut coder, mask);
        end_group(&mut flags, mask);
        start = end;
    }
    coder.finish();
}

fn end_group(flags: &mut Flags, mask: u32) {
    let col = flags.col();
    let mut left = mask;
    while left != 0 {
        flags.add(col + left.trailing_zeros() as usize, 1);
        left &= left - 1;
    }
    flags.end_group(mask.count_ones());
}

/// Decodes indices in order. Past the end it returns arbitrary ones, and [`Decoder::finish`] returns `false`.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    coder: Decisions<'a>,
    flags: Box<Flags>,
    /// Index of the first value of the current group, and of the next one.
    start: u64,
    next: u64,
    len: u64,
    /// Nonzero values of the group that are not returned yet.
    mask: u32,
}

impl<'a> Decoder<'a> {
    /// Opens `bytes`, with indices below `shape.len()`.
    pub(crate) fn new(bytes: &'a [u8], shape: Shape) -> Self {
        Self {
            coder: Decisions::new(bytes),
            flags: Box::new(Flags::new(shape)),
            start: 0,
            next: 0,
            len: shape.len() as u64,
            mask: 0,
        }
    }

    /// Fills `out` with the next indices, ascending; returns `false` if the tensor ends first.
    #[inline(never)]
    pub(crate) fn read(&mut self, out: &mut [u32]) -> bool {
        let mut coder = self.coder;
        for index in out {
            while self.mask == 0 {
                if self.next >= self.len {
                    return false;
                }
                self.start = self.next;
                self.next += self.flags.width() as u64;
                self.mask = self.flags.code(&mut coder, 0);
                end_group(&mut self.flags, self.mask);
            }
            *index = (self.start + u64::from(self.mask.trailing_zeros())) as u32;
            self.mask &= self.mask - 1;
        }
        self.coder = coder;
        true
    }

    /// Whether the stream ends here and every index was read.
    pub(crate) fn finish(&self) -> bool {
        self.mask == 0 && self.coder.ends()
    }
}

// `Decoder::mask` has one bit for each value of a group.
const _: () = assert!(GROUP <= 32);
