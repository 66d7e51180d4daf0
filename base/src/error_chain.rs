//! Formatting of errors for logs and messages: an error and all its causes on one line.

/// Formats an error and all its causes (`source`) on one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
