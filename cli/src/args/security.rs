//! The arguments of `token`, `role`, `can-i`, `whoami` and `node`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use ipnet::IpNet;
use model::primitives::name::{Label, Name, Namespace};

use super::help;

/// What is done with tokens.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a token, and print it: it is not shown again
    #[command(after_help = help::TOKEN_CREATE_HELP)]
    Create(TokenCreate),
    /// List the tokens, without their texts
    List(SecurityOutput),
    /// Let a token count no longer
    Revoke(TokenRevoke),
}

/// Arguments of `token create`.
#[derive(Debug, Args)]
pub struct TokenCreate {
    /// What history calls whoever uses it
    #[arg(value_name = "NAME", value_parser = Label::parse)]
    pub name: Label,
    /// What its holder may do: viewer, operator, admin, or a role of your own; several with commas
    #[arg(long, value_name = "ROLE", required = true, value_delimiter = ',', value_parser = Label::parse)]
    pub role: Vec<Label>,
    /// Only in this namespace, and to nothing outside of namespaces; several with commas
    #[arg(short, long, value_name = "NAMESPACE", value_delimiter = ',', value_parser = Namespace::parse)]
    pub namespace: Vec<Namespace>,
    /// Services may have addresses of this pool only; several with commas
    #[arg(long, value_name = "POOL", value_delimiter = ',', value_parser = Name::parse)]
    pub pool: Vec<Name>,
    /// Endpoints may have addresses in this range only; several with commas
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub endpoint_range: Vec<IpNet>,
    /// How long it counts, such as 12h or 90d; until it is revoked when left out
    #[arg(long, value_name = "TIME", value_parser = parse_life)]
    pub expires_in: Option<Duration>,
}

/// Arguments of `token revoke`.
#[derive(Debug, Args)]
pub struct TokenRevoke {
    /// Its name or its id
    #[arg(value_name = "TOKEN", value_parser = Label::parse)]
    pub token: Label,
}

/// What is done with roles.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// List the roles, and what they allow
    List(SecurityOutput),
    /// Make a role, or replace it
    #[command(after_help = help::ROLE_APPLY_HELP)]
    Apply(RoleApply),
    /// Remove a role that no token is bound to
    Delete(RoleDelete),
}

/// Arguments of `role apply`.
#[derive(Debug, Args)]
pub struct RoleApply {
    /// How it is called
    #[arg(value_name = "NAME", value_parser = Label::parse)]
    pub name: Label,
    /// A file with its rules, or - for stdin
    #[arg(short, long, value_name = "FILE")]
    pub filename: PathBuf,
}

/// Arguments of `role delete`.
#[derive(Debug, Args)]
pub struct RoleDelete {
    /// Which one
    #[arg(value_name = "NAME", value_parser = Label::parse)]
    pub name: Label,
}

/// The form of what is shown.
#[derive(Debug, Args)]
pub struct SecurityOutput {
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: super::StatusOutput,
}

/// Arguments of `can-i`.
#[derive(Debug, Args)]
pub struct CanI {
    /// What: get, list, watch, create, update, delete, plan, explain, confirm, rollback, move or fix
    #[arg(value_name = "VERB")]
    pub verb: String,
    /// To what: a kind of objects, or Status, Metrics, History, Audit, Bgp, Guard, Token, Role, JoinToken, Certificate, Backup
    #[arg(value_name = "KIND")]
    pub kind: String,
    /// Where; in all namespaces, or outside of them, when left out
    #[arg(short, long, value_parser = Namespace::parse)]
    pub namespace: Option<Namespace>,
}

/// What is done with nodes that no object says.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// Make a token that one agent joins the cluster with, once, and print it
    #[command(name = "join-token", after_help = help::JOIN_TOKEN_HELP)]
    JoinToken(JoinToken),
}

/// Arguments of `node join-token`.
#[derive(Debug, Args)]
pub struct JoinToken {
    /// Only for the agent of this node; needed for a node that has joined before
    #[arg(value_name = "NODE", value_parser = Name::parse)]
    pub node: Option<Name>,
    /// How long it counts, such as 30m; an hour when left out
    #[arg(long, value_name = "TIME", value_parser = parse_life)]
    pub expires_in: Option<Duration>,
}

/// Reads a time that may be days long.
fn parse_life(text: &str) -> Result<Duration, String> {
    let wrong = || format!("must be a time such as 12h or 90d, not `{text}`");
    let at = text.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let seconds = number.checked_mul(unit).filter(|seconds| *seconds > 0).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}
