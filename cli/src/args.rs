//! Command-line arguments of `tidegate`, with help texts and examples.

pub mod addresses;
pub mod api;
pub mod apply;
pub mod authority;
pub mod backup;
pub mod bgp;
pub mod confirm;
pub mod context;
pub mod create;
pub mod delete;
pub mod dns;
pub mod doctor;
pub mod drain;
pub mod environment;
pub mod explain;
pub mod export;
pub mod get;
pub mod groups;
pub(crate) mod habits;
pub mod health;
mod help;
pub mod history;
pub mod http;
pub mod label;
pub(crate) mod namespace;
pub mod patch;
pub mod plan;
pub mod quickstart;
pub mod rebalance;
pub mod security;
pub mod settings;
pub mod support_bundle;
pub mod top;
pub mod wait;
pub mod what_if;

use std::{ffi::OsString, net::IpAddr, path::PathBuf, time::Duration};

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
use clap_complete::Shell;
use client::{Pin, Url};
use model::{
    kinds::{address::address_of, resource::Kind, selector::LabelSelector},
    primitives::{
        name::{Name, Namespace},
        quantity::Position,
    },
};
use traces::TraceParent;

use crate::{
    import::Format,
    resource::{ServiceName, Target, parse_kind},
};

/// Maximum `--timeout` in seconds (one day). The limit also keeps calculations with time from overflowing.
const TIMEOUT_SECONDS_MAX: u64 = 86_400;

/// Manages a Tidegate cluster: layer-4 load balancing, service proxying, and ARP/NDP and BGP announcements
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = base::build::text(), after_help = help::AFTER_HELP, max_term_width = 110, disable_help_subcommand = true)]
pub struct Cli {
    /// Options of every subcommand.
    #[command(flatten)]
    pub global: Global,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every subcommand.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct Global {
    /// Control servers, separated by commas, tried in turn; or unix:PATH, a socket on this machine [default:
    /// unix:/run/tidegate/api.sock if this user has access to it, otherwise http://127.0.0.1:7440]
    #[arg(
        long, global = true, env = "TIDEGATE_API", hide_env_values = true, value_name = "URL,…",
        value_delimiter = ',', value_parser = parse_api
    )]
    pub api: Vec<Url>,
    /// File with the bearer token to authenticate with; TIDEGATE_TOKEN can hold the token itself
    #[arg(long, global = true, env = "TIDEGATE_TOKEN_FILE", hide_env_values = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// PEM file with the CA certificates to verify the servers with [default: the system's CA certificates]
    #[arg(long, global = true, env = "TIDEGATE_CA_FILE", hide_env_values = true, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Pin the server or CA certificate by hash instead of using --ca-file, as sha256:HEX
    #[arg(long, global = true, env = "TIDEGATE_CA_HASH", hide_env_values = true, value_name = "HASH")]
    pub ca_hash: Option<Pin>,
    /// Context to use instead of the current one. It takes precedence over TIDEGATE_API, TIDEGATE_TOKEN and the others
    #[arg(long, global = true, env = "TIDEGATE_CONTEXT", hide_env_values = true, value_name = "NAME", value_parser = Name::parse)]
    pub context: Option<Name>,
    /// Maximum time to wait for a response, such as 500ms, 10s or 2m. For a watch: the longest silence;
    /// servers send a heartbeat at least every 10 s
    #[arg(
        long, global = true, env = "TIDEGATE_TIMEOUT", hide_env_values = true, value_name = "TIME",
        default_value = "30s", value_parser = parse_timeout
    )]
    pub timeout: Duration,
    /// Require data at least as recent as this position (printed by `status` and by watches), or with
    /// `latest` every write that any server accepted before. Useful because a server other than the one that
    /// accepted a write may lag for a moment. Writes made by the command itself are always waited for
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_MIN_POSITION",
        hide_env_values = true,
        value_name = "POSITION",
        value_parser = crate::client::parse_min_position
    )]
    pub min_position: Option<String>,
    /// Print each request to stderr as a `curl` command
    #[arg(long, global = true)]
    pub show_request: bool,
    /// Context whose settings file has the servers in `api`; `None` if they have another source.
    #[arg(skip)]
    pub context_of_api: Option<Name>,
    /// True if `token_file` is from the settings file.
    #[arg(skip)]
    pub is_token_file_from_settings: bool,
    /// Trace context of the command, sent with its requests; `None` sends none.
    #[arg(skip)]
    pub trace: Option<TraceParent>,
}

