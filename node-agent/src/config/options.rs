//! Raw settings from the command line, the environment and the file, before validation. The crate `settings`
//! merges the three sources.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Programs the kernel of one machine according to the Tidegate control server.
///
/// The agent follows the control server, saves the last good state on disk, programs the kernel, verifies the
/// result by reading it back, and reports. Packets do not pass through the agent: while it hangs or is stopped,
/// the rules in the kernel stay in force, but get no changes. Announced addresses move to other nodes. Endpoints on
/// this machine stay in service while other nodes reach them (`tidegate-api --node-lost-after`). A restart
/// without changes writes nothing. To remove everything it has programmed, run `tidegate-agent cleanup`.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate-agent",
    version = base::build::text(),
    after_long_help = "Every flag can also be given as the environment variable shown, or in the file named by --config \
        (TOML, the flag's name as key: state-dir = \"/srv/tidegate\"). A flag wins over the environment, the environment \
        over the file.\n\nExamples:\n  tidegate-agent --api http://10.0.0.1:7440 --node node-1 --workload-cidr 10.244.1.0/24\n  \
        tidegate-agent --config /etc/tidegate/agent.toml\n  tidegate-agent cleanup\n\nIt prints `tidegate-agent NODE ready` \
        on standard output when it runs; logs go to standard error."
)]
pub struct Cli {
    /// TOML file with settings
    #[arg(long, global = true, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Settings of the agent, from flags and environment variables.
    #[command(flatten)]
    pub options: Options,
    /// Subcommand; the agent runs if omitted.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Subcommands of `tidegate-agent`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Follow the control server and program the kernel (the default)
    Run,
    /// Remove everything of Tidegate from this machine's kernel, and the saved state
    ///
    /// Connections through virtual addresses break. Rules of other programs are not touched. Refuses while an
    /// agent runs with the same state directory, because that agent would put everything back.
    Cleanup {
        /// Clean up even if an agent is running
        #[arg(long)]
        force: bool,
    },
    /// Check the health of the agent running here, and exit with 1 if it is unhealthy
    ///
    /// For container engines. Requests `/healthz` at --listen; if that address is not the default, set the
    /// environment variable of --listen.
    Healthcheck,
    /// Accept a state from the control server that the agent holds pending confirmation
    ///
    /// The agent holds a state from a different epoch of the control server's store, such as an empty or foreign
    /// database, if more than --state-guard-percent of its virtual addresses or endpoints are missing in it. The
    /// log of the agent, `/v1/state` and `tidegate status` show the epoch. Only that epoch is confirmed.
    Confirm {
        /// The epoch of the state that is held pending confirmation
        #[arg(long, value_name = "EPOCH")]
        epoch: u64,
    },
    /// Attach a network namespace on this machine to a workload network
    ///
    /// The agent running here creates an interface in the namespace, with an address of a block of this node, and the
    /// routes to it. Works while the control server is away. The same command can be repeated.
    Attach(AttachArgs),
    /// Remove an attachment, with its interface and its routes
    Detach(DetachArgs),
    /// Relay the connections of userspace mode; started by the agent itself
    #[command(hide = true)]
    Relay {
        /// The packet mark of the rules that redirect connections to the relay; exactly one bit
        #[arg(long, value_name = "MARK")]
        mark: u32,
        /// Start even if another relay is running, to take over from it
        #[arg(long)]
        successor: bool,
    },
    /// Write man pages and completions into a directory laid out like /usr/share; used for packaging
    #[command(hide = true)]
    Manual {
        /// The directory to write to, usually `usr/share` in the package
        #[arg(value_name = "DIR")]
        share: PathBuf,
    },
    /// Check if this machine supports the proxy mode, and load missing kernel modules
    ///
    /// Lists the requirements of the mode as present, built-in, loadable or missing. Each is tested in a
    /// temporary network namespace; rules and links of the machine are not changed. Exits with 1 if a
    /// required item is missing.
    Preflight {
        /// Only check: load no module
        #[arg(long)]
        no_load: bool,
        /// Output format
        #[arg(long, short, value_enum, default_value_t)]
        output: OutputFormat,
    },
    /// Diagnose this machine: missing requirements of the proxy mode, and other obstacles to traffic
    ///
    /// Checks rules, marks, MTUs, tables and programs that conflict with the agent, and explains each problem
    /// with its remedy. Works without a running agent or the control server. Exits with 1 if something is
    /// broken.
    Doctor {
        /// Show successful checks, too
        #[arg(long, short)]
        all: bool,
        /// Apply the safe fixes; each is named with its finding
        #[arg(long)]
        fix: bool,
        /// Apply fixes without confirmation
        #[arg(long, short, requires = "fix")]
        yes: bool,
        /// Output format
        #[arg(long, short, value_enum, default_value_t)]
        output: OutputFormat,
    },
}

