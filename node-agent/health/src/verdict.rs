//! Result of one check: success, failure, or no information about the endpoint, each with a message.

use std::io;

use kernel::connection_error::ConnectionError;
use model::wire::report::{CHECK_MESSAGE_BYTES_MAX, CONNECTION_REFUSED};

/// Result of a check, by kind. Used as the value of a metric label, and therefore a small, fixed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Success: the endpoint sent the expected response.
    Good,
    /// Failure: the endpoint refused or closed the connection.
    Refused,
    /// Failure: no route leads to the endpoint, or a firewall rejects packets to it.
    Unreachable,
    /// Failure: the endpoint did not respond within the timeout.
    Silent,
    /// Failure: the endpoint sent an unexpected response.
    WrongAnswer,
    /// Failure: the TLS handshake failed, or the certificate is invalid.
    Tls,
    /// No information: this machine could not run the check. Counts neither as success nor as failure.
    NotAsked,
}

impl Outcome {
    /// Returns the value of the metric label `result`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Silent => "silent",
            Self::WrongAnswer => "wrong_answer",
            Self::Tls => "tls",
            Self::NotAsked => "not_asked",
        }
    }
}

/// Result of a check: outcome and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Kind of the result, which determines if it counts as success, as failure or not at all.
    pub outcome: Outcome,
    /// Message for operators, such as `connection refused`. The message is printable, limited in length and
    /// never empty.
    pub words: String,
}

impl Verdict {
    /// Creates a verdict. Control characters in the message are replaced with spaces and its length is
    /// limited, because the message may contain text from the remote side.
    #[must_use]
    pub fn new(outcome: Outcome, words: impl AsRef<str>) -> Self {
        Self { outcome, words: presentable(words.as_ref()) }
    }

    /// Creates the verdict for an I/O error of the connection to an endpoint.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Self {
        match ConnectionError::of(error) {
            ConnectionError::OwnFault => {
                Self::new(Outcome::NotAsked, format!("this node could not ask: {error}"))
            }
            ConnectionError::Unreachable => {
                Self::new(Outcome::Unreachable, "there is no route to the endpoint")
            }
            ConnectionError::Refused => Self::new(Outcome::Refused, CONNECTION_REFUSED),
            ConnectionError::TimedOut => Self::new(Outcome::Silent, "no answer"),
            ConnectionError::Reset => Self::new(Outcome::Refused, "the connection was reset"),
            ConnectionError::Closed => {
                Self::new(Outcome::Refused, "the connection was closed without an answer")
            }
            ConnectionError::Other => Self::new(Outcome::WrongAnswer, format!("failed: {error}")),
        }
    }
}

/// Replaces control characters with spaces, and truncates a text to the maximum size of a message in a
/// report. An empty text becomes `failed`.
#[must_use]
pub fn presentable(text: &str) -> String {
    let mut shown = String::new();
    for character in text.trim().chars() {
        let character = if character.is_control() { ' ' } else { character };
        if shown.len() + character.len_utf8() > CHECK_MESSAGE_BYTES_MAX - '…'.len_utf8() {
            shown.push('…');
            break;
        }
        shown.push(character);
    }
    if shown.is_empty() { "failed".to_owned() } else { shown }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn faults_of_this_machine_are_not_those_of_the_endpoint() {
        let of = |errno: Errno| Verdict::of_io(&io::Error::from_raw_os_error(errno as i32)).outcome;
        assert_eq!(of(Errno::EMFILE), Outcome::NotAsked);
        assert_eq!(of(Errno::EADDRNOTAVAIL), Outcome::NotAsked);
        assert_eq!(of(Errno::ECONNREFUSED), Outcome::Refused);
        assert_eq!(of(Errno::EHOSTUNREACH), Outcome::Unreachable);
        assert_eq!(of(Errno::ECONNRESET), Outcome::Refused);
    }

    #[test]
    fn words_of_others_are_bounded_and_printable() {
        let shown = presentable(&"ä\u{7}\n".repeat(1000));
        assert!(shown.len() <= CHECK_MESSAGE_BYTES_MAX && shown.ends_with('…'));
        assert!(!shown.chars().any(char::is_control));
        assert_eq!(presentable(" \n"), "failed");
    }
}
