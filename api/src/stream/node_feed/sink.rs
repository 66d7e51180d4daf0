//! Output of one feed. Buffers the lines of the feed, sends shared chunks unchanged, and compresses with gzip
//! (RFC 1952) if the agent accepts it.

use std::sync::Arc;

use bytes::Bytes;
use flate2::Crc;

use crate::state::frame_batch::{Batch, Chunk, PackedLines};
use crate::{
    base::body_stream::{Gone, PIECE_BYTES, Pieces},
    telemetry::metrics::Metrics,
};

/// Header of a gzip stream (RFC 1952, 2.3): deflate, no flags, no time, fastest compression, Unix.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 3];
/// Empty final deflate block, which ends the stream (RFC 1951, 3.2.6).
const LAST_BLOCK: [u8; 2] = [3, 0];
/// Maximum size in bytes of lines that a compressed stream contains uncompressed, because compressing a heartbeat
/// is not worthwhile.
const STORED_BYTES_MAX: u16 = 512;

/// Output of one feed to its agent, with the lines that are not sent yet.
pub(super) struct Sink {
    pieces: Pieces,
    /// Buffered lines that only this feed sends, such as heartbeats.
    own: Vec<u8>,
    /// State of the gzip stream; `None` if the output is not compressed.
    stream: Option<Stream>,
    metrics: Arc<Metrics>,
}

/// Checksum and length for the trailer of a gzip stream.
#[derive(Default)]
struct Stream {
    has_begun: bool,
    crc: Crc,
}

impl Sink {
    pub(super) fn new(pieces: Pieces, gzip: bool, metrics: Arc<Metrics>) -> Self {
        Self { pieces, own: Vec::new(), stream: gzip.then(Stream::default), metrics }
    }

    /// Waits until the agent has disconnected.
    pub(super) async fn closed(&self) {
        self.pieces.closed().await;
    }

    /// Buffers a line that only this feed sends, such as a heartbeat. Sends the buffered lines once they fill
    /// a piece of the response body.
    pub(super) async fn line(&mut self, line: &Bytes) -> Result<(), Gone> {
        self.metrics.feed_bytes.inc_by(line.len() as u64);
        self.own.extend_from_slice(line);
        if self.own.len() >= PIECE_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Sends a batch of shared lines, after the buffered lines.
    pub(super) async fn batch(&mut self, batch: &Batch) -> Result<(), Gone> {
        self.metrics.feed_objects.inc_by(batch.objects as u64);
        for chunk in &batch.chunks {
            self.chunk(chunk).await?;
        }
        Ok(())
    }

    /// Sends one chunk of a batch.
    pub(super) async fn chunk(&mut self, chunk: &Chunk) -> Result<(), Gone> {
        self.metrics.feed_bytes.inc_by(chunk.length() as u64);
        self.flush().await?;
        let piece = match &mut self.stream {
            None => chunk.plain().clone(),
            Some(stream) => {
                let packed = chunk.packed();
                stream.crc.combine(&packed.crc);
                packed.bytes.clone()
            }
        };
        self.send(piece).await
    }

    /// Sends the buffered lines. The first call also sends the header of a gzip stream.
    pub(super) async fn flush(&mut self) -> Result<(), Gone> {
        let own = std::mem::take(&mut self.own);
        let piece = match &mut self.stream {
            None => own,
            Some(stream) => stream.pack(&own),
        };
        if piece.is_empty() { Ok(()) } else { self.send(Bytes::from(piece)).await }
    }

    async fn send(&mut self, piece: Bytes) -> Result<(), Gone> {
        self.metrics.feed_wire_bytes.inc_by(piece.len() as u64);
        self.pieces.send(piece).await
    }

    /// Ends a gzip stream with its trailer, if the agent is still connected.
    pub(super) async fn finish(mut self) {
        let flushed = self.flush().await;
        if let (Ok(()), Some(stream)) = (flushed, &self.stream) {
            let last = [&LAST_BLOCK[..], &stream.crc.sum().to_le_bytes(), &stream.crc.amount().to_le_bytes()];
            let _ = self.send(Bytes::from(last.concat())).await;
        }
    }
}

impl Stream {
    fn pack(&mut self, own: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        if !std::mem::replace(&mut self.has_begun, true) {
            packed.extend_from_slice(&HEADER);
        }
        match u16::try_from(own.len()) {
            Ok(0) => {}
            Ok(length) if length <= STORED_BYTES_MAX => {
                self.crc.update(own);
                // A stored, non-final block: type, length, and inverted length (RFC 1951, 3.2.4).
                packed.push(0);
                packed.extend_from_slice(&length.to_le_bytes());
                packed.extend_from_slice(&(!length).to_le_bytes());
                packed.extend_from_slice(own);
            }
            Ok(_) | Err(_) => {
                let blocks = PackedLines::of([own]);
                self.crc.combine(&blocks.crc);
                packed.extend_from_slice(&blocks.bytes);
            }
        }
        packed
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use http_body_util::BodyExt;

    use super::*;
    use crate::base::body_stream as stream;

    #[tokio::test]
    async fn own_and_shared_lines_make_one_stream_whose_end_confirms_it() {
        let shared = Chunk::of((0..2000).map(|at| Bytes::from(format!("shared line {at}\n"))).collect());
        let long = Bytes::from("own ".repeat(1000) + "\n");
        let short = Bytes::from("short\n");
        for gzip in [true, false] {
            let (pieces, body) = stream::pieces();
            let mut sink = Sink::new(pieces, gzip, Arc::new(Metrics::new()));
            let written = async {
                sink.chunk(&shared).await.unwrap();
                sink.line(&short).await.unwrap();
                sink.chunk(&shared).await.unwrap();
                sink.line(&long).await.unwrap();
                sink.flush().await.unwrap();
                sink.finish().await;
            };
            let ((), sent) = tokio::join!(written, body.collect());
            let sent = sent.unwrap().to_bytes();
            let mut text = Vec::new();
            if gzip {
                // The decoder verifies the checksum and the length in the trailer.
                GzDecoder::new(&*sent).read_to_end(&mut text).unwrap();
                assert!(sent.len() < text.len() / 2);
            } else {
                text.extend_from_slice(&sent);
            }
            assert_eq!(text, [&**shared.plain(), &short, shared.plain(), &long].concat());
        }
    }
}
