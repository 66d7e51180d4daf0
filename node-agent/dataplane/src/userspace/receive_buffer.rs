//! Receive buffer per thread. A non-blocking read needs the buffer only during the call.
//!
//! Waiting flows and connections hold no buffer; bytes that must be kept are copied at their actual size.

use std::cell::Cell;

/// Maximum size of a datagram and of a chunk of a stream, in bytes.
const ROOM_BYTES: usize = 64 << 10;

thread_local! {
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lends the buffer of this thread. A nested call gets a new one.
pub(super) fn lend<R>(receive: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut room = ROOM.take();
    room.resize(ROOM_BYTES, 0);
    let received = receive(&mut room);
    ROOM.set(room);
    received
}
