//! Arguments of `history`, `rollback` and `audit`, and the options that all changing commands have.

use clap::{Args, ValueEnum};
use model::{cluster::history::MESSAGE_LENGTH_MAX, kinds::resource::ObjectKey, primitives::name::Namespace};

use crate::resource::{Resource, parse_kind, parse_name};

/// Default number of rows: about one screen.
const LAST_DEFAULT: u32 = 20;
/// Maximum number of rows: the server's page limit.
const LAST_MAX: u32 = 5000;
/// Maximum number of rows of `audit`; higher than the number of records kept.
const AUDIT_LAST_MAX: u32 = 20_000;

/// Options that all changing commands have: the reason, and permission for large removals.
#[derive(Debug, Args)]
pub struct Because {
    /// Reason for the change, recorded in the history
    #[arg(short, long, value_name = "TEXT", value_parser = parse_message)]
    pub message: Option<String>,
    /// Allow the change even if it removes many virtual addresses or endpoints at once, or a Node whose agent
    /// reports. Without this flag such a change is rejected and the error lists them
    #[arg(long)]
    pub confirm: bool,
}

/// Arguments of `history`.
#[derive(Debug, Args)]
pub struct History {
    /// Revision to show in full, or KIND/NAME for the changes of one object
    #[arg(value_name = "REVISION")]
    pub subject: Option<HistorySubject>,
    /// Namespace of the object
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// List only the changes of this author, as the list shows it, such as ann@host
    #[arg(long, value_name = "NAME")]
    pub author: Option<String>,
    /// Maximum number of rows, newest first
    #[arg(
        long, value_name = "N", default_value_t = LAST_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(LAST_MAX))
    )]
    pub last: u32,
    /// For one change, also show the lines added to and removed from each node's kernel rules, as computed by
    /// the nodes today
    #[arg(long)]
    pub rules: bool,
    /// After listing, keep printing changes as they happen, oldest first
    #[arg(short, long, conflicts_with_all = ["rules", "output"])]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: PastOutput,
}

/// Subject of a `history` query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistorySubject {
    /// All changes of one revision.
    Revision(u64),
    /// Changes of one object; the namespace is given separately.
    Object(ObjectKey),
}

impl std::str::FromStr for HistorySubject {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(revision) = text.parse() {
            return Ok(Self::Revision(revision));
        }
        if !text.contains('/') {
            return Err(format!("`{text}` is neither a revision nor KIND/NAME, such as svc/web"));
        }
        parse_object(text).map(Self::Object)
    }
}

/// Parses KIND/NAME; the namespace is given separately.
fn parse_object(text: &str) -> Result<ObjectKey, String> {
    let (kind, name) =
        text.split_once('/').ok_or_else(|| format!("`{text}` is not KIND/NAME, such as svc/web"))?;
    let kind = parse_kind(kind)?;
    let name = parse_name(Resource::Object(kind), name)?;
    Ok(ObjectKey { kind, namespace: None, name })
}

/// Arguments of `rollback`.
#[derive(Debug, Args)]
pub struct Rollback {
    /// Revision to restore. If omitted, your last change is undone, after a preview
    #[arg(value_name = "REVISION")]
    pub revision: Option<u64>,
    /// Undo only the change of this revision and keep later changes
    #[arg(long, requires = "revision")]
    pub only: bool,
    /// Preview the result without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask. Without a terminal, only an undo of your last change asks
    #[arg(short, long)]
    pub yes: bool,
    /// Reason for the change, and permission for large removals.
    #[command(flatten)]
    pub because: Because,
}

/// Arguments of `audit`.
#[derive(Debug, Clone, Args)]
pub struct Audit {
    /// List only the requests about this object, as KIND/NAME. An entry lists at most 100 objects of a request
    #[arg(value_name = "KIND/NAME", value_parser = parse_object)]
    pub object: Option<ObjectKey>,
    /// Namespace of the object [default: default]
    #[arg(short, long, requires = "object", value_parser = Namespace::parse)]
    pub namespace: Option<Namespace>,
    /// List only the requests of this author, as the entries have it, such as ann@host
    #[arg(long, value_name = "NAME")]
    pub author: Option<String>,
    /// List only the requests with this result
    #[arg(long, value_enum)]
    pub decision: Option<AuditResult>,
    /// Maximum number of rows, newest first
    #[arg(
        long, value_name = "N", default_value_t = LAST_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(AUDIT_LAST_MAX))
    )]
    pub last: u32,
    /// Print again on each change, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: PastOutput,
}

/// Result of a request in the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditResult {
    /// The request succeeded
    Accepted,
    /// The request was rejected and changed nothing
    Refused,
    /// The server failed
    Failed,
}

impl AuditResult {
    /// Returns the value of the query parameter.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// Output formats of `history` and `audit`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum PastOutput {
    /// Human-readable text
    #[default]
    Table,
    /// Server response as JSON
    Json,
    /// Server response as YAML
    Yaml,
}

/// Parses and validates a change reason: one line of limited length.
pub(super) fn parse_message(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.chars().any(char::is_control) {
        Err("must be a single line".to_owned())
    } else if text.chars().count() > MESSAGE_LENGTH_MAX {
        Err(format!("must be at most {MESSAGE_LENGTH_MAX} characters"))
    } else {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_revisions_or_objects() {
        assert_eq!("42".parse(), Ok(HistorySubject::Revision(42)));
        assert!(matches!("svc/web".parse(), Ok(HistorySubject::Object(key)) if key.name.as_str() == "web"));
        for bad in ["", "web", "svc/", "-1", "ep/web", "pods/x"] {
            assert!(bad.parse::<HistorySubject>().is_err(), "{bad}");
        }
    }

    #[test]
    fn messages_are_one_line_of_bounded_length() {
        assert_eq!(parse_message(" räume auf ").as_deref(), Ok("räume auf"));
        assert!(parse_message(&"ü".repeat(MESSAGE_LENGTH_MAX)).is_ok());
        assert!(parse_message(&"x".repeat(MESSAGE_LENGTH_MAX + 1)).is_err());
        assert!(parse_message("a\nb").is_err());
    }
}
