//! Runs kernels compiled for the vector instructions of this processor.
//!
//! A kernel is written once, as plain loops in an `#[inline(always)]` function, and compiled for the baseline of the target,
//! for AVX2 and for AVX-512. Rust neither reorders nor fuses floating-point operations, so all of them compute the same bits:
//! neither a decoder nor an encoder depends on the machine.

use std::sync::LazyLock;

use pulp::Arch;

// The environment variable that forbids vector instructions beyond the baseline of the target, if it is `baseline`.
// Results are the same; only the speed differs.
const VARIABLE: &str = "FL_COMPRESS_SIMD";

static ARCH: LazyLock<Arch> = LazyLock::new(|| match std::env::var(VARIABLE).as_deref() {
    Ok("baseline") => Arch::Scalar,
    _ => Arch::new(),
});

/// Runs `kernel`, compiled for this processor. What it calls must be `#[inline(always)]`.
#[inline(always)]
pub(crate) fn vectorized<R>(kernel: impl FnOnce() -> R) -> R {
    ARCH.dispatch(kernel)
}
