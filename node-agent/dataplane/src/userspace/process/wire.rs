//! Protocol between an agent and a relay process. Does no I/O.
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

/// Version of the messages that follow a greeting. Increased by every change of their encoding.
pub const PROTOCOL: u32 = 8;
/// First field of every greeting and welcome, by which a wrong peer is detected.
pub const MAGIC: [u8; 8] = *b"tg-relay";
/// Maximum size of a greeting, welcome or farewell, in bytes.
pub const GREETING_BYTES_MAX: usize = 4 << 10;
/// Maximum size of a frame in bytes: a Service with a million targets fits.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// Size of the length field of a frame, in bytes.
pub const LENGTH_BYTES: usize = 4;

/// First message that an agent sends to a relay process. The encoding is the same in all versions, so that an agent
/// and a relay process of different versions can compare their protocol numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Value of [`MAGIC`]; any other value is rejected.
    pub magic: [u8; 8],
    /// Value of [`PROTOCOL`] in the agent.
    pub protocol: u32,
    /// Purpose for which the agent connects.
    pub intent: Intent,
}

/// Purpose of an agent's connection. New variants are added at the end, because the encoding contains the
/// index of the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Intent {
    /// Intent to observe and configure the relay.
    Serve,
    /// Intent to end this relay because another has taken over: accept no new connection, touch no rule, end
    /// with the last connection.
    Resign,
    /// Intent to end userspace mode: remove the rules, accept no new connection, end with the last
    /// connection.
    Retire,
    /// Intent to end at once: remove the rules and terminate all connections.
    End,
}

/// Response to a greeting. Never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Value of [`MAGIC`]; any other value is rejected.
    pub magic: [u8; 8],
    /// Value of [`PROTOCOL`] in the relay.
    pub protocol: u32,
    /// Identifier of the relay's executable, by which an agent detects a relay of another build.
    pub build: String,
    /// True if the relay accepts new connections.
    pub is_active: bool,
    /// Network namespace of the relay, as the inode number of its handle.
    pub namespace: u64,
    /// Packet mark used by the rules that redirect connections to the relay.
    pub mark: u32,
}

/// Result of an intent other than [`Intent::Serve`]. Never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Farewell {
    /// Number of kernel objects that the relay removed.
    pub objects: u64,
    /// True if the relay has no connection left.
    pub is_drained: bool,
    /// Kernel call that failed, after which the relay continues to serve as before; `None` on success.
    pub failure: Option<Failure>,
}

/// Request of an agent on a connection with [`Intent::Serve`].
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Request without an action. Used to read the counters, which every answer contains.
    Count,
    /// Request to read the kernel; calls [`crate::Dataplane::observe`].
    Observe,
    /// Request to check for changes by other programs; calls [`crate::Dataplane::is_disturbed`].
    IsDisturbed,
    /// Request to store the desired packet program of a Service for the next [`Self::Apply`] or
    /// [`Self::Preview`]. Has no reply.
    Stage {
        /// Service to which the packet program belongs.
        service: ServiceKey,
        /// Revision of the compiled Service from which the packet program was built.
        revision: Revision,
        /// Packet program of the Service.
        program: Arc<Program>,
    },
    /// Request to update the kernel; calls [`crate::Dataplane::apply`] with the packet programs that the
    /// preceding [`Self::Stage`] requests delivered. Services in scope without a packet program are removed.
    Apply {
        /// Workload, masquerading and node port networks, which apply to the rules of all Services.
        networks: Networks,
        /// Services to which the update is limited, or everything.
        scope: Scope,
    },
    /// Request for the traffic counters; calls [`crate::Dataplane::traffic`].
    Traffic,
    /// Request for the lines that an update of the kernel would change; calls [`crate::Dataplane::preview`]
    /// with the packet programs of the preceding [`Self::Stage`] requests.
    Preview {
        /// Workload, masquerading and node port networks, which apply to the rules of all Services.
        networks: Networks,
        /// Services to which the update would be limited, or everything.
        scope: Scope,
    },
    /// Request to trace this packet; calls [`crate::Dataplane::trace`].
    Trace(Packet),
    /// Request for the refused connections; calls [`crate::Dataplane::refusals`].
    Refusals,
}

/// Answer of a relay to one request.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Counters of kernel writes since the relay was started.
    pub counters: KernelCounters,
    /// Heap memory in use by the relay in bytes; `None` if the allocator does not report it.
    pub heap_in_use_bytes: Option<u64>,
    /// Result of the request, or the reason for its failure.
    pub reply: Result<Reply, Refusal>,
}

/// Result of a successful request.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Result without data.
    Done,
    /// Result of [`Request::IsDisturbed`]: true if another program may have changed the kernel.
    Disturbed(bool),
    /// Result of [`Request::Apply`]: the outcome per Service, or a failure of the whole kernel update.
    Passed {
        /// Outcome of every desired Service in scope.
        outcomes: BTreeMap<ServiceKey, Outcome>,
        /// Number of kernel objects that the update created, changed or removed.
        writes: u64,
        /// Failure of the whole update, after which the kernel state is unknown; `None` on success.
        failure: Option<Failure>,
    },
    /// Result of [`Request::Traffic`]: traffic counters per target.
    Traffic(Vec<Traffic>),
    /// Result of [`Request::Preview`]: lines that an update of the kernel would remove and add; `None` if
    /// the rules cannot be previewed.
    Preview(Option<Vec<LineChange>>),
    /// Result of [`Request::Trace`]; `None` if the backend does not support traces.
    Traced(Option<PacketTrace>),
    /// Result of [`Request::Refusals`]: targets that have refused connections since the last one that they
    /// accepted.
    Refusals(Vec<Refusals>),
}

/// Reason for which a request of an agent failed.
#[derive(Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// A kernel call that the request required has failed; contains the error.
    Failed(Failure),
    /// Another relay has taken over the rules, so that this relay must not read or change them.
    Left,
}

/// Failed kernel call in a form that can be sent to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Action that failed, such as `committing 12 nf_tables messages`.
    pub action: String,
    /// Error number (`errno`) that the kernel returned; `None` for other errors.
    pub errno: Option<i32>,
    /// Text of the error.
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
