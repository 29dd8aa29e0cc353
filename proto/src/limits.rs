//! Every limit of the protocol, with its reason.

use std::time::Duration;

/// Major version of the protocol. Peers of another major version are refused.
pub const PROTOCOL_MAJOR: u32 = 1;
/// Minor version. A newer one only adds what an older peer may ignore.
pub const PROTOCOL_MINOR: u32 = 0;
/// Longest frame on the stream of `Watch`, in bytes: a call of its own costs some 200 bytes, which vanish beside a longer one.
pub const MAX_PUSH: u64 = 16 * 1024;

/// Bytes of a frame in one chunk: large enough that the overhead of a chunk vanishes; small enough that a hundred concurrent
/// uploads need little memory, and that a broken connection loses little, because a partial chunk is sent again as a whole.
pub const CHUNK: usize = 64 * 1024;
/// Longest message that either side reads. A `Run` with the layout of a deep network fits.
pub const MAX_MESSAGE: usize = 512 * 1024;
/// Longest name of a task, in bytes.
pub const MAX_TASK: usize = 64;
/// Tasks that a client may name.
pub const MAX_TASKS: usize = 64;
/// Frames in one fetch; a client that is further behind gets a snapshot.
pub const MAX_CHAIN: usize = 4_096;
/// Longest text of `JoinRequest.software` and `JoinRequest.device`, in bytes; the rest is cut off.
pub const MAX_SOFTWARE: usize = 64;
/// Longest reason of a client that leaves, in bytes; the rest is cut off.
pub const MAX_REASON: usize = 1024;
/// Sections for which an update's header may carry figures, at most ten bytes each: a header is one message.
pub const MAX_FIGURES: usize = 16_384;
/// Most examples that an update may claim; bounds the weight of a lying client.
pub const MAX_EXAMPLES: u64 = 1 << 40;
/// Most metrics of one training or evaluation.
pub const MAX_METRICS: usize = 32;
/// Longest name of a metric, in bytes.
pub const MAX_METRIC_NAME: usize = 64;
/// Longest `[train.extra]` as JSON, in bytes: the reply to `Join` carries it beside the layout.
pub const MAX_EXTRA: usize = 64 * 1024;

/// Most bytes of a `Probe` in each direction: enough to see the rate of a link, little beside a model.
pub const MAX_PROBE: usize = 256 * 1024;

/// Time without a byte after which servers send a ping by default: proxies, routers and balancers close a connection that was idle
/// for 30 s, at the least.
pub const DEFAULT_PING_EVERY: Duration = Duration::from_secs(25);
/// Longest time without a byte after which a server may send a ping.
pub const MAX_PING_EVERY: Duration = Duration::from_secs(600);
/// Time limit of a ping's answer; then the connection is closed.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);
// Time for which sent bytes may have no receipt; then the connection is broken, as where a router has forgotten it.
pub(crate) const RECEIPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of establishing TCP and TLS.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest frame of a model of `values` values and `tensors` tensors: exact coding, section headers, and slack.
pub fn max_frame(values: usize, tensors: usize) -> u64 {
    1024 + 4 * values as u64 + 128 * tensors as u64
}
