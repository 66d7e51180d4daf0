//! Client of the control servers. If the current server fails, the client switches to the next one; retries
//! are left to the caller.

use std::time::Duration;

use client::{Client, Connection, Failover, Limits, Options, SetupError};

pub use client::{Error, Pin, Problem, Request};

/// Connect timeout; another server may be available.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of requests other than streams.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time without any data on a watch; servers send a heartbeat at least every 10 s.
const SILENCE_MAX: Duration = Duration::from_secs(35);
/// Minimum delay before a retry.
pub(crate) const RETRY_MIN: Duration = Duration::from_millis(100);

/// Connection of an adapter to the control servers.
pub type Control = Client;

/// Creates a client of the control servers. Its writes are recorded in the change history with `author` as
/// their author.
///
/// # Errors
/// Returns an error naming the flag if a setting is invalid.
pub fn connect(connection: Connection, author: String) -> Result<Control, SetupError> {
    let options = Options {
        user_agent: concat!("tidegate-sync/", env!("CARGO_PKG_VERSION")),
        author: Some(author),
        connect_timeout: CONNECT_TIMEOUT,
        timeout: REQUEST_TIMEOUT,
        idle_timeout: SILENCE_MAX,
        // Applying an apply set, and deleting an object in a known state, can be repeated.
        failover: Failover::Repeatable,
        min_position: None,
        reads_own_writes: false,
        limits: Limits::default(),
        trace_parent: None,
        on_send: None,
    };
    Client::new(connection, options)
}

/// Returns true if the server would reject the same request again. Status 401 counts as temporary, because a
/// token may be about to be rotated.
pub(crate) const fn is_final(problem: &Problem) -> bool {
    !problem.is_transient() && problem.status != 401
}
