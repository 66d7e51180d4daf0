//! Stream of JSON lines from one server, such as a watch.

use serde_json::Value;

use crate::{
    client::description,
    error::{Error, root_cause},
    lines::{LineTooLong, Lines, StreamError},
};

/// Open stream of JSON lines from one server.
#[derive(Debug)]
pub struct Stream {
    url: String,
    lines: Lines,
}

impl Stream {
    pub(crate) const fn new(url: String, lines: Lines) -> Self {
        Self { url, lines }
    }

    /// Returns the URL of the server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the next line as JSON, or `None` if the server closed the stream. Cancel safe.
    ///
    /// # Errors
    /// Returns an error if the connection breaks, if no data arrives within the idle timeout (servers send
    /// heartbeats), or if a line is too long or not JSON.
    pub async fn next(&mut self) -> Result<Option<Value>, Error> {
        let line = self.lines.next().await.map_err(|error| self.failed(&error))?;
        let Some(line) = line else { return Ok(None) };
        serde_json::from_slice(&line).map(Some).map_err(|_| Error::Unexpected {
            url: self.url.clone(),
            found: description(self.lines.response(), &line),
        })
    }

    fn failed(&self, error: &StreamError) -> Error {
        let url = self.url.clone();
        match error {
            StreamError::Broken(cause) => {
                Error::Unreachable { url, cause: root_cause(cause), is_unsent: false }
            }
            StreamError::Silent(after) => Error::TimedOut { url, after: *after },
            StreamError::TooLong(LineTooLong(limit)) => Error::TooLarge { url, limit: *limit },
        }
    }
}