/// The subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List objects, or get some of them by name
    #[command(after_help = help::GET_HELP)]
    Get(get::Get),
    /// Show details of one object, with its conditions and hints
    #[command(after_help = help::DESCRIBE_HELP)]
    Describe(Describe),
    /// Create or update objects from a file
    #[command(after_help = help::APPLY_HELP)]
    Apply(apply::Apply),
    /// Preview the effect of an apply on objects, addresses and each node's kernel
    #[command(after_help = help::PLAN_HELP)]
    Plan(plan::Plan),
    /// Compare the objects of a file with those on the server
    #[command(after_help = help::DIFF_HELP)]
    Diff(plan::Diff),
    /// Delete objects
    #[command(after_help = help::DELETE_HELP)]
    Delete(delete::Delete),
    /// Create a Service from options
    #[command(subcommand, after_help = help::CREATE_HELP, disable_help_subcommand = true)]
    Create(create::Create),
    /// Edit an object in your editor
    #[command(after_help = help::EDIT_HELP)]
    Edit(patch::Edit),
    /// Change single fields of an object
    #[command(after_help = help::PATCH_HELP)]
    Patch(patch::Patch),
    /// Set or remove labels of objects
    #[command(after_help = help::LABEL_HELP)]
    Label(label::Label),
    /// Set or remove annotations of objects
    #[command(after_help = help::ANNOTATE_HELP)]
    Annotate(label::Label),
    /// Show the health of the cluster and its current problems
    #[command(after_help = help::STATUS_HELP)]
    Status(Status),
    /// Show the busiest Services, or the nodes slowest to apply changes
    #[command(subcommand, after_help = help::TOP_HELP, disable_help_subcommand = true)]
    Top(top::Top),
    /// Show traffic of a Service by node and endpoint
    #[command(after_help = help::TRAFFIC_HELP)]
    Traffic(Traffic),
    /// Show health check results of a Service's endpoints
    #[command(after_help = help::HEALTH_HELP)]
    Health(health::Health),
    /// Trace a packet, or explain why an address or a Service does or does not respond
    #[command(after_help = explain::EXPLAIN_HELP)]
    Explain(explain::Explain),
    /// Show the answers of the DNS servers
    #[command(subcommand, after_help = dns::DNS_HELP, disable_help_subcommand = true)]
    Dns(dns::Dns),
    /// Show the gateways of HTTP routes
    #[command(subcommand, after_help = http::HTTP_HELP, disable_help_subcommand = true)]
    Http(http::Http),
    /// Print Services as environment variables
    #[command(after_help = help::ENV_HELP)]
    Env(environment::Env),
    /// Show changes of the nodes that announce addresses
    #[command(subcommand, after_help = help::ADDRESSES_HELP, disable_help_subcommand = true)]
    Addresses(addresses::Addresses),
    /// Show BGP sessions, advertised routes and session events
    #[command(subcommand, after_help = help::BGP_HELP, disable_help_subcommand = true)]
    Bgp(bgp::Bgp),
    /// Show the change history with authors and reasons, or one change in full
    #[command(visible_alias = "events", after_help = help::HISTORY_HELP)]
    History(history::History),
    /// Restore the state of an earlier revision
    #[command(after_help = help::ROLLBACK_HELP)]
    Rollback(history::Rollback),
    /// Show the audit log, including rejected requests
    #[command(after_help = help::AUDIT_HELP)]
    Audit(history::Audit),
    /// Show the new state that a node rejects until an operator confirms it, and confirm it
    #[command(after_help = help::CONFIRM_HELP)]
    Confirm(confirm::Confirm),
    /// Move the announcement of an address to another node
    #[command(after_help = help::MOVE_HELP)]
    Move(Move),
    /// Spread addresses evenly over the nodes again, after failures have moved them
    #[command(after_help = help::REBALANCE_HELP)]
    Rebalance(rebalance::Rebalance),
    /// Stop new connections; let existing ones finish
    #[command(after_help = help::DRAIN_HELP)]
    Drain(drain::Drain),
    /// Take an endpoint, Workload, Node or Service out of service
    #[command(after_help = help::MAINTENANCE_HELP)]
    Maintenance(drain::Maintenance),
    /// Undo drain or maintenance
    #[command(after_help = help::UNDRAIN_HELP)]
    Undrain(drain::DrainArguments),
    /// Convert configuration of Kubernetes, MetalLB, kube-proxy, ipvsadm or keepalived
    #[command(after_help = help::IMPORT_HELP)]
    Import(Import),
    /// Export as Kubernetes or MetalLB manifests
    #[command(after_help = help::EXPORT_HELP)]
    Export(export::Export),
    /// Diagnose common problems on nodes
    #[command(after_help = help::DOCTOR_HELP)]
    Doctor(doctor::Doctor),
    /// Wait until an object, or every node, reaches a state
    #[command(after_help = help::WAIT_HELP)]
    Wait(wait::Wait),
    /// Predict the effect of node failures
    #[command(name = "what-if", after_help = help::WHAT_IF_HELP)]
    WhatIf(what_if::WhatIf),
    /// Stream changes as they happen
    #[command(after_help = help::WATCH_HELP)]
    Watch(Watch),
    /// Back up the control server's store to a file while the server runs
    #[command(after_help = help::BACKUP_HELP)]
    Backup(backup::Backup),
    /// Maintain a store on the machine that holds it (runs `tidegate-api store`)
    #[command(disable_help_flag = true, after_help = help::STORE_HELP)]
    Store(backup::Store),
    /// Run a demonstration cluster in network namespaces of this machine (runs `tidegate-lab`)
    #[command(disable_help_flag = true, after_help = help::DEMO_HELP)]
    Demo(Demo),
    /// Set this machine up: control server, agent, and a pool of addresses of its network
    Quickstart(quickstart::Quickstart),
    /// Collect the state of the cluster in one file for a report, without secrets
    #[command(name = "support-bundle", after_help = help::SUPPORT_BUNDLE_HELP)]
    SupportBundle(support_bundle::SupportBundle),
    /// Create, list and revoke API tokens
    #[command(subcommand, after_help = help::TOKEN_HELP, disable_help_subcommand = true)]
    Token(security::Token),
    /// List, create and delete roles
    #[command(subcommand, after_help = help::ROLE_HELP, disable_help_subcommand = true)]
    Role(security::Role),
    /// Show your identity and its roles
    Whoami(security::SecurityOutput),
    /// Check whether you are allowed to do something
    #[command(name = "can-i", after_help = help::CAN_I_HELP)]
    CanI(security::CanI),
    /// Manage how machines join the cluster
    #[command(subcommand, disable_help_subcommand = true)]
    Node(security::NodeCommand),
    /// Show, rotate and retire the certificate authority that signs the certificates of agents
    #[command(subcommand, after_help = authority::HELP, disable_help_subcommand = true)]
    Authority(authority::Authority),
    /// Store the connection to a control server as a context
    Login(context::Login),
    /// List, choose and delete stored connections
    #[command(subcommand, after_help = help::CONTEXT_HELP, disable_help_subcommand = true)]
    Context(context::Context),
    /// Generate a shell completion script
    #[command(after_help = help::COMPLETIONS_HELP)]
    Completions {
        /// Shell to generate the script for
        shell: Shell,
    },
    /// Write man pages and completions to a directory laid out like /usr/share; used to build packages
    #[command(hide = true)]
    Manual {
        /// Target directory
        #[arg(value_name = "DIR")]
        share: PathBuf,
    },
    /// List the namespaces that contain objects
    #[command(visible_alias = "ns")]
    Namespaces(Namespaces),
    /// List kinds and describe their fields, without a server
    #[command(subcommand, disable_help_subcommand = true)]
    Api(api::Api),
    /// Print the versions of the client and the server
    Version,
}

