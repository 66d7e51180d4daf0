//! Limits on the responses that clients have not received yet.

use std::time::Duration;

/// Maximum number of response bytes of all clients that are created and not sent yet. Sixteen pages of a listing,
/// which is little beside the state of a large cluster.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Maximum number of such bytes of one token, agent, or address without credentials: a quarter of all.
const BYTES_PER_CALLER_MAX: u64 = 16 * 1024 * 1024;
/// Maximum time in which a client must accept some bytes of a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Limits on the responses that clients have not received yet. Streams (feeds and watches) have limits of their
/// own, except for the time limit.
#[derive(Debug, Clone, Copy)]
pub struct ResponseLimits {
    /// Maximum number of response bytes of all clients that are created and not sent yet.
    pub bytes_max: u64,
    /// Maximum number of such bytes of one token, agent, or address without credentials.
    pub bytes_per_caller_max: u64,
    /// Time without progress of a response after which its connection is closed.
    pub write_timeout: Duration,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self {
            bytes_max: BYTES_MAX,
            bytes_per_caller_max: BYTES_PER_CALLER_MAX,
            write_timeout: WRITE_TIMEOUT,
        }
    }
}
