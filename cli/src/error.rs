//! Every way in which a command can end, and what is said about it.

use std::{io, path::PathBuf, time::Duration};

use serde_json::Value;

/// How the process ends. Stable: scripts depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitCode {
    /// Done; for `status`: nothing is wrong.
    Success,
    /// The server refused, or something failed.
    Failed,
    /// The command line is wrong; for `status`: there are problems.
    Usage,
    /// No answer: the server was not reached, or did not answer in time.
    Unreachable,
}

impl ExitCode {
    /// The number that the process ends with.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
        }
    }
}

/// Why a command did not do what was asked. `Display` is the line after `error:`; hints are apart.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The arguments contradict each other or have the wrong form.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to write instead.
        hint: Option<String>,
    },
    /// The server answered with a problem document.
    #[error("{}", crate::views::render::problem_title(.0))]
    Refused(Box<Problem>),
    /// No connection, or it broke before the answer was complete.
    #[error("cannot reach {url}: {cause}")]
    Unreachable {
        /// Scheme, host and port of the server.
        url: String,
        /// The innermost cause.
        cause: String,
        /// Whether it is certain that the request did not arrive: there was no connection.
        is_unsent: bool,
    },
    /// No answer in time.
    #[error("{url} gave no answer within {} s", .after.as_secs_f32())]
    TimedOut {
        /// Scheme, host and port of the server.
        url: String,
        /// The limit.
        after: Duration,
    },
    /// Something answered, but not as the control API does.
    #[error("{url} answered with something that is not from the control API: {what}")]
    BadAnswer {
        /// Scheme, host and port of the server.
        url: String,
        /// What it was.
        what: String,
    },
    /// An answer is larger than the command reads.
    #[error("the answer of {url} is larger than {} MiB", limit / (1024 * 1024))]
    AnswerTooLarge {
        /// Scheme, host and port of the server.
        url: String,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A file given with `-f` cannot be used.
    #[error("cannot read {}: {cause}", .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// Some of several objects failed; each has been reported.
    #[error("{failed} of {total} failed")]
    Some {
        /// How many.
        failed: usize,
        /// Of how many.
        total: usize,
        /// The worst way in which they ended.
        code: ExitCode,
    },
    /// What was waited for did not come.
    #[error("{name} is not as wanted after {} s: {why_not}", .after.as_secs_f32())]
    NotReached {
        /// What.
        name: String,
        /// How long it was waited for.
        after: Duration,
        /// What stood in the way at last.
        why_not: String,
    },
    /// Connections are left on what was taken out of service.
    #[error("{connections} connections are left after {} s, as far as is known", .after.as_secs())]
    StillOpen {
        /// How many.
        connections: u64,
        /// How long they were waited for.
        after: Duration,
    },
    /// Nothing can be written to stdout.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}

/// A problem document (RFC 9457) as the server sent it.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The document; an object.
    pub(crate) document: Value,
    /// What the items of the request were, for violations whose pointer starts with `/items/N`.
    pub(crate) items: Vec<String>,
}

impl Failure {
    /// A mistake on the command line.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: Some(hint.into()) }
    }

    /// Tells a refusal what the items of the request were.
    pub(crate) fn with_items(mut self, items: Vec<String>) -> Self {
        if let Self::Refused(problem) = &mut self {
            problem.items = items;
        }
        self
    }

    /// The stable code of a refusal.
    pub(crate) fn problem_code(&self) -> Option<&str> {
        match self {
            Self::Refused(problem) => problem.document.get("code").and_then(Value::as_str),
            Self::Usage { .. }
            | Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::BadAnswer { .. }
            | Self::AnswerTooLarge { .. }
            | Self::File { .. }
            | Self::Some { .. }
            | Self::NotReached { .. }
            | Self::StillOpen { .. }
            | Self::Output(_) => None,
        }
    }

    /// How the process ends because of it.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage { .. } => ExitCode::Usage,
            Self::Unreachable { .. } | Self::TimedOut { .. } => ExitCode::Unreachable,
            Self::Refused(_)
            | Self::BadAnswer { .. }
            | Self::AnswerTooLarge { .. }
            | Self::File { .. }
            | Self::NotReached { .. }
            | Self::StillOpen { .. } => ExitCode::Failed,
            Self::Some { code, .. } => *code,
            // `tidegate get svc | head -1` has done what was asked.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::Success,
            Self::Output(_) => ExitCode::Failed,
        }
    }

    /// What to do about it, a line each.
    pub(crate) fn hints(&self) -> Vec<String> {
        match self {
            Self::Usage { hint, .. } => hint.iter().cloned().collect(),
            Self::Unreachable { cause, .. } if cause.contains("invalid peer certificate") => vec![
                "the server's authority is named with --ca-file FILE (PEM), or its hash with --ca-hash sha256:…, as its log says"
                    .to_owned(),
            ],
            Self::Unreachable { url, .. } => vec![
                format!("is tidegate-api running there? `curl {url}/healthz` must answer"),
                "another address is given with --api URL or TIDEGATE_API".to_owned(),
            ],
            Self::TimedOut { .. } => {
                vec!["a longer time is given with --timeout, such as --timeout 2m".to_owned()]
            }
            Self::BadAnswer { .. } => {
                vec![
                    "does --api name the control server (port 7440), not an agent or another service?"
                        .to_owned(),
                ]
            }
            Self::AnswerTooLarge { .. } => {
                vec!["ask for less: -n NAMESPACE, -l SELECTOR or a name".to_owned()]
            }
            Self::NotReached { .. } => {
                vec!["`tidegate describe` shows all of it; a longer time is given with --at-most".to_owned()]
            }
            Self::StillOpen { .. } => vec![
                "what was asked stays: `tidegate drain … --deadline 1s` cuts them, `tidegate undrain …` takes it back".to_owned(),
            ],
            Self::Refused(problem) if problem.status == 401 => vec![
                "a token is given with --token-file FILE or TIDEGATE_TOKEN; who has one with the role admin makes more with `tidegate token create NAME --role ROLE`"
                    .to_owned(),
            ],
            Self::Refused(_) | Self::File { .. } | Self::Some { .. } | Self::Output(_) => Vec::new(),
        }
    }
}
