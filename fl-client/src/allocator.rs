//! Sets the C library's allocator for a process that trains: each step allocates and frees tensors of the same sizes.

/// Reuses freed buffers of up to 32 MiB instead of returning them to the system, which would have to clear their pages in
/// every step; all threads share one arena. Where the allocator has no such settings, nothing changes. Call it before
/// starting threads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub fn keep_buffers() {
    /// The largest mapping threshold that glibc accepts.
    const MOST: i32 = 32 * 1024 * 1024;
    let settings = [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, MOST),
        (libc::M_TRIM_THRESHOLD, i32::MAX),
        (libc::M_TOP_PAD, MOST),
    ];
    for (setting, value) in settings {
        // SAFETY: `mallopt` only sets a parameter of the allocator, takes no pointer, and may be called at any time. It
        // returns 0 if it does not know the parameter; then nothing has changed.
        unsafe {
            libc::mallopt(setting, value);
        }
    }
}

/// Returns what [`keep_buffers`] kept to the system: between two rounds a client needs little memory.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub fn release_buffers() {
    // SAFETY: `malloc_trim` takes no pointer, returns only memory that no allocation uses, and may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// This allocator has no such settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_buffers() {}

/// This allocator has no such settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn release_buffers() {}
