//! Sets the C library's allocator for a server, whose large buffers come and go on many threads.
//!
//! glibc gives each busy thread an arena of its own and seldom returns what was freed in one. It also learns from large
//! buffers that were freed to take the next ones from an arena, where small ones that live long then pin what was
//! freed around them. `fl-sim load` prints what a server holds.

/// Limits this process to two arenas and has every buffer of 128 KiB or more mapped by itself and given back when it is
/// freed, where the allocator has such settings. To be called before threads are started. Not for a process that
/// trains: it would map and clear memory for each of its many short-lived tensors.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub fn settle_allocator() {
    let settings = [
        (libc::M_ARENA_MAX, 2),
        (libc::M_MMAP_THRESHOLD, LARGE),
        (libc::M_TRIM_THRESHOLD, LARGE),
    ];
    for (setting, value) in settings {
        // SAFETY: `mallopt` only sets a parameter of the allocator, takes no pointer, and may be called at any time. It
        // returns 0 if it does not know the parameter; then nothing has changed.
        unsafe {
            libc::mallopt(setting, value);
        }
    }
}

/// Bytes from which on a buffer is mapped by itself: below the chunks of a transfer, above everything a connection keeps.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: i32 = 128 * 1024;

/// Undoes that for a command that makes the same large buffers for frame after frame: they are kept and used again, as the
/// system would clear page after page of fresh ones. To be called before threads are started.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub(crate) fn keep_large_buffers() {
    for (setting, value) in [(libc::M_MMAP_THRESHOLD, MOST), (libc::M_TRIM_THRESHOLD, i32::MAX)] {
        // SAFETY: as in `settle_allocator`.
        unsafe {
            libc::mallopt(setting, value);
        }
    }
}

/// The largest size of a buffer that glibc can be told to keep.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MOST: i32 = 32 * 1024 * 1024;

/// This allocator has no such settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn keep_large_buffers() {}

/// This allocator has no such settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn settle_allocator() {}
