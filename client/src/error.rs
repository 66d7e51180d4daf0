//! Errors of requests: rejections, missing responses, and responses that do not come from the control API.

use std::{io, time::Duration};

use crate::{problem::Problem, token::TokenError};

/// Error of a request to a control server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server rejected the request with this problem document (RFC 9457).
    #[error("{0}")]
    Rejected(Box<Problem>),
    /// Connection that failed, or that broke before the response was complete.
    #[error("cannot reach {url}: {cause}")]
    Unreachable {
        /// URL of the server.
        url: String,
        /// Text of the root cause of the connection error.
        cause: String,
        /// True if the request certainly did not arrive, because there was no connection.
        is_unsent: bool,
    },
    /// No response, or no further data on a stream, arrived within the time limit.
    #[error("{url} did not respond within {} s", after.as_secs_f32())]
    TimedOut {
        /// URL of the server.
        url: String,
        /// Time limit that was exceeded.
        after: Duration,
    },
    /// Response that does not come from the control API.
    #[error("unexpected response from {url}, which may not be a control server: {found}")]
    Unexpected {
        /// URL of the server that was contacted.
        url: String,
        /// Description of the response, without control characters.
        found: String,
    },
    /// Response larger than the client's limit.
    #[error("the response of {url} is larger than {}", size(*limit))]
    TooLarge {
        /// URL of the server that sent the response.
        url: String,
        /// Maximum size of the response, in bytes.
        limit: usize,
    },
    /// The file or variable with the token is unreadable or contains no valid token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The caller could not store a downloaded response.
    #[error("cannot store the response")]
    Output(#[from] io::Error),
}

impl Error {
    /// Returns the error code of a rejection, such as `NotFound`; `None` for any other error.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Rejected(problem) => {
                Some(&problem.code).filter(|code| !code.is_empty()).map(|code| &**code)
            }
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::Unexpected { .. }
            | Self::TooLarge { .. }
            | Self::Token(_)
            | Self::Output(_) => None,
        }
    }

    /// Returns true if the request certainly did not arrive at the server. In this case even a write can safely be
    /// sent again.
    #[must_use]
    pub const fn is_definitely_unsent(&self) -> bool {
        matches!(self, Self::Unreachable { is_unsent: true, .. } | Self::Token(_))
    }
}

fn size(bytes: usize) -> String {
    const MEBIBYTE: usize = 1024 * 1024;
    if bytes < MEBIBYTE { format!("{bytes} bytes") } else { format!("{} MiB", bytes / MEBIBYTE) }
}

/// Returns the text of the root cause: the last error in the chain of sources, which is usually the most specific.
#[must_use]
pub fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use base::chain;

    use super::*;

    #[test]
    fn causes_are_printed_in_order() {
        let error = Error::Output(io::Error::other("the disk is full"));
        assert_eq!(chain(&error), "cannot store the response: the disk is full");
        assert_eq!(root_cause(&error), "the disk is full");
    }
}
