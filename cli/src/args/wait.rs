//! Arguments of `wait`.

use std::time::Duration;

use clap::Args;
use model::primitives::name::Namespace;

use super::parse_timeout;
use crate::resource::Target;

/// Arguments of `wait`.
#[derive(Debug, Args)]
pub struct Wait {
    /// A kind, as `get` knows them, or KIND/NAME; all nodes that are connected when left out
    #[arg(value_name = "KIND")]
    pub target: Option<Target>,
    /// Which one
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Where to look
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// What to wait for: verified, ready, announced, deleted, or condition=TYPE with =STATUS if it is not True
    #[arg(long = "for", value_name = "GOAL", default_value = "verified", value_parser = Goal::parse)]
    pub goal: Goal,
    /// How long to wait, such as 500ms, 60s or 5m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_timeout)]
    pub at_most: Duration,
    /// Say nothing while waiting
    #[arg(short, long)]
    pub quiet: bool,
}

/// What to wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// Every node has it in its kernel, read back.
    Verified,
    /// There is no such object.
    Deleted,
    /// A condition has a status.
    Condition {
        /// Its type.
        condition: String,
        /// `True`, `False` or `Unknown`.
        status: String,
    },
}

impl Goal {
    /// Reads what follows `--for`.
    ///
    /// # Errors
    /// What can be written instead.
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
                    Err("must be condition=TYPE or condition=TYPE=STATUS, with True, False or Unknown"
                        .to_owned())
                }
            };
        }
        match text {
            "verified" => Ok(Self::Verified),
            "ready" => Ok(condition("Ready", "True")),
            "announced" => Ok(condition("Announced", "True")),
            "deleted" => Ok(Self::Deleted),
            other => Err(format!(
                "`{other}` is not known; write verified, ready, announced, deleted or condition=TYPE[=STATUS]"
            )),
        }
    }
}
