//! Splits a received byte stream into BGP messages. Does no I/O.

use ::bgp::{
    Notification,
    wire::{self, Context, HEADER_BYTES},
};

/// Receive buffer with bytes not parsed yet: at most one incomplete message plus the bytes of one read.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Offset of the first byte that has not been parsed yet.
    start: usize,
}

impl Frames {
    /// Appends received bytes to the buffer.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        // Consumed bytes are dropped before new ones are added, so the buffer is bounded.
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete message, or the NOTIFICATION that rejects an invalid header; `None` if the
    /// message is incomplete.
    pub(super) fn next(&mut self, context: &Context) -> Option<Result<&[u8], Notification>> {
        let waiting = &self.bytes[self.start..];
        let header: &[u8; HEADER_BYTES] = waiting.first_chunk()?;
        let length = match wire::frame_length(header, context) {
            Ok(length) => length,
            Err(notification) => return Some(Err(notification)),
        };
        let frame = waiting.get(..length)?;
        self.start += length;
        Some(Ok(frame))
    }
}

#[cfg(test)]
mod tests {
    use ::bgp::Message;

    use super::*;

    #[test]
    fn messages_come_out_however_the_bytes_are_cut() {
        let context = Context::default();
        let keepalive = wire::encode(&Message::Keepalive, &context).unwrap();
        let three = keepalive.repeat(3);
        for size in 1..=three.len() {
            let (mut frames, mut found) = (Frames::default(), 0);
            for chunk in three.chunks(size) {
                frames.push(chunk);
                while let Some(frame) = frames.next(&context) {
                    assert_eq!(frame, Ok(&keepalive[..]));
                    found += 1;
                }
            }
            assert_eq!(found, 3, "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_message_is_answered() {
        let mut frames = Frames::default();
        frames.push(&[0; HEADER_BYTES]);
        assert_eq!(frames.next(&Context::default()).unwrap().unwrap_err().code, 1);
    }
}
