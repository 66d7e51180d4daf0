//! What an agent and a relay process say to each other. Pure.
//!
//! Every message is one frame: its length in four bytes, most significant first, then the message in the form of postcard.
//! First comes a [`Greeting`], which is answered with a [`Welcome`]. Both, and [`Farewell`], have to be understood by
//! relays and agents of any version: they never change. What follows a greeting with [`Intent::Serve`] may change with
//! [`PROTOCOL`], and is spoken only when both sides have the same.
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
        trace::{Packet, Traced},
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::dataplane::{KernelCounters, KernelError, Outcome, Pass, Refusals, Scope, Traffic};

/// The version of what is said after the greeting.
pub const PROTOCOL: u32 = 5;
/// The first bytes of both greetings.
pub const MAGIC: [u8; 8] = *b"tg-relay";
/// The longest greeting, welcome or farewell.
pub const GREETING_BYTES_MAX: usize = 4 << 10;
/// The longest frame: a Service with a million targets fits.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// The bytes before every message that say how long it is.
pub const LENGTH_BYTES: usize = 4;

/// How an agent begins. Never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`PROTOCOL`] of the agent.
    pub protocol: u32,
    /// What the agent wants.
    pub intent: Intent,
}

/// What an agent wants of a relay. Further ones are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Intent {
    /// To look at it, and to say what it should do.
    Serve,
    /// Another relay has taken over: take no new connection, touch no rule, end with the last connection.
    Resign,
    /// Remove the rules, take no new connection, end with the last connection.
    Retire,
    /// Remove the rules and end at once.
    End,
}

/// How a relay answers a greeting. Never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`PROTOCOL`] of the relay.
    pub protocol: u32,
    /// Which program file it runs.
    pub build: String,
    /// Whether it takes new connections.
    pub is_active: bool,
    /// Its network namespace, as the inode of its handle.
    pub namespace: u64,
    /// The packet mark of its capture rules.
    pub mark: u32,
}

/// What came of an intent other than [`Intent::Serve`]. Never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Farewell {
    /// Kernel objects that were removed.
    pub objects: u64,
    /// Whether no connection is left.
    pub is_drained: bool,
    /// Why it could not be done; then everything is as before.
    pub failure: Option<Failure>,
}

/// What an agent asks.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Nothing: only the counters are wanted.
    Count,
    /// As [`crate::dataplane::Dataplane::observe`].
    Observe,
    /// As [`crate::dataplane::Dataplane::is_disturbed`].
    IsDisturbed,
    /// A program for the next pass. Not answered.
    Stage {
        /// Whose.
        service: ServiceKey,
        /// Of which revision.
        revision: Revision,
        /// The program.
        program: Arc<Program>,
    },
    /// As [`crate::dataplane::Dataplane::apply`], with the programs that were staged. Services in scope without a program
    /// are not desired.
    Apply {
        /// The networks.
        networks: Networks,
        /// The scope.
        scope: Scope,
    },
    /// As [`crate::dataplane::Dataplane::traffic`].
    Traffic,
    /// As [`crate::dataplane::Dataplane::preview`], with the programs that were staged, as of [`Self::Apply`].
    Preview {
        /// The networks.
        networks: Networks,
        /// The scope.
        scope: Scope,
    },
    /// As [`crate::dataplane::Dataplane::trace`].
    Trace(Packet),
    /// As [`crate::dataplane::Dataplane::refusals`].
    Refusals,
}

/// What a relay answers.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// What it has done to the kernel since it began.
    pub counters: KernelCounters,
    /// Bytes of memory that it has allocated and not freed, if its allocator says.
    pub heap_in_use_bytes: Option<u64>,
    /// What came of the request.
    pub reply: Result<Reply, Refusal>,
}

/// What came of a request.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// Whether somebody else may have changed the kernel.
    Disturbed(bool),
    /// What came of a pass.
    Passed {
        /// Of every Service in scope that is desired.
        outcomes: BTreeMap<ServiceKey, Outcome>,
        /// Kernel objects that had to be changed.
        writes: u64,
        /// A failure of the whole pass.
        failure: Option<Failure>,
    },
    /// What went through.
    Traffic(Vec<Traffic>),
    /// What a pass would change, if that can be said.
    Preview(Option<Vec<LineChange>>),
    /// What would become of a packet.
    Traced(Option<Traced>),
    /// Who has refused connections.
    Refusals(Vec<Refusals>),
}

/// Why a request was not carried out.
#[derive(Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// The kernel did not play along.
    Failed(Failure),
    /// The rules are not this relay's any more.
    Left,
}

/// A failed exchange with the kernel, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What was tried.
    pub action: String,
    /// The kernel's number for what it said.
    pub errno: Option<i32>,
    /// What it said.
    pub message: String,
}

impl Greeting {
    /// The greeting of this version.
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

/// The frame of a message.
///
/// # Errors
/// When it is longer than a frame may be.
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

/// The message of a frame, without its length.
///
/// # Errors
/// When the bytes are not exactly one message.
pub fn decode<T: DeserializeOwned>(payload: &[u8]) -> io::Result<T> {
    let (message, rest) = postcard::take_from_bytes(payload).map_err(invalid)?;
    if rest.is_empty() { Ok(message) } else { Err(invalid(format!("{} bytes too many", rest.len()))) }
}

/// How many bytes follow.
///
/// # Errors
/// When there are more than `limit`.
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
