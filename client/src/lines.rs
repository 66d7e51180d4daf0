//! Reader of the lines of a streamed response (NDJSON), with limits for the length of a line and for the time
//! without data.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::Response;

/// Buffer that assembles lines from the chunks of a stream, without I/O.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: BytesMut,
    /// Number of bytes at the start of `bytes` that are known to contain no line end.
    searched: usize,
    limit: usize,
}

/// Error for a line that is longer than the limit. Contains the limit in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {0} bytes")]
pub struct LineTooLong(pub usize);

/// Reason why a stream of lines ended early.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The connection broke before the server closed the stream.
    #[error("the stream broke")]
    Broken(#[from] reqwest::Error),
    /// No data arrived within the idle timeout.
    #[error("no data for {0:?}")]
    Silent(Duration),
    /// A line is longer than the limit.
    #[error(transparent)]
    TooLong(#[from] LineTooLong),
}

impl LineBuffer {
    /// Creates an empty buffer for lines of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { bytes: BytesMut::new(), searched: 0, limit }
    }

    /// Appends a chunk of the stream to the buffer.
    pub fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
    }

    /// Removes the next complete line from the buffer and returns it without the line end, or `None` if there
    /// is no complete line. Blank lines are skipped.
    ///
    /// # Errors
    /// Returns an error if the line is longer than the limit, even if its line end has not arrived yet.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        loop {
            let rest = self.bytes.get(self.searched..).unwrap_or_default();
            let end = rest.iter().position(|byte| *byte == b'\n').map(|at| self.searched + at);
            if end.unwrap_or(self.bytes.len()) > self.limit {
                return Err(LineTooLong(self.limit));
            }
            let Some(end) = end else {
                self.searched = self.bytes.len();
                return Ok(None);
            };
            let mut line = self.bytes.split_to(end + 1).freeze();
            self.searched = 0;
            line.truncate(line.trim_ascii_end().len());
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

/// Reader that returns the lines of a streamed response one by one.
#[derive(Debug)]
pub struct Lines {
    response: Response,
    buffer: LineBuffer,
    idle_timeout: Duration,
}

impl Lines {
    /// Creates a reader of lines of at most `limit` bytes. If no data arrives for `idle_timeout`, reading fails.
    #[must_use]
    pub fn new(response: Response, limit: usize, idle_timeout: Duration) -> Self {
        Self { response, buffer: LineBuffer::new(limit), idle_timeout }
    }

    /// Returns the next line without the line end, or `None` if the server closed the stream. An incomplete last
    /// line is dropped. Cancel safe: no data is lost if the future is dropped.
    ///
    /// # Errors
    /// Returns an error if the connection breaks, if no data arrives within the idle timeout, or if a line is too
    /// long.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StreamError> {
        loop {
            if let Some(line) = self.buffer.next_line()? {
                return Ok(Some(line));
            }
            match tokio::time::timeout(self.idle_timeout, self.response.chunk()).await {
                Err(_elapsed) => return Err(StreamError::Silent(self.idle_timeout)),
                Ok(chunk) => match chunk? {
                    Some(chunk) => self.buffer.push(&chunk),
                    None => return Ok(None),
                },
            }
        }
    }

    /// Returns the response whose body is read: its status and headers.
    pub(crate) const fn response(&self) -> &Response {
        &self.response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_assembled_from_any_chunks() {
        let text = b"one\n\ntwo\r\n  \nthree\nrest";
        for size in 1..=text.len() {
            let mut buffer = LineBuffer::new(16);
            let mut lines = Vec::new();
            for chunk in text.chunks(size) {
                buffer.push(chunk);
                while let Some(line) = buffer.next_line().unwrap() {
                    lines.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            assert_eq!(lines, ["one", "two", "three"], "{size}");
        }
    }

    #[test]
    fn a_line_is_limited_with_and_without_its_end() {
        let mut buffer = LineBuffer::new(4);
        buffer.push(b"1234\n");
        assert_eq!(buffer.next_line().unwrap().unwrap(), "1234");
        buffer.push(b"1234");
        assert_eq!(buffer.next_line(), Ok(None));
        buffer.push(b"5");
        assert_eq!(buffer.next_line(), Err(LineTooLong(4)));
        let mut buffer = LineBuffer::new(4);
        buffer.push(b"12345\n");
        assert_eq!(buffer.next_line(), Err(LineTooLong(4)));
    }
}
