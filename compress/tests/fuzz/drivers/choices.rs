//! Interprets the first bytes of an input as choices.

use std::sync::Arc;

use fl_compress::{Code, Layout};

/// The choices at the start of an input; zeros after its end.
pub(super) struct Choices<'a>(pub(super) &'a [u8]);

impl Choices<'_> {
    pub(super) fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    pub(super) fn code(&mut self) -> Code {
        Code::ALL[usize::from(self.u8()) % Code::ALL.len()]
    }

    /// At most 64 by 256.
    pub(super) fn shape(&mut self) -> [usize; 2] {
        [usize::from(self.u8() % 64) + 1, usize::from(self.u8()) + 1]
    }
}

/// Lengths of portions that sum to `len`, mostly short.
pub(super) fn portions(len: usize, mut state: u8) -> Vec<usize> {
    let (mut left, mut portions) = (len, Vec::new());
    while left > 0 {
        state = state.wrapping_mul(141).wrapping_add(57);
        let portion = match state >> 6 {
            0 => 1,
            1 => usize::from(state & 15),
            2 => usize::from(state) * 8,
            _ => usize::from(state) * 32,
        };
        portions.push(portion.clamp(1, left));
        left -= portion.clamp(1, left);
    }
    portions
}

/// Fills `len` places at once and in portions; returns both results.
pub(super) fn both_ways<T: Clone + Default, E>(
    len: usize,
    state: u8,
    mut decode: impl FnMut(&[usize], &mut [T]) -> Result<(), E>,
) -> [Result<Vec<T>, E>; 2] {
    let once = if len > 0 { vec![len] } else { Vec::new() };
    [once, portions(len, state)].map(|portions| {
        let mut out = vec![T::default(); len];
        decode(&portions, &mut out).map(|()| out)
    })
}

/// Layouts of the frames under test.
pub(super) fn layout(choice: u8) -> Arc<Layout> {
    let tensors = match choice % 4 {
        // The layout of the golden frames.
        0 => vec![("bias", vec![3]), ("weight", vec![4, 4])],
        1 => vec![
            ("a", vec![40, 30]),
            ("b", vec![5]),
            ("c", vec![]),
            ("d", vec![5000]),
            ("e", vec![2, 3]),
        ],
        2 => vec![("weight", vec![600])],
        _ => vec![],
    };
    Arc::new(Layout::new(tensors).expect("within all limits"))
}
