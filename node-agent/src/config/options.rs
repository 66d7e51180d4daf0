//! The words of the command line, the environment and the file, before they are checked.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Deserializer};

/// Programs the kernel of one machine as the Tidegate control server says.
///
/// The agent follows the control server, keeps the last good state on disk, programs the kernel, reads back what it
/// programmed, and reports. Traffic never waits for it: stopping it changes no packet's way, and starting it again with
/// nothing to do writes nothing. To remove everything it ever programmed, run `tidegate-agent cleanup`.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate-agent",
    version,
    after_long_help = "Every flag can also be given as the environment variable shown, or in the file named by --config \
        (TOML, the flag's name as key: state-dir = \"/srv/tidegate\"). A flag wins over the environment, the environment \
        over the file.\n\nExamples:\n  tidegate-agent --api http://10.0.0.1:7440 --node node-1 --workload-cidr 10.244.1.0/24\n  \
        tidegate-agent --config /etc/tidegate/agent.toml\n  tidegate-agent cleanup\n\nIt prints `tidegate-agent NODE ready` \
        on standard output when it runs; logs go to standard error."
)]
pub struct Cli {
    /// A TOML file with settings
    #[arg(long, global = true, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The settings.
    #[command(flatten)]
    pub options: Options,
    /// What to do; `run` when left out.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Follow the control server and program the kernel (the default)
    Run,
    /// Remove everything of Tidegate from this machine's kernel, and the saved state
    ///
    /// Connections through virtual addresses break. Foreign rules are not touched. Refuses while an agent runs with the
    /// same state directory, because that agent would put everything back.
    Cleanup {
        /// Clean up although an agent runs
        #[arg(long)]
        force: bool,
    },
    /// Take a state of control that the agent holds back, although it takes much away
    ///
    /// The agent holds back a state of another life of control's store, such as an empty or a foreign database, when more
    /// than --state-guard-percent of its virtual addresses or endpoints are missing in it. Its log, `/v1/state` and
    /// `tidegate status` say which epoch it is. Another epoch is not confirmed by this.
    Confirm {
        /// The epoch of the state that is held back
        #[arg(long, value_name = "EPOCH")]
        epoch: u64,
    },
    /// Carry the connections of userspace mode; agents start it by themselves
    #[command(hide = true)]
    Relay {
        /// The packet mark of the capture rules; exactly one bit
        #[arg(long, value_name = "MARK")]
        mark: u32,
        /// Start although another relay runs, to take over from it
        #[arg(long)]
        successor: bool,
    },
    /// Write man pages and completions below a directory that is laid out as /usr/share; packages are made with it
    #[command(hide = true)]
    Manual {
        /// The directory
        #[arg(value_name = "DIR")]
        share: PathBuf,
    },
    /// Say whether this machine can carry out the proxy mode, and load kernel modules that it lacks
    ///
    /// Lists what the mode needs as present, built-in, loadable or missing. Each need is tested for real in a network
    /// namespace of its own; rules and links of the machine are not touched. Exits with 1 when something is missing
    /// that the mode cannot do without.
    Preflight {
        /// Only look: load no module
        #[arg(long)]
        no_load: bool,
        /// How to print the findings
        #[arg(long, short, value_enum, default_value_t)]
        output: OutputFormat,
    },
    /// Say what is odd on this machine: what the proxy mode lacks, and what else stands in the way of traffic
    ///
    /// Looks at rules, marks, sizes, tables and programs of others, and says why each matters and how to put it right. The
    /// agent need not run, and control is not asked. Exits with 1 when something is broken.
    Doctor {
        /// Show what is well, too
        #[arg(long, short)]
        all: bool,
        /// Make the fixes that take nothing from anybody; each is named with its finding
        #[arg(long)]
        fix: bool,
        /// Do not ask before fixes are made
        #[arg(long, short, requires = "fix")]
        yes: bool,
        /// How to print the findings
        #[arg(long, short, value_enum, default_value_t)]
        output: OutputFormat,
    },
}

