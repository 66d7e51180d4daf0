//! Lines of a streamed response (NDJSON), with limits of length and silence.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::Response;

/// Buffer that assembles lines from the chunks of a stream. Pure.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: BytesMut,
    /// Length of the prefix of `bytes` that contains no line end.
    searched: usize,
    limit: usize,
}

/// Error for a line that is longer than the limit, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {0} bytes")]
pub struct LineTooLong(pub usize);

/// Reason for which a stream of lines ended early.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// Connection that broke before the server closed the stream.
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

    /// Appends a chunk of the stream.
    pub fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
    }

    /// Removes the next complete line and returns it without its end. Blank lines are skipped.
    ///
    /// # Errors
    /// Returns an error if the line is longer than the limit, even if its end has not arrived.
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

/// Line reader of a streamed response.
#[derive(Debug)]
pub struct Lines {
    response: Response,
    buffer: LineBuffer,
    idle_timeout: Duration,
}

impl Lines {
    /// Creates a reader of lines of at most `limit` bytes. Silence longer than `idle_timeout` is an error.
    #[must_use]
    pub fn new(response: Response, limit: usize, idle_timeout: Duration) -> Self {
        Self { response, buffer: LineBuffer::new(limit), idle_timeout }
    }

    /// Returns the next line without its end, or `None` if the server closed the stream. An incomplete last
    /// line is dropped. Cancel safe: no data is lost if the future is dropped.
    ///
    /// # Errors
    /// Returns an error if the connection breaks, is silent, or a line is too long.
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

    /// Returns the head of the response.
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
