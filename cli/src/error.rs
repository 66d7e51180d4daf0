//! Outcomes of a command, with exit codes and hints.

use std::{io, path::PathBuf, time::Duration};

use client::Error;

/// Exit code of the process. Stable, because scripts depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitCode {
    /// The command succeeded; for `status`, the cluster also has no problems.
    Success,
    /// The server rejected the request, or the command failed for a reason not covered by another code.
    Failed,
    /// The command line is invalid.
    Usage,
    /// Negative result: problems in `status` or `doctor`, a failing step in `explain`, changes in `plan`, harm in `what-if`, or a state that
    /// `confirm` shows for confirmation.
    Problems,
    /// The server is unreachable or did not respond in time.
    Unreachable,
    /// Result of `status --check`, with the exit codes of monitoring plugins.
    Check(CheckState),
}

/// Result of `status --check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckState {
    /// There are no problems.
    Ok,
    /// There are problems, and users can connect.
    Warning,
    /// Users cannot connect.
    Critical,
    /// The state is unknown: the server is unreachable, or the command line is invalid.
    Unknown,
}

impl CheckState {
    /// Returns the word of monitoring plugins.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

impl ExitCode {
    /// Returns the numeric exit code.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Problems => 3,
            Self::Unreachable => 4,
            Self::Check(CheckState::Ok) => 0,
            Self::Check(CheckState::Warning) => 1,
            Self::Check(CheckState::Critical) => 2,
            Self::Check(CheckState::Unknown) => 3,
        }
    }
}

/// Failure of a command. `Display` is the line after `error:`; hints are separate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Arguments that are malformed or contradict each other.
    #[error("{message}")]
    Usage {
        /// Error text without the remedy.
        message: String,
        /// Text that explains the remedy, if there is one.
        hint: Option<String>,
    },
    /// Rejection by the server, with its problem document.
    #[error("{}", crate::views::render::problem_title(.0))]
    Refused(Box<Problem>),
    /// Error of a request to which the control API sent no usable response.
    #[error(transparent)]
    Control(Error),
    /// Unusable file given with `-f`.
    #[error("cannot read {}: {cause}", .path.display())]
    File {
        /// Path of the file that cannot be used.
        path: PathBuf,
        /// Text of the underlying error.
        cause: String,
    },
    /// State of this machine or of its cluster that prevents the command.
    #[error("{message}")]
    Machine {
        /// Error text without the remedy.
        message: String,
        /// Text that explains the remedy.
        hint: String,
    },
    /// Failure for some objects of a request. The outcome of each object has already been printed.
    #[error("{failed} of {total} failed")]
    Some {
        /// Number of objects that failed.
        failed: usize,
        /// Number of objects in the request.
        total: usize,
        /// Highest exit code of the failures.
        code: ExitCode,
    },
    /// Goal of `wait` that was not reached within its timeout.
    #[error("{name} did not reach the goal within {} s: {why_not}", .after.as_secs_f32())]
    NotReached {
        /// Name of the object, or of the nodes, that was waited for.
        name: String,
        /// Time waited before the command stopped.
        after: Duration,
        /// Reason why the goal was not reached, as of the last poll.
        why_not: String,
    },
    /// Connections of a drained object that were still established at the timeout.
    #[error("{connections} connections are left after {} s, according to the last reports", .after.as_secs())]
    StillOpen {
        /// Number of connections that were still established at the timeout.
        connections: u64,
        /// Time waited before the command stopped.
        after: Duration,
    },
    /// I/O error while the result was written to stdout.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}

/// Rejection by the server, with the names of the objects in the rejected request.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    /// Problem document of the response.
    pub(crate) rejection: client::Problem,
    /// Names of the objects in the request, for violations whose pointer starts with `/items/N`.
    pub(crate) items: Vec<String>,
}

