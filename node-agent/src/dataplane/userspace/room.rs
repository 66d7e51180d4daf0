//! Room for what is received: of the thread, because a read that does not wait needs it only until it is over.
//!
//! A flow or a connection that waits holds none; what has to be kept is copied, as long as it is.

use std::cell::Cell;

/// The longest datagram, and the longest piece of a stream.
const ROOM_BYTES: usize = 64 << 10;

thread_local! {
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lends the room of this thread. Who has it and asks again gets another.
pub(super) fn lend<R>(receive: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut room = ROOM.take();
    room.resize(ROOM_BYTES, 0);
    let received = receive(&mut room);
    ROOM.set(room);
    received
}