/// Arguments of `tidegate-agent attach`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct AttachArgs {
    /// Name of the Workload, which identifies the attachment on this machine
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Network namespace: a name of `ip netns`, or a path
    #[arg(long, value_name = "NAME|PATH", required_unless_present = "pid")]
    pub netns: Option<String>,
    /// Process whose network namespace is attached
    #[arg(long, value_name = "PID", conflicts_with = "netns")]
    pub pid: Option<u32>,
    /// Name of the interface in the network namespace
    #[arg(long, value_name = "NAME", default_value = "eth0")]
    pub interface: String,
    /// WorkloadNetwork of the address [default: the only one that has a block on this node]
    #[arg(long, value_name = "NAME")]
    pub network: Option<String>,
    /// Namespace of the Workload [default: default]
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Labels of the Workload as `key=value`, separated by commas
    #[arg(id = "workload_label", long = "workload-label", value_name = "KEY=VALUE,…", value_delimiter = ',')]
    pub label: Vec<String>,
}

/// Arguments of `tidegate-agent detach`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct DetachArgs {
    /// Name of the Workload at the time of the attachment
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Name of the interface in the network namespace
    #[arg(long, value_name = "NAME", default_value = "eth0")]
    pub interface: String,
}

/// Output format of `preflight` and `doctor`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Human-readable table.
    #[default]
    Table,
    /// JSON for processing by programs.
    Json,
}

