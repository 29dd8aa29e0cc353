//! Keeps the C library's allocator from setting memory aside for every thread.
//!
//! glibc gives each busy thread an arena of its own and seldom returns what was freed in one. A server whose large
//! buffers come and go on many threads then holds more than it uses; `fl-sim load` prints how much.

/// Limits this process to two arenas, where the allocator has such a thing. To be called before threads are started.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub fn limit_arenas() {
    // SAFETY: `mallopt` only sets a parameter of the allocator, takes no pointer, and may be called at any time. It
    // returns 0 if it does not know the parameter; then nothing has changed.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Limits this process to two arenas, where the allocator has such a thing; this one has not.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn limit_arenas() {}