/// Arguments of `describe`.
#[derive(Debug, Args)]
pub struct Describe {
    /// Kind as accepted by `get`, or KIND/NAME
    #[arg(value_name = "KIND")]
    pub target: Target,
    /// Name of the object
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Namespace of the objects
    #[arg(
        short, long, default_value = "default",
        value_parser = Namespace::parse
    )]
    pub namespace: Namespace,
}

/// Arguments of `namespaces`.
#[derive(Debug, Clone, Args)]
pub struct Namespaces {
    /// Print again on each change, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: StatusOutput,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Arguments of `tidegate-lab`, such as --once
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// Arguments of `status`.
#[derive(Debug, Clone, Args)]
pub struct Status {
    /// Print one line and exit with the codes of monitoring plugins: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN
    #[arg(long, conflicts_with_all = ["watch", "output"])]
    pub check: bool,
    /// Print again on each change, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: StatusOutput,
}

/// Output formats of `status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum StatusOutput {
    /// Human-readable text
    #[default]
    Table,
    /// Server response as JSON
    Json,
    /// Server response as YAML
    Yaml,
}

/// Arguments of `traffic`.
#[derive(Debug, Clone, Args)]
pub struct Traffic {
    /// Name of the Service, or NAMESPACE/NAME
    #[arg(value_name = "SERVICE", value_parser = ServiceName::parse)]
    pub service: ServiceName,
    /// Namespace of the objects
    #[arg(
        short, long, default_value = "default",
        value_parser = Namespace::parse
    )]
    pub namespace: Namespace,
    /// Print again on each change, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: TrafficOutput,
}

