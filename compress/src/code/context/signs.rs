//! Signs of a matrix, predicted from the signs of the same column and the same row.

use crate::code::context::chance::Chance;
use crate::code::context::coder::Binary;
use crate::layout::Shape;

// Bound of a balance, so that it can reverse soon.
const MOST: i8 = 12;

#[derive(Debug)]
pub(crate) struct Signs {
    /// Positive minus negative values of each column; empty for a single row.
    columns: Vec<i8>,
    /// Positive minus negative values of the row.
    row: i8,
    /// Values of the row that agree with the sign of their column, minus those that do not.
    agreed: i8,
    chances: [[[Chance; 3]; 3]; 6],
    any: [Chance; 6],
}

impl Signs {
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            columns: vec![0; if shape.rows > 1 { shape.cols } else { 0 }],
            row: 0,
            agreed: 0,
            chances: [[[Chance::NEW; 3]; 3]; 6],
            any: [Chance::NEW; 6],
        }
    }

    /// Codes the sign of a value, as whether it differs from the majority sign of its column.
    #[inline(always)]
    pub(crate) fn code(&mut self, coder: &mut impl Binary, col: usize, negative: bool) -> bool {
        let (flip, [sure, row, agreed]) = self.context(col);
        let chance = &mut self.chances[sure][row][agreed];
        let against = coder.code_in(chance, &mut self.any[sure], negative != flip);
        let negative = against != flip;
        if sure > 0 {
            step(&mut self.agreed, against);
        }
        step(&mut self.row, negative);
        if let Some(balance) = self.columns.get_mut(col) {
            step(balance, negative);
        }
        negative
    }

    /// Cost of a sign, if it is the next one (see [`Chance::cost`]).
    #[inline(always)]
    pub(crate) fn cost(&self, col: usize, negative: bool) -> u32 {
        let (flip, [sure, row, agreed]) = self.context(col);
        let chance = self.chances[sure][row][agreed].inherited(self.any[sure]);
        chance.cost(negative != flip)
    }

    /// Whether most signs of the column are negative, and the context.
    #[inline(always)]
    fn context(&self, col: usize) -> (bool, [usize; 3]) {
        let balance = self.columns.get(col).copied().unwrap_or_default();
        let flip = balance < 0;
        let sure = match balance.unsigned_abs() {
            0 => 0,
            1 => 1,
            2 => 2,
            3..=4 => 3,
            5..=7 => 4,
            _ => 5,
        };
        let row = lean(if flip { -self.row } else { self.row });
        (flip, [sure, row, lean(self.agreed)])
    }

    pub(crate) fn end_row(&mut self) {
        (self.row, self.agreed) = (0, 0);
    }
}

fn lean(balance: i8) -> usize {
    match balance {
        ..-1 => 0,
        -1..=1 => 1,
        _ => 2,
    }
}

fn step(balance: &mut i8, down: bool) {
    *balance = (*balance + if down { -1 } else { 1 }).clamp(-MOST, MOST);
}
