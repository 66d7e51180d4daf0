//! Arguments of `wait`.

use std::time::Duration;

use clap::Args;
use model::primitives::name::Namespace;

use super::parse_timeout;
use crate::resource::Target;

/// Arguments of `wait`.
#[derive(Debug, Args)]
pub struct Wait {
    /// Kind as accepted by `get`, or KIND/NAME; all connected nodes if omitted
    #[arg(value_name = "KIND")]
    pub target: Option<Target>,
    /// Name of the object
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Namespace of the object
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// Goal: verified, ready, announced, deleted, condition=TYPE or condition=TYPE=STATUS (default status:
    /// True)
    #[arg(long = "for", value_name = "GOAL", default_value = "verified", value_parser = Goal::parse)]
    pub goal: Goal,
    /// Maximum time to wait, such as 500ms, 60s or 5m. If omitted, a --timeout on the command line is this time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_timeout)]
    pub at_most: Duration,
    /// Do not print progress while waiting
    #[arg(short, long)]
    pub quiet: bool,
}

/// State that `wait --for` waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// Verified: every node has the object in its kernel, confirmed by read-back.
    Verified,
    /// Deletion: the object does not exist.
    Deleted,
    /// Condition of the object with a given type and status.
    Condition {
        /// Type of the condition.
        condition: String,
        /// Condition status: `True`, `False` or `Unknown`.
        status: String,
    },
}

impl Goal {
    /// Parses the value of `--for`.
    ///
    /// # Errors
    /// Returns the list of accepted values if `text` is not one of them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let condition = |condition: &str, status: &str| Self::Condition {
            condition: condition.to_owned(),
            status: status.to_owned(),
        };
        if let Some(rest) = text.strip_prefix("condition=") {
            let (name, status) = rest.split_once('=').unwrap_or((rest, "True"));
            let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let status =
                ["True", "False", "Unknown"].into_iter().find(|known| known.eq_ignore_ascii_case(status));
            return match status {
                Some(status) if is_word => Ok(condition(name, status)),
                Some(_) | None => {
                    Err("must be condition=TYPE or condition=TYPE=STATUS, where STATUS is True, False or \
                         Unknown"
                        .to_owned())
                }
            };
        }
        match text {
            "verified" => Ok(Self::Verified),
            "ready" => Ok(condition("Ready", "True")),
            "announced" => Ok(condition("Announced", "True")),
            "deleted" | "delete" => Ok(Self::Deleted),
            other => Err(format!(
                "unknown goal `{other}`; use verified, ready, announced, deleted or condition=TYPE[=STATUS]"
            )),
        }
    }
}
