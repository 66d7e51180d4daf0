//! Command-line arguments of `tidegate-sync`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};
use client::Url;
use daemon::{log::LogArgs, status::parse_listen};
use model::primitives::name::Label;

use crate::{control::Pin, dns, docker, files, kubernetes};

/// Mirrors objects from a source (files, Docker, Kubernetes or DNS) to Tidegate
#[derive(Debug, Parser)]
#[command(name = "tidegate-sync", version = base::build::text(), max_term_width = 110, disable_help_subcommand = true)]
pub struct Cli {
    /// Options that apply to every type of source (files, Docker, Kubernetes, DNS).
    #[command(flatten)]
    pub global: Global,
    /// Type of the source, with its arguments.
    #[command(subcommand)]
    pub source: Source,
}

/// Options that apply to every type of source (files, Docker, Kubernetes, DNS).
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Control servers, separated by commas; they are tried in turn until one answers
    #[arg(
        long, global = true, env = "TIDEGATE_API", hide_env_values = true, value_name = "URL,…", value_delimiter = ',',
        value_parser = parse_api, default_value = "http://127.0.0.1:7440", help_heading = "Connection"
    )]
    pub api: Vec<Url>,
    /// File with the bearer token to authenticate with, read for every request; TIDEGATE_TOKEN can hold the
    /// token itself
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_TOKEN_FILE",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Connection"
    )]
    pub token_file: Option<PathBuf>,
    /// PEM file with the CA certificates to verify the servers with [default: the system's CA certificates]
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_CA_FILE",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Connection"
    )]
    pub ca_file: Option<PathBuf>,
    /// Pin the server or CA certificate by hash instead of using --ca-file, as sha256:HEX
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_CA_HASH",
        hide_env_values = true,
        value_name = "HASH",
        help_heading = "Connection"
    )]
    pub ca_hash: Option<Pin>,
    /// Name of the source. Its objects belong to the apply set of this name, which no other source may use
    /// [default: the kind of source; for docker with the node, for kubernetes with the cluster]
    #[arg(
        long = "source", id = "source_id", global = true, env = "TIDEGATE_SOURCE", hide_env_values = true,
        value_name = "NAME", value_parser = Label::parse
    )]
    pub source_id: Option<Label>,
    /// Maximum number of objects removed at once without confirmation; Workloads of Kubernetes do not count [default: 5,
    /// or a fifth of the source's objects that count if that is more]
    #[arg(long, global = true, env = "TIDEGATE_PRUNE_LIMIT", hide_env_values = true, value_name = "N")]
    pub prune_limit: Option<usize>,
    /// Accept a source without any objects; by default, removing the last ones requires confirmation
    #[arg(long, global = true, env = "TIDEGATE_ALLOW_EMPTY", hide_env_values = true)]
    pub allow_empty: bool,
    /// Address for /healthz, /readyz and /metrics; requests are not authenticated
    #[arg(
        long, global = true, env = "TIDEGATE_LISTEN", hide_env_values = true, value_name = "ADDRESS:PORT",
        value_parser = parse_listen, default_value = "127.0.0.1:7442"
    )]
    pub listen: SocketAddr,
    /// Flags of the log.
    #[command(flatten)]
    pub log: LogArgs,
    /// TOML file with settings named like the flags; positional arguments are `paths` or `names`
    #[arg(long, global = true, env = "TIDEGATE_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Synchronize once and exit, with 0 if everything succeeded and with 1 if not
    #[arg(long, global = true)]
    pub once: bool,
    /// Print the changes without making them, and exit
    #[arg(long, global = true)]
    pub dry_run: bool,
}

/// Source of objects.
#[derive(Debug, Subcommand)]
pub enum Source {
    /// YAML and JSON files, watched for changes
    Files(files::FilesArguments),
    /// Containers of a Docker or Podman engine, selected by labels
    Docker(docker::DockerArguments),
    /// DNS names whose addresses are endpoints
    Dns(dns::DnsArguments),
    /// Services, endpoints and MetalLB resources of a Kubernetes cluster
    Kubernetes(kubernetes::KubernetesArguments),
}

impl Source {
    /// Returns the default name of the source.
    ///
    /// # Errors
    /// Returns an error if the host name is needed and invalid.
    pub fn default_id(&self) -> anyhow::Result<String> {
        match self {
            Self::Files(_) => Ok("files".to_owned()),
            Self::Dns(_) => Ok("dns".to_owned()),
            Self::Kubernetes(arguments) => Ok(arguments.default_source()),
            // The containers of each machine are a separate source. Labels must not contain dots.
            Self::Docker(arguments) => Ok(format!("docker-{}", arguments.node()?.as_str().replace('.', "-"))),
        }
    }
}

fn parse_api(text: &str) -> Result<Url, String> {
    if let Some(socket) = client::socket::parse(text.trim()) {
        return socket;
    }
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
        Err("must be a URL with http:// or https://, a host and an optional port, without a path".to_owned())
    }
}
