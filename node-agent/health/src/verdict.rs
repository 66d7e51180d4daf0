//! Verdict of one check: success, failure, or no evidence about the endpoint; with a message.

use std::io;

use kernel::connection_error::ConnectionError;
use model::wire::report::CHECK_MESSAGE_BYTES_MAX;

/// Outcome of a check; a small fixed set used as metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The expected response.
    Good,
    /// The connection was refused or closed.
    Refused,
    /// There is no route to the endpoint.
    Unreachable,
    /// No response within the timeout.
    Silent,
    /// An unexpected response.
    WrongAnswer,
    /// The TLS handshake failed or the certificate is invalid.
    Tls,
    /// This machine could not run the check. No evidence about the endpoint; counts neither way.
    NotAsked,
}

impl Outcome {
    /// Returns the metric label.
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

/// Outcome of a check with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Outcome.
    pub outcome: Outcome,
    /// Message, such as `connection refused`; never empty, printable, of bounded length.
    pub words: String,
}

impl Verdict {
    /// Creates a verdict. The message is sanitized because it may contain remote text.
    #[must_use]
    pub fn new(outcome: Outcome, words: impl AsRef<str>) -> Self {
        Self { outcome, words: presentable(words.as_ref()) }
    }

    /// Creates the verdict for an I/O error of a connection.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Self {
        match ConnectionError::of(error) {
            ConnectionError::OwnFault => {
                Self::new(Outcome::NotAsked, format!("this node could not ask: {error}"))
            }
            ConnectionError::Unreachable => {
                Self::new(Outcome::Unreachable, "there is no route to the endpoint")
            }
            ConnectionError::Refused => Self::new(Outcome::Refused, "connection refused"),
            ConnectionError::TimedOut => Self::new(Outcome::Silent, "no answer"),
            ConnectionError::Reset => Self::new(Outcome::Refused, "the connection was reset"),
            ConnectionError::Closed => {
                Self::new(Outcome::Refused, "the connection was closed without an answer")
            }
            ConnectionError::Other => Self::new(Outcome::WrongAnswer, format!("failed: {error}")),
        }
    }
}

/// Removes control characters and truncates a text to the limit of a report.
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