impl Failure {
    /// Creates a usage error with a hint.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: Some(hint.into()) }
    }

    /// Returns true if the server sent no usable response, so that its URL may be wrong.
    pub(crate) const fn is_of_connection(&self) -> bool {
        matches!(self, Self::Control(Error::Unreachable { .. } | Error::Unexpected { .. }))
    }

    /// Adds the names of the objects in the request to a rejection. Other failures stay unchanged.
    pub(crate) fn with_items(mut self, items: Vec<String>) -> Self {
        if let Self::Refused(problem) = &mut self {
            problem.items = items;
        }
        self
    }

    /// Returns the error code of a rejection, such as `NotFound`; `None` for any other failure.
    pub(crate) fn problem_code(&self) -> Option<&str> {
        match self {
            Self::Refused(problem) => Some(problem.rejection.code.as_str()).filter(|code| !code.is_empty()),
            Self::Usage { .. }
            | Self::Control(_)
            | Self::File { .. }
            | Self::Machine { .. }
            | Self::Some { .. }
            | Self::NotReached { .. }
            | Self::StillOpen { .. }
            | Self::Output(_) => None,
        }
    }

    /// Returns the exit code of the failure.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage { .. } => ExitCode::Usage,
            Self::Control(Error::Unreachable { .. } | Error::TimedOut { .. }) => ExitCode::Unreachable,
            Self::Refused(_)
            | Self::Control(_)
            | Self::File { .. }
            | Self::Machine { .. }
            | Self::NotReached { .. }
            | Self::StillOpen { .. } => ExitCode::Failed,
            Self::Some { code, .. } => *code,
            // A closed pipe is a success: `tidegate get svc | head -1` has produced the requested output.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::Success,
            Self::Output(_) => ExitCode::Failed,
        }
    }

    /// Returns the remedies to print below the error, one line each.
    pub(crate) fn hints(&self) -> Vec<String> {
        match self {
            Self::Usage { hint, .. } => hint.iter().cloned().collect(),
            Self::Machine { hint, .. } => vec![hint.clone()],
            Self::Control(error) => connection_hints(error),
            Self::NotReached { .. } => {
                vec!["see `tidegate describe` for details, or wait longer with --at-most".to_owned()]
            }
            Self::StillOpen { .. } => vec![
                "the drain stays in effect: `tidegate drain … --deadline 1s` terminates the connections, \
                 `tidegate undrain …` cancels it"
                    .to_owned(),
            ],
            Self::Refused(problem) if problem.rejection.status == 401 => vec![
                "give a token with --token-file FILE or TIDEGATE_TOKEN; an admin can create one with \
                 `tidegate token create NAME --role ROLE`"
                    .to_owned(),
            ],
            Self::Refused(_) | Self::File { .. } | Self::Some { .. } | Self::Output(_) => Vec::new(),
        }
    }
}

/// Returns the remedy if the certificate of the server was not accepted. `cause` is the message of the TLS library.
fn certificate_hint(cause: &str) -> &'static str {
    if cause.contains("certificate expired") {
        "replace the file of --tls-cert-file at the server, which loads it at once; if the certificate is valid, set the \
         clock of this machine"
    } else if cause.contains("certificate not valid yet") {
        "compare the clocks of this machine and of the server: the certificate is not valid yet"
    } else if cause.contains("certificate not valid for name") {
        "use a name or an address of the certificate in --api, or add this one to the certificate: --tls-name of the \
         server, or a new file for --tls-cert-file"
    } else {
        "give the CA certificate of the server with --ca-file FILE (PEM), or its hash from the server log with \
         --ca-hash sha256:…"
    }
}

/// Returns the hints for a request to which the control API sent no usable response.
fn connection_hints(error: &Error) -> Vec<String> {
    match error {
        Error::Unreachable { cause, .. } if cause.contains("invalid peer certificate") => {
            vec![certificate_hint(cause).to_owned()]
        }
        Error::Unreachable { url, .. } => vec![
            format!("check that tidegate-api is running: `curl {url}/healthz` must respond"),
            "use --api URL or TIDEGATE_API for another server".to_owned(),
        ],
        Error::TimedOut { .. } => vec!["increase the timeout, such as --timeout 2m".to_owned()],
        Error::Unexpected { .. } => vec![
            "check that --api is the URL of a control server (port 7440), not of an agent or another service"
                .to_owned(),
        ],
        Error::TooLarge { .. } => vec!["reduce the result: -n NAMESPACE, -l SELECTOR or a name".to_owned()],
        Error::Rejected(_) | Error::Token(_) | Error::Output(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::CertificateError;
    use rustls_pki_types::{ServerName, UnixTime};

    use super::*;

    /// Input: errors of the TLS library. Output: the remedy of each.
    #[test]
    fn each_fault_of_a_certificate_has_its_own_remedy() {
        let at = |secs| UnixTime::since_unix_epoch(Duration::from_secs(secs));
        let expected = ServerName::try_from("a").unwrap();
        for (fault, remedy) in [
            (CertificateError::ExpiredContext { time: at(2), not_after: at(1) }, "--tls-cert-file"),
            (CertificateError::NotValidYetContext { time: at(1), not_before: at(2) }, "clocks"),
            (CertificateError::NotValidForNameContext { expected, presented: Vec::new() }, "--tls-name"),
            (CertificateError::UnknownIssuer, "--ca-file"),
        ] {
            let cause = rustls::Error::InvalidCertificate(fault).to_string();
            let error = Error::Unreachable { url: "https://a".to_owned(), cause, is_unsent: true };
            let hints = connection_hints(&error);
            assert!(hints.len() == 1 && hints[0].contains(remedy), "{hints:?}");
        }
    }
}
