//! Protocol between an agent and a relay process. Pure.
//!
//! Every message is one frame: a four-byte big-endian length, then the message encoded with postcard. The
//! first message is a [`Greeting`], answered with a [`Welcome`]. These two and [`Farewell`] never change,
//! because relays and agents of any version must understand them. The messages after a greeting with
//! [`Intent::Serve`] may change with [`PROTOCOL`], and are used only if both sides have the same version.
//!
//! ```text
//! agent                                              relay
//!   Greeting ──────────────────────────────────────▶
//!            ◀──────────────────────────────────────  Welcome
//!   Serve:   Stage*, Apply │ Observe │ …  ──────────▶
//!            ◀──────────────────────────────────────  Answer      (and again)
//!   others:  ◀──────────────────────────────────────  Farewell
//! ```

use std::{collections::BTreeMap, io, sync::Arc};

use model::{
    kinds::resource::ServiceKey,
    primitives::quantity::Revision,
    program::{Program, oracle::Networks},
    wire::{
        plan::LineChange,
        trace::{Packet, PacketTrace},
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{KernelCounters, KernelError, Outcome, Pass, Refusals, Scope, Traffic};

/// Version of the protocol after the greeting.
pub const PROTOCOL: u32 = 5;
/// First bytes of greeting and welcome.
pub const MAGIC: [u8; 8] = *b"tg-relay";
/// Maximum size of a greeting, welcome or farewell, in bytes.
pub const GREETING_BYTES_MAX: usize = 4 << 10;
/// Maximum size of a frame in bytes: a Service with a million targets fits.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// Size of the length field of a frame, in bytes.
pub const LENGTH_BYTES: usize = 4;

/// First message of an agent. Never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`PROTOCOL`] of the agent.
    pub protocol: u32,
    /// Purpose of the connection.
    pub intent: Intent,
}

/// Purpose of an agent's connection. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Intent {
    /// Observe and configure the relay.
    Serve,
    /// Another relay has taken over: accept no new connection, touch no rule, end with the last connection.
    Resign,
    /// Remove the rules, accept no new connection, end with the last connection.
    Retire,
    /// Remove the rules and end at once.
    End,
}

/// Response to a greeting. Never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`PROTOCOL`] of the relay.
    pub protocol: u32,
    /// Identifier of the relay's executable.
    pub build: String,
    /// True if the relay accepts new connections.
    pub is_active: bool,
    /// Network namespace of the relay, as the inode of its handle.
    pub namespace: u64,
    /// Packet mark of its capture rules.
    pub mark: u32,
}

/// Result of an intent other than [`Intent::Serve`]. Never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Farewell {
    /// Number of removed kernel objects.
    pub objects: u64,
    /// True if no connection is left.
    pub is_drained: bool,
    /// Cause of a failure; the state is then unchanged.
    pub failure: Option<Failure>,
}

/// Request of an agent.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Requests only the counters.
    Count,
    /// Like [`crate::Dataplane::observe`].
    Observe,
    /// Like [`crate::Dataplane::is_disturbed`].
    IsDisturbed,
    /// Stages a program for the next pass. Has no reply.
    Stage {
        /// The Service.
        service: ServiceKey,
        /// Revision of the compiled Service.
        revision: Revision,
        /// The program.
        program: Arc<Program>,
    },
    /// Like [`crate::Dataplane::apply`], with the staged programs. Services in scope without a
    /// program are not desired.
    Apply {
        /// The networks.
        networks: Networks,
        /// The scope.
        scope: Scope,
    },
    /// Like [`crate::Dataplane::traffic`].
    Traffic,
    /// Like [`crate::Dataplane::preview`], with the staged programs, as in [`Self::Apply`].
    Preview {
        /// The networks.
        networks: Networks,
        /// The scope.
        scope: Scope,
    },
    /// Like [`crate::Dataplane::trace`].
    Trace(Packet),
    /// Like [`crate::Dataplane::refusals`].
    Refusals,
}

/// Response of a relay.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Kernel counters since the start of the relay.
    pub counters: KernelCounters,
    /// Allocated bytes, if the allocator reports them.
    pub heap_in_use_bytes: Option<u64>,
    /// Result of the request.
    pub reply: Result<Reply, Refusal>,
}

/// Result of a successful request.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Success without data.
    Done,
    /// True if another program may have changed the kernel.
    Disturbed(bool),
    /// Result of a pass.
    Passed {
        /// Outcome of every desired Service in scope.
        outcomes: BTreeMap<ServiceKey, Outcome>,
        /// Number of kernel objects changed.
        writes: u64,
        /// A failure of the whole pass.
        failure: Option<Failure>,
    },
    /// Traffic counters.
    Traffic(Vec<Traffic>),
    /// Changes of a pass, if the backend supports previews.
    Preview(Option<Vec<LineChange>>),
    /// Trace of a packet, if the backend supports traces.
    Traced(Option<PacketTrace>),
    /// Targets that have refused connections.
    Refusals(Vec<Refusals>),
}

/// Reason for which a request failed.
#[derive(Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// The kernel rejected a call.
    Failed(Failure),
    /// This relay no longer owns the rules.
    Left,
}

/// Serializable form of a failed kernel call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The failed action.
    pub action: String,
    /// Error number of the kernel.
    pub errno: Option<i32>,
    /// Error message.
    pub message: String,
}

impl Greeting {
    /// Creates a greeting of this version.
    #[must_use]
    pub const fn new(intent: Intent) -> Self {
        Self { magic: MAGIC, protocol: PROTOCOL, intent }
    }
}

impl From<&KernelError> for Failure {
    fn from(error: &KernelError) -> Self {
        let KernelError { action, source } = error;
        Self { action: action.clone(), errno: source.raw_os_error(), message: source.to_string() }
    }
}

impl From<Failure> for KernelError {
    fn from(failure: Failure) -> Self {
        let Failure { action, errno, message } = failure;
        let source = errno.map_or_else(|| io::Error::other(message), io::Error::from_raw_os_error);
        Self { action, source }
    }
}

impl From<Pass> for Reply {
    fn from(pass: Pass) -> Self {
        let Pass { outcomes, writes, failed } = pass;
        Self::Passed { outcomes, writes, failure: failed.as_ref().map(Failure::from) }
    }
}

/// Encodes a message as a frame.
///
/// # Errors
/// Returns an error if the message exceeds the maximum frame size.
pub fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let frame = postcard::to_extend(message, vec![0; LENGTH_BYTES]).map_err(invalid)?;
    let length = frame.len() - LENGTH_BYTES;
    let length = u32::try_from(length).ok().filter(|_| length <= FRAME_BYTES_MAX).ok_or_else(|| {
        let message = format!("a message of {length} bytes is longer than {FRAME_BYTES_MAX}");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })?;
    let mut frame = frame;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// Decodes the message of a frame, without its length field.
///
/// # Errors
/// Returns an error if the bytes are not exactly one message.
pub fn decode<T: DeserializeOwned>(payload: &[u8]) -> io::Result<T> {
    let (message, rest) = postcard::take_from_bytes(payload).map_err(invalid)?;
    if rest.is_empty() { Ok(message) } else { Err(invalid(format!("{} bytes too many", rest.len()))) }
}

/// Decodes the length field.
///
/// # Errors
/// Returns an error if the length exceeds `limit`.
pub fn length(head: [u8; LENGTH_BYTES], limit: usize) -> io::Result<usize> {
    let length = u32::from_be_bytes(head);
    usize::try_from(length)
        .ok()
        .filter(|length| *length <= limit)
        .ok_or_else(|| invalid(format!("a message of {length} bytes is longer than {limit}")))
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
