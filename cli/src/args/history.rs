//! Arguments of what looks at the past, and of what every change takes.

use clap::{Args, ValueEnum};
use model::{cluster::history::MESSAGE_LENGTH_MAX, kinds::resource::ObjectKey, primitives::name::Namespace};

use crate::resource::{Resource, parse_kind, parse_name};

/// Rows when nothing is said: a screen.
const LAST_DEFAULT: u32 = 20;
/// Rows at most: a page of the server.
const LAST_MAX: u32 = 5000;
/// Rows of `audit` at most: more than are kept.
const AUDIT_LAST_MAX: u32 = 20_000;

/// What every change takes.
#[derive(Debug, Args)]
pub struct Because {
    /// Why, as the history shows it
    #[arg(short, long, value_name = "TEXT", value_parser = parse_message)]
    pub message: Option<String>,
    /// Do it although it removes many virtual addresses or endpoints at once; without it that is refused, naming them
    #[arg(long)]
    pub confirm: bool,
}

/// Arguments of `history`.
#[derive(Debug, Args)]
pub struct History {
    /// A revision, or KIND/NAME for the changes of one object
    #[arg(value_name = "REVISION")]
    pub subject: Option<Subject>,
    /// Where the object is
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// At most this many, the newest
    #[arg(
        long, value_name = "N", default_value_t = LAST_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(LAST_MAX))
    )]
    pub last: u32,
    /// Of one change also the lines of each node's kernel listings that it added and removed, as the nodes work it out
    /// today
    #[arg(long)]
    pub rules: bool,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: PastOutput,
}

/// What history is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// One change.
    Revision(u64),
    /// The changes of one object, without its namespace.
    Object(ObjectKey),
}

impl std::str::FromStr for Subject {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(revision) = text.parse() {
            return Ok(Self::Revision(revision));
        }
        let (kind, name) = text
            .split_once('/')
            .ok_or_else(|| format!("`{text}` is neither a revision nor KIND/NAME, such as svc/web"))?;
        let kind = parse_kind(kind)?;
        let name = parse_name(Resource::Object(kind), name)?;
        Ok(Self::Object(ObjectKey { kind, namespace: None, name }))
    }
}

/// Arguments of `rollback`.
#[derive(Debug, Args)]
pub struct Rollback {
    /// The revision to go back to
    #[arg(value_name = "REVISION")]
    pub revision: u64,
    /// Undo only the change that made this revision, and keep what came after it
    #[arg(long)]
    pub only: bool,
    /// Say what would happen, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Why, and whether it may remove much.
    #[command(flatten)]
    pub because: Because,
}

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub struct Audit {
    /// At most this many, the newest
    #[arg(
        long, value_name = "N", default_value_t = LAST_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(AUDIT_LAST_MAX))
    )]
    pub last: u32,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: PastOutput,
}

/// Forms of the output of `history` and `audit`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum PastOutput {
    /// For people
    #[default]
    Table,
    /// What the server answered, as JSON
    Json,
    /// What the server answered, as YAML
    Yaml,
}

/// Reads why a change is made.
pub(super) fn parse_message(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.chars().any(char::is_control) {
        Err("must be one line".to_owned())
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
        assert_eq!("42".parse(), Ok(Subject::Revision(42)));
        assert!(matches!("svc/web".parse(), Ok(Subject::Object(key)) if key.name.as_str() == "web"));
        for bad in ["", "web", "svc/", "-1", "ep/web", "pods/x"] {
            assert!(bad.parse::<Subject>().is_err(), "{bad}");
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
