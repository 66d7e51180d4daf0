//! Receive buffer shared by all connections of a thread. A non-blocking read needs the buffer only during the
//! call.
//!
//! Waiting flows and connections hold no buffer; bytes that must be kept are copied at their actual size.

use std::cell::Cell;

/// Size of the receive buffer in bytes, which is the maximum size of a datagram and of one read from a
/// stream.
const ROOM_BYTES: usize = 64 << 10;

thread_local! {
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `receive` with the buffer of this thread. A nested call gets a new buffer.
pub(super) fn lend<R>(receive: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut room = ROOM.take();
    room.resize(ROOM_BYTES, 0);
    let received = receive(&mut room);
    ROOM.set(room);
    received
}