/// How to print what was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// The settings, as they were said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Options {
    /// Where the control servers are, separated by commas [default: http://127.0.0.1:7440]
    ///
    /// The state is taken from one of them, and from the next when that one ends or falls silent; reports go to all.
    #[arg(long, global = true, env = "TIDEGATE_API", value_name = "URL,…", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_several")]
    pub api: Option<Vec<String>>,
    /// PEM file with the authorities of the control servers, for URLs that begin with https:// [default: what the join token
    /// says and control told at the last renewal, or the machine's own]
    #[arg(long, global = true, env = "TIDEGATE_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// File with a join token, with which this node gets its certificate; TIDEGATE_JOIN_TOKEN may hold the token itself
    ///
    /// A token counts once. It is read again when the certificate has ended, so a new one can be put there.
    #[arg(long, global = true, env = "TIDEGATE_JOIN_TOKEN_FILE", value_name = "FILE")]
    pub join_token_file: Option<PathBuf>,
    /// The name of this node at the control server [default: the host name]
    #[arg(long, global = true, env = "TIDEGATE_NODE", value_name = "NAME")]
    pub node: Option<String>,
    /// Where the last good state is kept; one agent per directory [default: /var/lib/tidegate-agent]
    #[arg(long, global = true, env = "TIDEGATE_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Where to serve /metrics, /healthz, /v1/state, /v1/traffic and /v1/announcements [default: 127.0.0.1:7441]
    #[arg(long, global = true, env = "TIDEGATE_LISTEN", value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// The networks of this node's workloads, separated by commas; used when the node registers itself
    ///
    /// Traffic from any node's workload networks to virtual addresses keeps its source address.
    #[arg(long, global = true, env = "TIDEGATE_WORKLOAD_CIDR", value_name = "CIDR,…", value_delimiter = ',')]
    pub workload_cidr: Option<Vec<String>>,
    /// The addresses of this node, primary first, separated by commas; used when the node registers itself [default:
    /// those found on it]
    #[arg(long, global = true, env = "TIDEGATE_ADDRESS", value_name = "IP,…", value_delimiter = ',')]
    pub address: Option<Vec<String>>,
    /// Labels of this node as `key=value`, separated by commas; used when the node registers itself
    ///
    /// Advertisements select nodes by them.
    #[arg(long, global = true, env = "TIDEGATE_LABEL", value_name = "KEY=VALUE,…", value_delimiter = ',')]
    pub label: Option<Vec<String>>,
    /// The failure zone of this node; used when the node registers itself
    #[arg(long, global = true, env = "TIDEGATE_ZONE", value_name = "ZONE")]
    pub zone: Option<String>,
    /// What to log, as in `info` or `warn,node_agent=debug`; RUST_LOG counts when this is left out [default: info]
    #[arg(long, global = true, env = "TIDEGATE_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// How to write the log [default: text]
    #[arg(long, global = true, env = "TIDEGATE_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// The share of virtual addresses, or of endpoints, that a state of another life of control's store may take away
    /// before it is held back until it is confirmed; in percent, 100 to take everything [default: 50]
    #[arg(long, global = true, env = "TIDEGATE_STATE_GUARD_PERCENT", value_name = "PERCENT")]
    pub state_guard_percent: Option<u8>,
    /// Let control ask for the fixes that `doctor` marks as safe, a closed list: packets are forwarded, the table of connections
    /// is made larger, kernel modules of the mode are loaded [default: false]
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
    /// The proxy.
    #[command(flatten)]
    #[serde(flatten)]
    pub proxy: ProxySettings,
    /// The announcing of addresses.
    #[command(flatten)]
    #[serde(flatten)]
    pub announcing: AnnounceSettings,
}

/// The settings of the announcing of load balancer addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[command(next_help_heading = "Announcing load balancer addresses")]
pub struct AnnounceSettings {
    /// Time between two packets by which nodes see that another one lives, 10 to 10000 [default: 250]
    #[arg(long, global = true, env = "TIDEGATE_PEER_INTERVAL_MS", value_name = "MILLISECONDS")]
    pub peer_interval_ms: Option<u32>,
    /// Packets that may be missing before another node takes this one's addresses over, 2 to 50 [default: 3]
    #[arg(long, global = true, env = "TIDEGATE_PEER_MULTIPLIER", value_name = "COUNT")]
    pub peer_multiplier: Option<u8>,
    /// What becomes of announced addresses when the agent is stopped: handover to other nodes and routers' other ways, or
    /// keep, which asks nodes to wait 10 seconds for its return and routers to keep its routes [default: handover]
    #[arg(long, global = true, env = "TIDEGATE_ON_EXIT", value_name = "WAY")]
    pub on_exit: Option<String>,
}

impl AnnounceSettings {
    fn or(self, other: Self) -> Self {
        let Self { peer_interval_ms, peer_multiplier, on_exit } = self;
        Self {
            peer_interval_ms: peer_interval_ms.or(other.peer_interval_ms),
            peer_multiplier: peer_multiplier.or(other.peer_multiplier),
            on_exit: on_exit.or(other.on_exit),
        }
    }
}

/// The settings of the proxy; each counts where the Node object says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[command(next_help_heading = "Proxy, where the Node object does not say otherwise")]
pub struct ProxySettings {
    /// How to program the kernel: nftables, iptables, ipvs or userspace [default: nftables]
    #[arg(long, global = true, env = "TIDEGATE_MODE", value_name = "MODE")]
    pub mode: Option<String>,
    /// The bit of the packet mark that asks for masquerading, 0 to 31 [default: 14]
    #[arg(long, global = true, env = "TIDEGATE_MASQUERADE_BIT", value_name = "BIT")]
    pub masquerade_bit: Option<u8>,
    /// Networks whose sources count as workloads, separated by commas [default: the workload networks of all nodes]
    #[arg(long, global = true, env = "TIDEGATE_CLUSTER_CIDR", value_name = "CIDR,…", value_delimiter = ',')]
    pub cluster_cidr: Option<Vec<String>>,
    /// Networks of the addresses at which node ports answer, separated by commas [default: all addresses]
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_NODE_PORT_ADDRESSES",
        value_name = "CIDR,…",
        value_delimiter = ','
    )]
    pub node_port_addresses: Option<Vec<String>>,
    /// How to name chains and sets in iptables and ipvs mode: tidegate, or kube for kube-proxy's names [default:
    /// tidegate]
    #[arg(long, global = true, env = "TIDEGATE_NAMING", value_name = "NAMING")]
    pub naming: Option<String>,
    /// Answer ARP in ipvs mode only for addresses of the interface asked: true or false [default: true]
    #[arg(long, global = true, env = "TIDEGATE_STRICT_ARP", value_name = "BOOLEAN")]
    pub strict_arp: Option<bool>,
}