/// Output formats of `traffic` and `top`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum TrafficOutput {
    /// Table with one row per endpoint, Service or node
    #[default]
    Table,
    /// Server response as JSON
    Json,
    /// Server response as YAML
    Yaml,
}

/// Arguments of `move`.
#[derive(Debug, Args)]
pub struct Move {
    /// Address to move, such as 192.0.2.1 or 2001:db8::1
    #[arg(value_name = "ADDRESS", value_parser = parse_address)]
    pub address: IpAddr,
    /// Node to announce the address from
    #[arg(value_name = "NODE", value_parser = Name::parse)]
    pub node: Name,
    /// Preview the result without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Reason for the change, recorded in the history
    #[arg(short, long, value_name = "TEXT", value_parser = history::parse_message)]
    pub message: Option<String>,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct Import {
    /// Files or directories to import, or - for stdin
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Format of the input; detected from the content if omitted
    #[arg(long, value_name = "FORMAT",
        value_parser = PossibleValuesParser::new(Format::ALL.map(Format::as_str)).try_map(|word| word.parse::<Format>()))]
    pub from: Option<Format>,
    /// Apply the converted objects instead of printing them
    #[arg(long)]
    pub apply: bool,
    /// With --apply, preview the result without changing anything
    #[arg(long, requires = "apply")]
    pub dry_run: bool,
    /// With --apply, reason for the change, recorded in the history
    #[arg(short, long, value_name = "TEXT", requires = "apply", value_parser = history::parse_message)]
    pub message: Option<String>,
}

/// Arguments of `watch`.
#[derive(Debug, Args)]
pub struct Watch {
    /// Kinds to watch; all kinds if omitted
    #[arg(value_name = "KIND", value_parser = parse_kind)]
    pub kinds: Vec<Kind>,
    /// Watch a single namespace; all namespaces if omitted
    #[arg(short, long, value_parser = Namespace::parse)]
    pub namespace: Option<Namespace>,
    /// Label selector, as in `get`
    #[arg(short = 'l', long)]
    pub selector: Option<LabelSelector>,
    /// Resume after this position, sending only later changes
    #[arg(long, value_name = "POSITION")]
    pub resume: Option<Position>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: EventOutput,
}

/// Output formats of `watch`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum EventOutput {
    /// One human-readable line per change
    #[default]
    Lines,
    /// One JSON event per line
    Json,
}

/// Format in which a complete API document is printed (`-o json`, `-o yaml`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Document {
    /// JSON with indentation.
    Json,
    /// YAML, one document.
    Yaml,
}

pub(crate) fn parse_api(text: &str) -> Result<Url, String> {
    if let Some(socket) = client::socket::parse(text) {
        return socket;
    }
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&with_scheme).map_err(|error| format!("{error}; write http://HOST:PORT"))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err(format!(
            "unsupported URL scheme `{}`; write https://HOST:PORT or http://HOST:PORT",
            url.scheme()
        ));
    }
    let is_bare =
        url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    if is_bare && url.has_host() {
        Ok(url)
    } else {
        Err("must be a server URL without path, query or user: https://HOST:PORT or http://HOST:PORT"
            .to_owned())
    }
}

fn parse_address(text: &str) -> Result<IpAddr, String> {
    address_of(text).ok_or_else(|| "must be an address such as 192.0.2.1 or 2001:db8::1".to_owned())
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let milliseconds_per_unit = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        _ => return Err("must be a number with unit ms, s or m, such as 30s".to_owned()),
    };
    let milliseconds =
        number.parse::<u64>().ok().and_then(|number| number.checked_mul(milliseconds_per_unit));
    match milliseconds {
        Some(milliseconds @ 1..) if milliseconds <= TIMEOUT_SECONDS_MAX * 1000 => {
            Ok(Duration::from_millis(milliseconds))
        }
        Some(_) | None => {
            Err(format!("must be greater than 0 and at most {TIMEOUT_SECONDS_MAX}s, such as 30s"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn servers_are_named_by_scheme_host_and_port_and_nothing_else() {
        for good in "http://10.0.0.1:7440 https://x localhost:7440 http://[::1]:7440/ unix:/a.sock".split(' ')
        {
            assert!(parse_api(good).is_ok(), "{good}");
        }
        for bad in " https://x/v1 http:// http://x/v1 http://u@x ftp://x http://x?y unix:a.sock".split(' ') {
            assert!(parse_api(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_have_units_and_bounds() {
        assert_eq!(parse_timeout("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_timeout("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_timeout("30"), Ok(Duration::from_secs(30)));
        for bad in ["", "0", "s", "-1s", "1h", "99999999999999999999s", "2d", "1441m"] {
            assert!(parse_timeout(bad).is_err(), "{bad}");
        }
    }
}
