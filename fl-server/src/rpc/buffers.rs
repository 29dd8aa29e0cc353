//! Memory for frames that are read back from their files to be verified. It is used again: fresh pages cost as much as the
//! reading.

use std::sync::Mutex;

use crate::lock::lock;

/// A larger buffer is freed after its use.
const MOST_KEPT: usize = 8 * 1024 * 1024;

/// Buffers that are not in use. As many as verifications run at once, at most.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// Calls `work` with an empty buffer.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut buffer = lock(&self.0).pop().unwrap_or_default();
        buffer.clear();
        let done = work(&mut buffer);
        if buffer.capacity() > 0 && buffer.capacity() <= MOST_KEPT {
            lock(&self.0).push(buffer);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_unless_it_is_large() {
        let buffers = Buffers::default();
        let pointer = buffers.with(|buffer| {
            buffer.resize(1_000, 1);
            buffer.as_ptr()
        });
        buffers.with(|buffer| {
            assert!(buffer.is_empty() && buffer.as_ptr() == pointer);
            buffers.with(|other| assert_eq!(other.capacity(), 0));
            buffer.reserve_exact(MOST_KEPT + 1);
        });
        buffers.with(|buffer| assert_eq!(buffer.capacity(), 0));
    }
}