impl ProxySettings {
    fn or(self, other: Self) -> Self {
        let Self { mode, masquerade_bit, cluster_cidr, node_port_addresses, naming, strict_arp } = self;
        Self {
            mode: mode.or(other.mode),
            masquerade_bit: masquerade_bit.or(other.masquerade_bit),
            cluster_cidr: cluster_cidr.or(other.cluster_cidr),
            node_port_addresses: node_port_addresses.or(other.node_port_addresses),
            naming: naming.or(other.naming),
            strict_arp: strict_arp.or(other.strict_arp),
        }
    }
}

/// Takes a list, or what would be the only one of it.
fn one_or_several<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a URL, or a list of URLs")]
    enum OneOrSeveral {
        One(String),
        Several(Vec<String>),
    }
    Ok(Some(match OneOrSeveral::deserialize(from)? {
        OneOrSeveral::One(one) => vec![one],
        OneOrSeveral::Several(several) => several,
    }))
}

impl LogFormat {
    /// Its word on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// How to write the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Why the file of settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("--config {path} cannot be read")]
    Read {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It does not say settings.
    #[error("--config {path} is not a file of settings; its keys are the names of the flags")]
    Form {
        /// The file.
        path: String,
        /// Where and what.
        #[source]
        source: toml::de::Error,
    },
}

impl Options {
    /// Reads a file of settings.
    ///
    /// # Errors
    /// When it cannot be read, or says something that is no setting.
    pub fn from_file(path: &Path) -> Result<Self, FileError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| FileError::Read { path: shown.clone(), source })?;
        toml::from_str(&text).map_err(|source| FileError::Form { path: shown, source })
    }

    /// These settings, and where they say nothing, the others.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let Self {
            api,
            ca_file,
            join_token_file,
            node,
            state_dir,
            listen,
            workload_cidr,
            address,
            label,
            zone,
            log,
            log_format,
            state_guard_percent,
            proxy,
            announcing,
            allow_fixes,
        } = self;
        Self {
            api: api.or(other.api),
            ca_file: ca_file.or(other.ca_file),
            join_token_file: join_token_file.or(other.join_token_file),
            node: node.or(other.node),
            state_dir: state_dir.or(other.state_dir),
            listen: listen.or(other.listen),
            workload_cidr: workload_cidr.or(other.workload_cidr),
            label: label.or(other.label),
            zone: zone.or(other.zone),
            address: address.or(other.address),
            log: log.or(other.log),
            log_format: log_format.or(other.log_format),
            state_guard_percent: state_guard_percent.or(other.state_guard_percent),
            proxy: proxy.or(other.proxy),
            announcing: announcing.or(other.announcing),
            allow_fixes: allow_fixes.or(other.allow_fixes),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_setting_of_the_example_file_is_one() {
        let example = include_str!("../../../packaging/etc/tidegate/agent.toml");
        assert_eq!(toml::from_str::<Options>(example).unwrap(), Options::default());
        let settings = example.lines().filter_map(|line| line.strip_prefix('#'));
        for line in settings.filter(|line| line.starts_with(char::is_alphabetic)) {
            let options = toml::from_str::<Options>(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_ne!(options, Options::default(), "{line}");
        }
    }

    #[test]
    fn flags_win_over_the_file_and_unknown_keys_are_refused() {
        let file: Options =
            toml::from_str("api = \"http://file:1\"\nworkload-cidr = [\"10.0.0.0/8\"]").unwrap();
        let cli = Cli::parse_from(["tidegate-agent", "run", "--api", "http://flag:1"]);
        let merged = cli.options.or(file);
        assert_eq!(merged.api, Some(vec!["http://flag:1".to_owned()]));
        let several = ["api = [\"http://a:1\", \"http://b:1\"]", "api = \"http://a:1,http://b:1\""];
        for text in several {
            let options: Options = toml::from_str(text).unwrap();
            let config = crate::config::Config::from_options(options, "host").unwrap();
            assert_eq!(config.apis.iter().map(|url| url.port()).collect::<Vec<_>>(), [Some(1), Some(1)]);
        }
        let wrong = toml::from_str::<Options>("api = 1").unwrap_err().to_string();
        assert!(wrong.contains("a URL, or a list of URLs"), "{wrong}");
        assert_eq!(merged.workload_cidr, Some(vec!["10.0.0.0/8".to_owned()]));
        let error = toml::from_str::<Options>("apis = 1").unwrap_err().to_string();
        assert!(error.contains("unknown field"), "{error}");
    }
}
