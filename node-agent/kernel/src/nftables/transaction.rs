//! nf_tables transactions: sends messages as one batch, and returns the first rejection by the kernel.
//! Contains no decisions.

use std::io;

use super::uapi;
use crate::netlink::{
    socket::Netlink,
    wire::{Attributes, Message, netfilter_header},
};

/// Maximum number of attempts to commit a transaction if other writers interrupt it.
const ATTEMPTS_MAX: u32 = 8;

/// Rejection of a transaction, which the kernel has rolled back as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RejectedTransaction {
    /// Index of the first rejected message; `None` if the batch as a whole was rejected.
    pub message: Option<usize>,
    /// Error number (`errno`) that the kernel returned.
    pub errno: i32,
}

impl RejectedTransaction {
    /// Returns the rejection as an I/O error.
    #[must_use]
    pub fn to_error(self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

/// Sends messages as one transaction.
///
/// The kernel responds to every rejected message, and always to the last one: only that one requests an
/// acknowledgement. Responses arrive in message order, after the commit.
///
/// # Errors
/// Returns an error if the socket fails. A rejection by the kernel is the inner error.
pub fn commit(netlink: &mut Netlink, messages: &[Message]) -> io::Result<Result<(), RejectedTransaction>> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let outcome = commit_once(netlink, messages)?;
        match outcome {
            Err(refused) if is_passing(refused.errno) && attempts < ATTEMPTS_MAX => {}
            Ok(()) | Err(_) => return Ok(outcome),
        }
    }
}

/// Returns true for errors caused by a concurrent transaction of another program, so that a new attempt may
/// succeed.
fn is_passing(errno: i32) -> bool {
    use nix::errno::Errno;
    [Errno::EAGAIN, Errno::EINTR, Errno::EBUSY, Errno::ENOBUFS]
        .into_iter()
        .any(|passing| passing as i32 == errno)
}

fn commit_once(netlink: &mut Netlink, messages: &[Message]) -> io::Result<Result<(), RejectedTransaction>> {
    let Some((last, others)) = messages.split_last() else { return Ok(Ok(())) };
    let mut batch = Vec::new();
    let begin = netlink.next_sequence();
    bracket(uapi::NFNL_MSG_BATCH_BEGIN).encode_into(begin, &mut batch);
    for message in others {
        message.encode_into(netlink.next_sequence(), &mut batch);
    }
    let end = netlink.next_sequence();
    Message { flags: last.flags | uapi::NLM_F_ACK, ..last.clone() }.encode_into(end, &mut batch);
    bracket(uapi::NFNL_MSG_BATCH_END).encode_into(netlink.next_sequence(), &mut batch);
    netlink.send(&batch)?;
    let mut refused = None;
    netlink.receive(|answer| {
        if answer.kind != uapi::NLMSG_ERROR {
            return Ok(false);
        }
        let offset = answer.sequence.wrapping_sub(begin);
        if offset > end.wrapping_sub(begin) {
            return Ok(false);
        }
        if answer.errno() != 0 && refused.is_none() {
            let message = usize::try_from(offset).ok().and_then(|offset| offset.checked_sub(1));
            refused = Some(RejectedTransaction { message, errno: answer.errno() });
        }
        Ok(offset == 0 || answer.sequence == end)
    })?;
    Ok(refused.map_or(Ok(()), Err))
}

fn bracket(kind: u16) -> Message {
    let header = netfilter_header(0, uapi::NFNL_SUBSYS_NFTABLES);
    Message { kind, flags: uapi::NLM_F_REQUEST, header, attributes: Attributes::default() }
}
