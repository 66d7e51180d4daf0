//! Arguments of `token`, `role`, `can-i`, `whoami` and `node`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use ipnet::IpNet;
use model::{
    kinds::metadata::{check_key, check_value},
    primitives::name::{Label, Name, Namespace},
};

use super::help;

/// Subcommands of `token`.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Create a token and print it; it cannot be displayed again
    #[command(after_help = help::TOKEN_CREATE_HELP)]
    Create(TokenCreate),
    /// List tokens, without their secrets
    List(SecurityOutput),
    /// Revoke a token
    Revoke(TokenRevoke),
}

/// Arguments of `token create`.
#[derive(Debug, Args)]
pub struct TokenCreate {
    /// Name of the token, used as author in the history
    #[arg(value_name = "NAME", value_parser = Label::parse)]
    pub name: Label,
    /// Roles of the token: viewer, operator, admin, dns-server, gateway or a custom role; several separated by commas
    #[arg(long, value_name = "ROLE", required = true, value_delimiter = ',', value_parser = Label::parse)]
    pub role: Vec<Label>,
    /// Restrict the token to these namespaces and deny cluster-scoped kinds; several separated by commas
    #[arg(short, long, value_name = "NAMESPACE", value_delimiter = ',', value_parser = Namespace::parse)]
    pub namespace: Vec<Namespace>,
    /// Restrict the addresses of Services to these pools; several separated by commas
    #[arg(long, value_name = "POOL", value_delimiter = ',', value_parser = Name::parse)]
    pub pool: Vec<Name>,
    /// Restrict the addresses of endpoints to these CIDR ranges; several separated by commas
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub endpoint_range: Vec<IpNet>,
    /// Lifetime, such as 12h or 90d; without it the token is valid until revoked
    #[arg(long, value_name = "TIME", value_parser = parse_life)]
    pub expires_in: Option<Duration>,
}

/// Arguments of `token revoke`.
#[derive(Debug, Args)]
pub struct TokenRevoke {
    /// Name or id of the token
    #[arg(value_name = "TOKEN", value_parser = Label::parse)]
    pub token: Label,
}

/// Subcommands of `role`.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// List roles and their rules
    List(SecurityOutput),
    /// Create or replace a role
    #[command(after_help = help::ROLE_APPLY_HELP)]
    Apply(RoleApply),
    /// Delete a role that no token uses
    Delete(RoleDelete),
}

/// Arguments of `role apply`.
#[derive(Debug, Args)]
pub struct RoleApply {
    /// Name of the role
    #[arg(value_name = "NAME", value_parser = Label::parse)]
    pub name: Label,
    /// File with the rules, or - for stdin
    #[arg(short, long, value_name = "FILE")]
    pub filename: PathBuf,
}

/// Arguments of `role delete`.
#[derive(Debug, Args)]
pub struct RoleDelete {
    /// Name of the role
    #[arg(value_name = "NAME", value_parser = Label::parse)]
    pub name: Label,
}

/// Output options of `token list`, `role list` and `whoami`.
#[derive(Debug, Args)]
pub struct SecurityOutput {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: super::StatusOutput,
}

/// Arguments of `can-i`.
#[derive(Debug, Args)]
pub struct CanI {
    /// Verb: get, list, watch, create, update, delete, plan, explain, confirm, rollback, move or fix
    #[arg(value_name = "VERB")]
    pub verb: String,
    /// Kind of object, or one of Status, Metrics, History, Audit, Bgp, Guard, Token, Role, JoinToken,
    /// AgentCertificate, Authority, Backup, DnsKey, CertificateKey, DnsServer, HttpGateway
    #[arg(value_name = "KIND")]
    pub kind: String,
    /// Namespace to check; all namespaces and cluster scope if omitted
    #[arg(short, long, value_parser = Namespace::parse)]
    pub namespace: Option<Namespace>,
}

/// Subcommands of `node`.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Create and print a single-use token with which an agent joins the cluster
    #[command(name = "join-token", after_help = help::JOIN_TOKEN_HELP)]
    JoinToken(JoinToken),
    /// List join tokens that are neither used nor expired
    #[command(name = "join-tokens")]
    JoinTokens(SecurityOutput),
    /// List the newest certificate of each node
    Certificates(SecurityOutput),
    /// Revoke the certificates of a node, which closes its connections; it needs a new join token
    Revoke(NodeRevoke),
    /// Accept the labels, addresses and workload networks that the agent of a node has requested
    #[command(after_help = help::NODE_ACCEPT_HELP)]
    Accept(NodeAccept),
}

/// Arguments of `node revoke`.
#[derive(Debug, Args)]
pub struct NodeRevoke {
    /// Name of the node
    #[arg(value_name = "NODE", value_parser = Name::parse)]
    pub node: Name,
}

/// Arguments of `node accept`.
#[derive(Debug, Args)]
pub struct NodeAccept {
    /// Name of the node
    #[arg(value_name = "NODE", value_parser = Name::parse)]
    pub node: Name,
}

/// Arguments of `node join-token`.
#[derive(Debug, Args)]
pub struct JoinToken {
    /// Restrict the token to this node; required for an existing node and for one that has joined before
    #[arg(value_name = "NODE", value_parser = Name::parse)]
    pub node: Option<Name>,
    /// Labels that the node gets when it joins, as key=value; several separated by commas. An agent cannot set
    /// others
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = parse_label)]
    pub label: Vec<(String, String)>,
    /// Lifetime, such as 30m [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = parse_life)]
    pub expires_in: Option<Duration>,
}

/// Parses a label of the form `key=value`.
fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("must be a label such as rack=r1, not `{text}`"))?;
    check_key(key)?;
    check_value(value)?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Parses a duration with unit s, m, h or d.
pub(super) fn parse_life(text: &str) -> Result<Duration, String> {
    let wrong = || format!("must be a duration such as 12h or 90d, not `{text}`");
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