/// Raw settings of the agent, before validation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Options {
    /// URLs of the control servers, separated by commas [default: unix:/run/tidegate/api.sock while it exists,
    /// otherwise http://127.0.0.1:7440]
    ///
    /// unix:PATH is the socket of a server on this machine.
    ///
    /// The state comes from one of them, and from the next if that one fails; reports go to all.
    #[arg(long, global = true, env = "TIDEGATE_API", value_name = "URL,…", value_delimiter = ',')]
    pub api: Option<Vec<String>>,
    /// PEM file with the CA certificates of the control servers, for https:// URLs [default: the pin of the
    /// join token and the CA certificates from the last renewal, or the CAs of the machine]
    #[arg(long, global = true, env = "TIDEGATE_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// File with a join token, by which this node obtains its certificate; TIDEGATE_JOIN_TOKEN may contain
    /// the token itself
    ///
    /// A token can be used once. The file is read again after the certificate has expired, so that a new
    /// token can be provided.
    #[arg(long, global = true, env = "TIDEGATE_JOIN_TOKEN_FILE", value_name = "FILE")]
    pub join_token_file: Option<PathBuf>,
    /// Name of this node at the control server [default: the host name]
    #[arg(long, global = true, env = "TIDEGATE_NODE", value_name = "NAME")]
    pub node: Option<String>,
    /// Directory for the last good state; one agent per directory [default: /var/lib/tidegate-agent]
    #[arg(long, global = true, env = "TIDEGATE_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Listen address for /metrics, /healthz, /v1/state, /v1/traffic and /v1/announcements [default:
    /// 127.0.0.1:7441]
    #[arg(long, global = true, env = "TIDEGATE_LISTEN", value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Networks of this node's workloads, separated by commas; used when the node registers itself
    ///
    /// Traffic from any node's workload networks to virtual addresses keeps its source address. A server with
    /// authentication applies only networks inside its --workload-range; others wait for `tidegate node accept`.
    #[arg(long, global = true, env = "TIDEGATE_WORKLOAD_CIDR", value_name = "CIDR,…", value_delimiter = ',')]
    pub workload_cidr: Option<Vec<String>>,
    /// Addresses of this node, primary first, separated by commas; used when the node registers itself
    /// [default: those found on it]
    #[arg(long, global = true, env = "TIDEGATE_ADDRESS", value_name = "IP,…", value_delimiter = ',')]
    pub address: Option<Vec<String>>,
    /// Labels of this node as `key=value`, separated by commas; used when the node registers itself
    ///
    /// Advertisements and BgpPeers select nodes by them. A server with authentication applies only the labels of
    /// the join token; others wait for `tidegate node accept`.
    #[arg(long, global = true, env = "TIDEGATE_LABEL", value_name = "KEY=VALUE,…", value_delimiter = ',')]
    pub label: Option<Vec<String>>,
    /// Failure zone of this node; used when the node registers itself
    #[arg(long, global = true, env = "TIDEGATE_ZONE", value_name = "ZONE")]
    pub zone: Option<String>,
    /// Log filter, such as `info` or `warn,node_agent=debug`; the variable RUST_LOG is used if omitted
    /// [default: info]
    #[arg(long, global = true, env = "TIDEGATE_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// Format of log messages: text or JSON lines [default: text]
    #[arg(long, global = true, env = "TIDEGATE_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Maximum share of virtual addresses, or of endpoints, that a state from a different epoch of the
    /// control server's store may remove before it is held pending confirmation; in percent, 100 to accept
    /// everything [default: 50]
    #[arg(long, global = true, env = "TIDEGATE_STATE_GUARD_PERCENT", value_name = "PERCENT")]
    pub state_guard_percent: Option<u8>,
    /// Allow the control server to request the fixes that `doctor` marks as safe, a closed list: enabling IP
    /// forwarding, enlarging the conntrack table, loading kernel modules of the mode [default: false]
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_ALLOW_FIXES",
        value_name = "BOOLEAN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub allow_fixes: Option<bool>,
    /// Settings of the proxy mode.
    #[command(flatten)]
    pub proxy: ProxySettings,
    /// Settings for announcing load balancer addresses.
    #[command(flatten)]
    pub announcing: AnnounceSettings,
}

/// Settings for announcing load balancer addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Announcing load balancer addresses")]
pub struct AnnounceSettings {
    /// Interval of the packets by which nodes monitor each other, 10 to 10000 [default: 250]
    #[arg(long, global = true, env = "TIDEGATE_PEER_INTERVAL_MS", value_name = "MILLISECONDS")]
    pub peer_interval_ms: Option<u32>,
    /// Number of missed packets after which a node is considered down and other nodes take over its
    /// addresses, 2 to 50 [default: 3]
    #[arg(long, global = true, env = "TIDEGATE_PEER_MULTIPLIER", value_name = "COUNT")]
    pub peer_multiplier: Option<u8>,
    /// Handling of announced addresses when the agent stops: `handover` passes the addresses to other nodes
    /// and withdraws the BGP routes; `keep` lets other nodes wait 10 seconds for this agent's return, and
    /// routers keep its routes [default: handover]
    #[arg(long, global = true, env = "TIDEGATE_ON_EXIT", value_name = "WAY")]
    pub on_exit: Option<String>,
}

