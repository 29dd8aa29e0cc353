//! Buffers that live as long as their thread, so that a training step allocates none of its large temporaries.

use std::cell::RefCell;

thread_local! {
    static SPARE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Most buffers one thread keeps.
const KEEP: usize = 8;

/// Calls `f` with a buffer of `len` values that may hold anything.
pub(super) fn with<T>(len: usize, f: impl FnOnce(&mut [f32]) -> T) -> T {
    let mut buffer = SPARE.with_borrow_mut(|spare| {
        let fitting = spare
            .iter()
            .position(|b| b.len() >= len)
            .or_else(|| spare.len().checked_sub(1));
        fitting.map(|at| spare.swap_remove(at)).unwrap_or_default()
    });
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    let result = f(&mut buffer[..len]);
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < KEEP {
            spare.push(buffer);
        }
    });
    result
}
