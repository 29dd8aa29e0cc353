//! Sets the C library's allocator for a server, whose large buffers come and go on many threads.
//!
//! glibc gives each busy thread its own arena and seldom returns freed memory of an arena to the system. It also raises
//! its mapping threshold when large buffers are freed, so that the next ones come from an arena, where small long-lived
//! buffers pin the freed memory around them. `fl-sim load` prints a server's memory.

/// Limits this process to two arenas and maps every buffer of 128 KiB or more by itself, so that it is returned when
/// freed, where the allocator has such settings. Call it before starting threads. Not for a process that
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

/// Buffers of at least so many bytes are mapped by themselves: below a transfer's chunk, above a connection's buffers.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: i32 = 128 * 1024;

/// Undoes [`settle_allocator`] for a command that allocates the same large buffers for each frame: they are reused,
/// since the system would have to clear fresh pages. Call it before starting threads.
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

/// The largest mapping threshold that glibc accepts.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MOST: i32 = 32 * 1024 * 1024;

/// This allocator has no such settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn keep_large_buffers() {}

/// This allocator has no such settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn settle_allocator() {}