/// Proxy settings, used where the Node object has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Proxy, where the Node object does not say otherwise")]
pub struct ProxySettings {
    /// Proxy mode: nftables, iptables, ipvs or userspace [default: nftables]
    #[arg(long, global = true, env = "TIDEGATE_MODE", value_name = "MODE")]
    pub mode: Option<String>,
    /// Bit of the packet mark that requests masquerading, 0 to 31 [default: 14]
    #[arg(long, global = true, env = "TIDEGATE_MASQUERADE_BIT", value_name = "BIT")]
    pub masquerade_bit: Option<u8>,
    /// Source networks treated as workloads, separated by commas [default: the workload networks of all
    /// nodes]
    #[arg(long, global = true, env = "TIDEGATE_CLUSTER_CIDR", value_name = "CIDR,…", value_delimiter = ',')]
    pub cluster_cidr: Option<Vec<String>>,
    /// Networks of the addresses that serve node ports, separated by commas [default: all addresses]
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_NODE_PORT_ADDRESSES",
        value_name = "CIDR,…",
        value_delimiter = ','
    )]
    pub node_port_addresses: Option<Vec<String>>,
    /// Naming of chains and sets in iptables and ipvs mode: tidegate, or kube for kube-proxy's names
    /// [default: tidegate]
    #[arg(long, global = true, env = "TIDEGATE_NAMING", value_name = "NAMING")]
    pub naming: Option<String>,
    /// In ipvs mode, reply to ARP only for addresses of the receiving interface: true or false [default:
    /// true]
    #[arg(long, global = true, env = "TIDEGATE_STRICT_ARP", value_name = "BOOLEAN")]
    pub strict_arp: Option<bool>,
}

impl LogFormat {
    /// Returns the command line value of the log format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// Format of log messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable lines.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    fn parsed(text: &str, words: &[&str]) -> Result<Options, String> {
        let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        std::fs::write(file.path(), text).map_err(|error| error.to_string())?;
        let own = ["tidegate-agent".into(), "--config".into(), file.path().as_os_str().to_owned()];
        let words = own.into_iter().chain(words.iter().map(Into::into));
        let cli = settings::parse::<Cli>(words, settings::Rules::default());
        cli.map(|cli| cli.options).map_err(|error| error.to_string())
    }

    #[test]
    fn every_setting_of_the_example_file_is_one() {
        let example = include_str!("../../../packaging/etc/tidegate/agent.toml");
        assert_eq!(parsed(example, &[]), Ok(Options::default()));
        let settings = example.lines().filter_map(|line| line.strip_prefix('#'));
        for line in settings.filter(|line| line.starts_with(char::is_alphabetic)) {
            let options = parsed(line, &[]).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_ne!(options, Options::default(), "{line}");
        }
    }

    #[test]
    fn flags_win_over_the_file_and_unknown_keys_are_refused() {
        let file = "api = \"http://file:1\"\nworkload-cidr = [\"10.0.0.0/8\"]\nstrict-arp = false\nmasquerade-bit = 3";
        let merged = parsed(file, &["run", "--api", "http://flag:1"]).unwrap();
        assert_eq!(merged.api, Some(vec!["http://flag:1".to_owned()]));
        assert_eq!(merged.workload_cidr, Some(vec!["10.0.0.0/8".to_owned()]));
        assert_eq!((merged.proxy.strict_arp, merged.proxy.masquerade_bit), (Some(false), Some(3)));
        let several = ["api = [\"http://a:1\", \"http://b:1\"]", "api = \"http://a:1,http://b:1\""];
        for text in several {
            let options = parsed(text, &[]).unwrap();
            let config = crate::config::Config::from_options(options, "host").unwrap();
            assert_eq!(config.apis.iter().map(|url| url.port()).collect::<Vec<_>>(), [Some(1), Some(1)]);
        }
        let wrong = parsed("api = true", &[]).unwrap_err();
        assert!(wrong.contains("`api` must be a string, or a list of strings"), "{wrong}");
        let error = parsed("apis = 1", &[]).unwrap_err();
        assert!(error.contains("unknown setting `apis` of `tidegate-agent`"), "{error}");
    }
}
