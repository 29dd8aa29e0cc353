//! Every limit of the protocol, with its reason.

use std::time::Duration;

/// Version of the protocol: another major is refused.
pub const PROTOCOL_MAJOR: u32 = 1;
/// Minor version: a newer one adds only what may be ignored. 1 added `UpdateHeader.fidelity`, the attempt of an update, and `Leave`.
pub const PROTOCOL_MINOR: u32 = 1;

/// Bytes of a frame in one chunk: large enough that a chunk's overhead vanishes, small enough that a hundred clients sending at
/// once need little memory, and that a connection which breaks in the middle of one loses little: it is sent again as a whole.
pub const CHUNK: usize = 64 * 1024;
/// Longest message that either side reads; a `JoinReply` with the layout of a deep network fits.
pub const MAX_MESSAGE: usize = 512 * 1024;
/// Tasks that a client may name.
pub const MAX_TASKS: usize = 64;
/// Frames in one fetch; a client that is further behind gets a snapshot.
pub const MAX_CHAIN: usize = 4_096;
/// Bytes that are kept of the reason for which a client leaves.
pub const MAX_REASON: usize = 1024;
/// Sections of which an update's header may carry figures, at most ten bytes each: a header is one message.
pub const MAX_FIGURES: usize = 16_384;
/// Examples that an update may claim: bounds what a lying client can weigh.
pub const MAX_EXAMPLES: u64 = 1 << 40;

/// Silence after which a connection is pinged.
pub const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(20);
/// Time a ping may take before the connection is given up.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for TCP and TLS to be established.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest frame for a model of `values` values and `tensors` tensors: exact coding, its section headers, and room.
pub fn max_frame(values: usize, tensors: usize) -> u64 {
    1024 + 4 * values as u64 + 128 * tensors as u64
}
