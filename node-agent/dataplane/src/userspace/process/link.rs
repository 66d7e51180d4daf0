//! Connection to a relay process: requests, replies, and the kernel counters of the process.

use std::{
    io::{self, BufReader, BufWriter, ErrorKind, Write as _},
    os::unix::net::UnixStream,
    sync::Arc,
};

use model::{kinds::resource::ServiceKey, wire::report::FailureReason};

use super::{
    frames,
    wire::{self, Answer, FRAME_BYTES_MAX, Refusal, Reply, Request},
};
use crate::{DesiredProgram, KernelCounters, Outcome};

/// Connection to a relay process after a successful greeting.
pub(super) struct RelayConnection {
    stream: BufReader<UnixStream>,
    /// Kernel counters of the relay process in its last reply, from which the next increase is computed.
    counters: KernelCounters,
    /// Heap memory in use by the relay process at its last reply, in bytes; `None` if the allocator does not
    /// report it.
    pub(super) heap_bytes: Option<u64>,
    /// True if the process has received the packet programs of all Services over this connection.
    pub(super) is_complete: bool,
}

impl RelayConnection {
    /// Creates a connection from a socket on which the greeting has been exchanged.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        let stream = BufReader::new(stream);
        let mut link =
            Self { stream, counters: KernelCounters::default(), heap_bytes: None, is_complete: false };
        let _what_others_asked_for = link.ask(&Request::Count)?;
        Ok(link)
    }

    /// Sends a request. Returns the reply, and the increase of the process's counters since the previous
    /// reply.
    pub(super) fn ask(&mut self, request: &Request) -> io::Result<(Result<Reply, Refusal>, KernelCounters)> {
        frames::write(self.stream.get_ref(), request)?;
        let answer = frames::read::<Answer>(&mut self.stream, FRAME_BYTES_MAX)?;
        let (Answer { counters, heap_in_use_bytes, reply }, _) = answer.ok_or(ErrorKind::UnexpectedEof)?;
        self.heap_bytes = heap_in_use_bytes;
        let before = std::mem::replace(&mut self.counters, counters);
        let risen = KernelCounters {
            transactions: counters.transactions.saturating_sub(before.transactions),
            messages: counters.messages.saturating_sub(before.messages),
            bytes: counters.bytes.saturating_sub(before.bytes),
            conntrack_deletions: counters.conntrack_deletions.saturating_sub(before.conntrack_deletions),
        };
        Ok((reply, risen))
    }

    /// Sends packet programs, which the next update of the kernel will use. Returns a failure for each
    /// program that exceeds the message size.
    pub(super) fn stage<'a>(
        &self,
        programs: impl Iterator<Item = (&'a ServiceKey, &'a DesiredProgram)>,
    ) -> io::Result<Vec<(ServiceKey, Outcome)>> {
        let (mut writer, mut too_long) = (BufWriter::new(self.stream.get_ref()), Vec::new());
        for (service, DesiredProgram { revision, program }) in programs {
            let program = Arc::clone(program);
            let request = Request::Stage { service: service.clone(), revision: *revision, program };
            match wire::encode(&request) {
                Ok(frame) => writer.write_all(&frame)?,
                Err(error) => {
                    let (reason, message) = (FailureReason::Unsupported, error.to_string());
                    too_long.push((service.clone(), Outcome::Failed { reason, message }));
                }
            }
        }
        writer.flush()?;
        Ok(too_long)
    }
}
