//! The arguments of `tidegate-sync`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use model::primitives::name::Label;
use reqwest::Url;

use crate::{control::Pin, dns, docker, files, kubernetes};

/// Keeps Tidegate equal to what a source says: files, Docker, Kubernetes, names in the DNS.
#[derive(Debug, Parser)]
#[command(name = "tidegate-sync", version, max_term_width = 110, disable_help_subcommand = true)]
pub struct Cli {
    /// What every source takes.
    #[command(flatten)]
    pub global: Global,
    /// The source.
    #[command(subcommand)]
    pub source: Source,
}

/// What every source takes.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// The control servers, separated by commas: one after the other is tried until one answers
    #[arg(
        long, global = true, env = "TIDEGATE_API", hide_env_values = true, value_name = "URL,…", value_delimiter = ',',
        value_parser = parse_api, default_value = "http://127.0.0.1:7440", help_heading = "Connection"
    )]
    pub api: Vec<Url>,
    /// A file with the token that says who this is, read for every request; the variable TIDEGATE_TOKEN may hold the token
    /// itself
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_TOKEN_FILE",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Connection"
    )]
    pub token_file: Option<PathBuf>,
    /// The authorities that vouch for the servers, as PEM [default: those of the system]
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_CA_FILE",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Connection"
    )]
    pub ca_file: Option<PathBuf>,
    /// The hash of the servers' certificate or authority, instead of --ca-file, as sha256:HEX
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_CA_HASH",
        hide_env_values = true,
        value_name = "HASH",
        help_heading = "Connection"
    )]
    pub ca_hash: Option<Pin>,
    /// The name of the source: its objects belong to the apply set of this name, and no other source may have it [default:
    /// the kind of source; for docker also the node, for kubernetes the cluster]
    #[arg(
        long = "source", id = "source_id", global = true, env = "TIDEGATE_SOURCE", hide_env_values = true,
        value_name = "NAME", value_parser = Label::parse
    )]
    pub source_id: Option<Label>,
    /// How many objects may be removed at once without anybody confirming it [default: 5, or a fifth of the source's objects
    /// if that is more]
    #[arg(long, global = true, env = "TIDEGATE_PRUNE_LIMIT", hide_env_values = true, value_name = "N")]
    pub prune_limit: Option<usize>,
    /// Believe a source that has no objects at all; otherwise removing the last ones has to be confirmed
    #[arg(long, global = true, env = "TIDEGATE_ALLOW_EMPTY", hide_env_values = true)]
    pub allow_empty: bool,
    /// Where /healthz, /readyz and /metrics are served; only on loopback
    #[arg(
        long, global = true, env = "TIDEGATE_LISTEN", hide_env_values = true, value_name = "ADDRESS:PORT",
        value_parser = parse_listen, default_value = "127.0.0.1:7442"
    )]
    pub listen: SocketAddr,
    /// What to log, such as `info` or `sync=debug`
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_LOG",
        hide_env_values = true,
        value_name = "FILTER",
        default_value = "info"
    )]
    pub log: String,
    /// How to log
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_LOG_FORMAT",
        hide_env_values = true,
        value_name = "FORMAT",
        value_enum,
        default_value = "text"
    )]
    pub log_format: LogFormat,
    /// A TOML file with any of these settings, named as the flags; what a source takes without a flag is in `paths` or `names`
    #[arg(long, global = true, env = "TIDEGATE_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Read the source once, make Tidegate equal to it, and end: with 0 if all of it was done, with 1 if not
    #[arg(long, global = true)]
    pub once: bool,
    /// Say what would be done, do nothing, and end
    #[arg(long, global = true)]
    pub dry_run: bool,
}

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Where objects come from.
#[derive(Debug, Subcommand)]
pub enum Source {
    /// YAML and JSON files, followed as they change
    Files(files::Arguments),
    /// Containers of a Docker or Podman engine that ask for it by labels
    Docker(docker::Arguments),
    /// Names in the DNS whose addresses are endpoints
    Dns(dns::Arguments),
    /// Services, endpoints and MetalLB's resources of a Kubernetes cluster
    Kubernetes(kubernetes::Arguments),
}

impl Source {
    /// The name of the source when nobody gives one.
    ///
    /// # Errors
    /// There is none.
    pub fn default_id(&self) -> anyhow::Result<String> {
        match self {
            Self::Files(_) => Ok("files".to_owned()),
            Self::Dns(_) => Ok("dns".to_owned()),
            Self::Kubernetes(arguments) => Ok(arguments.default_source()),
            // Each machine's containers are a source of their own. A label has no dots.
            Self::Docker(arguments) => Ok(format!("docker-{}", arguments.node()?.as_str().replace('.', "-"))),
        }
    }
}

fn parse_api(text: &str) -> Result<Url, String> {
    let url = text
        .trim()
        .parse::<Url>()
        .map_err(|error| format!("must be a URL such as https://control:7440: {error}"))?;
    let is_usable = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.path() == "/"
        && url.query().is_none();
    if is_usable && url.username().is_empty() && url.password().is_none() {
        Ok(url)
    } else {
        Err("must be http:// or https://, a host and a port, and nothing else".to_owned())
    }
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let address = text
        .parse::<SocketAddr>()
        .map_err(|_| "must be an address and a port, such as 127.0.0.1:7442".to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("must be on loopback: nobody is asked who they are there".to_owned())
    }
}
