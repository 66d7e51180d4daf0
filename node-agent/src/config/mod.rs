//! Configuration: flags take precedence over environment variables, those over the file, and the file over
//! defaults. All settings are validated before the agent starts.

macro_rules! setting_error {
    ($key:literal, $variable:literal, $($problem:tt)*) => {
        ConfigError { flag: concat!("--", $key), variable: $variable, key: $key, problem: format!($($problem)*) }
    };
}

pub mod announcing;
pub mod options;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use announce::AnnounceConfig;
use client::socket;
use ipnet::IpNet;
use model::{
    kinds::{
        metadata::Labels,
        node::{NODE_ADDRESSES_MAX, NODE_WORKLOAD_CIDRS_MAX, Naming, ProxyMode},
        selector::LabelSelector,
    },
    primitives::{
        name::{Label, Name, NameError},
        net::{self, IpFamily},
    },
    wire::hold::LOST_PERCENT_DEFAULT,
};
use reqwest::Url;
use traces::Telemetry;

use self::options::{LogFormat, Options, ProxySettings};
use crate::{enrol::EnrolOptions, state::defaults::ProxyDefaults};

/// Default of `--api` while the default socket does not exist: a control server on this machine.
pub const API_DEFAULT: &str = "http://127.0.0.1:7440";
/// Maximum number of control servers. Each agent keeps one stream to each server and sends all its reports to
/// each. More servers are no advantage: a store with more than seven members only becomes slower.
pub const APIS_MAX: usize = 8;
/// Default of `--state-dir`, the directory of journal and certificate.
pub const STATE_DIR_DEFAULT: &str = "/var/lib/tidegate-agent";
/// Default listen address of the agent.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7441";
/// Default of `--log`, a filter of the crate `tracing-subscriber`.
pub const LOG_DEFAULT: &str = "info";

/// Settings of the agent after validation, with defaults applied.
#[derive(Debug, Clone)]
pub struct Config {
    /// Base URLs of the control servers; never empty.
    pub apis: Vec<Url>,
    /// True if no control server is configured. The agent then uses the default socket
    /// ([`client::socket::PATH_DEFAULT`]) while it exists.
    pub is_api_default: bool,
    /// CA file and join token with which this node obtains its certificate.
    pub enrolment: EnrolOptions,
    /// Name of this node, the host name by default.
    pub node: Name,
    /// Directory of the journal, the certificate and the lock.
    pub state_dir: PathBuf,
    /// Listen address of the status server.
    pub listen: SocketAddr,
    /// Networks of this node's Workloads, sent when the node registers itself.
    pub workload_cidrs: Vec<IpNet>,
    /// Addresses of this node, sent when the node registers itself; if empty, the addresses found on the
    /// machine are used.
    pub addresses: Vec<IpAddr>,
    /// Labels of this node, sent when the node registers itself.
    pub labels: Labels,
    /// Failure zone of this node, if it has one, sent when the node registers itself.
    pub zone: Option<Label>,
    /// Maximum share of addresses or endpoints that a state from a different epoch of the control server's
    /// store may remove, in percent. A state that removes more is held pending confirmation.
    pub state_guard_percent: u8,
    /// Proxy settings used where the Node object has none.
    pub proxy: ProxyDefaults,
    /// Settings for announcing load balancer addresses.
    pub announcing: AnnounceConfig,
    /// True if the control server may request fixes of this machine's settings.
    pub allow_fixes: bool,
    /// Export to an OpenTelemetry collector; by default nothing is exported.
    pub telemetry: Telemetry,
    /// Filter for log messages, as in `info` or `warn,node_agent=debug`.
    pub log: String,
    /// Format of log messages: text or JSON lines.
    pub log_format: LogFormat,
}

/// Error: a setting has an invalid value, or a required setting is missing.
#[derive(Debug, thiserror::Error)]
#[error("{flag} ({variable}, or `{key}` in the file): {problem}")]
pub struct ConfigError {
    flag: &'static str,
    variable: &'static str,
    key: &'static str,
    problem: String,
}

impl Config {
    /// Applies defaults and validates all settings. `host_name` is the default of `--node`.
    ///
    /// # Errors
    /// Returns the first invalid setting.
    pub fn from_options(options: Options, host_name: &str) -> Result<Self, ConfigError> {
        let Options {
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
        } = options;
        let is_api_default = api.as_ref().is_none_or(Vec::is_empty);
        let apis = check_apis(api.as_deref().unwrap_or_default())?;
        let enrolment = check_enrolment(ca_file, join_token_file, &apis)?;
        Ok(Self {
            apis,
            is_api_default,
            enrolment,
            node: check_node(node.as_deref(), host_name)?,
            state_dir: state_dir.unwrap_or_else(|| PathBuf::from(STATE_DIR_DEFAULT)),
            listen: check_listen(listen.as_deref())?,
            workload_cidrs: check_networks(WORKLOAD_CIDR, &workload_cidr.unwrap_or_default())?,
            addresses: check_addresses(&address.unwrap_or_default())?,
            labels: check_labels(&label.unwrap_or_default())?,
            zone: check_zone(zone.as_deref())?,
            state_guard_percent: check_state_guard(state_guard_percent)?,
            proxy: check_proxy(proxy)?,
            announcing: announcing::check(announcing)?,
            allow_fixes: allow_fixes.unwrap_or(false),
            telemetry: Telemetry::default(),
            log: log.unwrap_or_else(|| LOG_DEFAULT.to_owned()),
            log_format: log_format.unwrap_or_default(),
        })
    }
}

/// Validates the CA file and the join token, which require an https URL.
fn check_enrolment(
    ca_file: Option<PathBuf>,
    join_token_file: Option<PathBuf>,
    apis: &[Url],
) -> Result<EnrolOptions, ConfigError> {
    if !apis.iter().any(|url| url.scheme() == "https") {
        let problem = "requires a control server with an https:// URL (--api)";
        if ca_file.is_some() {
            return Err(setting_error!("ca-file", "TIDEGATE_CA_FILE", "{problem}"));
        }
        if join_token_file.is_some() {
            return Err(setting_error!("join-token-file", "TIDEGATE_JOIN_TOKEN_FILE", "{problem}"));
        }
    }
    Ok(EnrolOptions { ca_file, join_token_file, join_token: None })
}

/// Parses the URLs of the control servers, in order; each text may contain several URLs, separated by commas.
fn check_apis(texts: &[String]) -> Result<Vec<Url>, ConfigError> {
    let wrong = |problem: String| setting_error!("api", "TIDEGATE_API", "{problem}");
    let mut urls: Vec<Url> = Vec::new();
    for text in texts.iter().flat_map(|text| text.split(',')) {
        let url = check_api(text.trim())?;
        if urls.contains(&url) {
            return Err(wrong(format!("`{url}` is given twice")));
        }
        urls.push(url);
    }
    if urls.len() > APIS_MAX {
        return Err(wrong(format!("must be at most {APIS_MAX} servers, not {}", urls.len())));
    }
    if urls.len() > 1 && urls.iter().any(|url| url.scheme() == socket::SCHEME) {
        return Err(wrong("must be either servers or one socket".to_owned()));
    }
    if urls.is_empty() {
        urls.push(check_api(API_DEFAULT)?);
    }
    Ok(urls)
}

fn check_api(text: &str) -> Result<Url, ConfigError> {
    let wrong = |problem: &str| {
        setting_error!("api", "TIDEGATE_API", "{problem}, such as {API_DEFAULT}; not `{text}`")
    };
    if let Some(url) = socket::parse(text) {
        return url.map_err(|problem| wrong(&problem));
    }
    let url = Url::parse(text).map_err(|_| wrong("must be a URL"))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err(wrong("must begin with https:// or http://"));
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("must end after host and port"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(setting_error!(
            "api",
            "TIDEGATE_API",
            "must not carry a user or password; this version sends none"
        ));
    }
    Ok(url)
}

fn check_node(text: Option<&str>, host_name: &str) -> Result<Name, ConfigError> {
    let name = text.map_or_else(|| host_name.to_ascii_lowercase(), str::to_owned);
    let from = if text.is_some() { "" } else { "the host name is not a valid node name; set one here. It" };
    Name::parse(&name).map_err(|error| setting_error!("node", "TIDEGATE_NODE", "{from}{error}"))
}

fn check_state_guard(percent: Option<u8>) -> Result<u8, ConfigError> {
    let percent = percent.unwrap_or(LOST_PERCENT_DEFAULT);
    if percent > 100 {
        return Err(setting_error!(
            "state-guard-percent",
            "TIDEGATE_STATE_GUARD_PERCENT",
            "must be 0 to 100, not {percent}; {LOST_PERCENT_DEFAULT} is the default, 100 turns the guard off"
        ));
    }
    Ok(percent)
}

/// Validates the proxy settings.
///
/// # Errors
/// Returns the first invalid setting.
pub fn check_proxy(options: ProxySettings) -> Result<ProxyDefaults, ConfigError> {
    let ProxySettings { mode, masquerade_bit, cluster_cidr, node_port_addresses, naming, strict_arp } =
        options;
    if let Some(bit) = masquerade_bit.filter(|bit| *bit > 31) {
        return Err(setting_error!(
            "masquerade-bit",
            "TIDEGATE_MASQUERADE_BIT",
            "must be 0 to 31, not {bit}; 14 is the default"
        ));
    }
    Ok(ProxyDefaults {
        mode: check_mode(mode.as_deref())?,
        masquerade_bit,
        cluster_cidrs: check_networks(CLUSTER_CIDR, &cluster_cidr.unwrap_or_default())?,
        node_port_addresses: check_networks(NODE_PORT_ADDRESSES, &node_port_addresses.unwrap_or_default())?,
        naming: check_naming(naming.as_deref())?,
        is_arp_lax: strict_arp == Some(false),
    })
}

/// Parses the proxy mode.
///
/// # Errors
/// Returns an error for an unknown mode.
pub fn check_mode(text: Option<&str>) -> Result<ProxyMode, ConfigError> {
    let wrong = |problem: String| setting_error!("mode", "TIDEGATE_MODE", "{problem}");
    let Some(text) = text else { return Ok(ProxyMode::default()) };
    let names: Vec<_> = ProxyMode::ALL.iter().map(|mode| format!("`{}`", mode.as_str())).collect();
    let names = names.join(", ");
    match ProxyMode::ALL.iter().copied().find(|mode| mode.as_str() == text) {
        Some(mode) => Ok(mode),
        None if text.starts_with("win") || text == "kernelspace" => Err(wrong(format!(
            "`{text}` is a mode of Windows nodes, and the agent is Linux only; use one of {names}"
        ))),
        None => Err(wrong(format!("must be one of {names}, not `{text}`"))),
    }
}

fn check_naming(text: Option<&str>) -> Result<Naming, ConfigError> {
    match text {
        None | Some("tidegate") => Ok(Naming::Tidegate),
        Some("kube") => Ok(Naming::Kube),
        Some(text) => {
            Err(setting_error!("naming", "TIDEGATE_NAMING", "must be `tidegate` or `kube`, not `{text}`"))
        }
    }
}

/// Parses `--listen`.
///
/// # Errors
/// Returns an error unless it is an IP address with a port.
pub fn check_listen(text: Option<&str>) -> Result<SocketAddr, ConfigError> {
    let text = text.unwrap_or(LISTEN_DEFAULT);
    let problem = "must be an IP address and a port, such as 127.0.0.1:7441 or [::1]:7441";
    text.parse().map_err(|_| setting_error!("listen", "TIDEGATE_LISTEN", "{problem}; not `{text}`"))
}

/// Setting whose value is a list of networks, with its rules.
struct NetworksSetting {
    flag: &'static str,
    variable: &'static str,
    key: &'static str,
    /// True if special networks, such as `0.0.0.0/0`, are allowed.
    is_any_allowed: bool,
}

const WORKLOAD_CIDR: NetworksSetting = NetworksSetting {
    flag: "--workload-cidr",
    variable: "TIDEGATE_WORKLOAD_CIDR",
    key: "workload-cidr",
    is_any_allowed: false,
};
const CLUSTER_CIDR: NetworksSetting = NetworksSetting {
    flag: "--cluster-cidr",
    variable: "TIDEGATE_CLUSTER_CIDR",
    key: "cluster-cidr",
    is_any_allowed: false,
};
const NODE_PORT_ADDRESSES: NetworksSetting = NetworksSetting {
    flag: "--node-port-addresses",
    variable: "TIDEGATE_NODE_PORT_ADDRESSES",
    key: "node-port-addresses",
    is_any_allowed: true,
};

fn check_networks(setting: NetworksSetting, texts: &[String]) -> Result<Vec<IpNet>, ConfigError> {
    let NetworksSetting { flag, variable, key, is_any_allowed } = setting;
    let wrong = |problem: String| ConfigError { flag, variable, key, problem };
    if texts.len() > NODE_WORKLOAD_CIDRS_MAX {
        return Err(wrong(format!(
            "must be at most {NODE_WORKLOAD_CIDRS_MAX} networks, not {}",
            texts.len()
        )));
    }
    let mut networks: Vec<IpNet> = Vec::new();
    for text in texts {
        let network: IpNet = text.parse().map_err(|_| {
            wrong(format!("must be networks such as 10.244.1.0/24 or fd00:1::/64, not `{text}`"))
        })?;
        if network.trunc() != network {
            return Err(wrong(format!("`{text}` has bits beyond its prefix; write {}", network.trunc())));
        }
        let forbidden = net::forbidden(network.network());
        if let Some(why) = forbidden.filter(|_| network.prefix_len() > 0 && !is_any_allowed) {
            return Err(wrong(format!(
                "`{text}` must be an ordinary unicast network; it begins with {why} addresses"
            )));
        }
        if let Some(other) = networks.iter().find(|other| {
            IpFamily::of_net(other) == IpFamily::of_net(&network) && net::overlaps(other, &network)
        }) {
            return Err(wrong(format!("`{text}` overlaps `{other}`; leave one of them out")));
        }
        networks.push(network);
    }
    Ok(networks)
}

/// Parses labels of the form `key=value`.
fn check_labels(texts: &[String]) -> Result<Labels, ConfigError> {
    let wrong = |problem: String| setting_error!("label", "TIDEGATE_LABEL", "{problem}");
    let mut labels = Labels::new();
    for text in texts {
        let (key, value) = text
            .split_once('=')
            .filter(|(key, _)| !key.ends_with('!'))
            .filter(|(key, value)| ![key, value].iter().any(|part| part.contains([',', '=', '(', ' '])))
            .filter(|_| text.parse::<LabelSelector>().is_ok())
            .ok_or_else(|| wrong(format!("must be labels such as rack=r1, not `{text}`")))?;
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(wrong(format!("`{key}` is given twice")));
        }
    }
    Ok(labels)
}

fn check_zone(text: Option<&str>) -> Result<Option<Label>, ConfigError> {
    let wrong = |problem: NameError| setting_error!("zone", "TIDEGATE_ZONE", "{problem}");
    text.map(Label::parse).transpose().map_err(wrong)
}

fn check_addresses(texts: &[String]) -> Result<Vec<IpAddr>, ConfigError> {
    let wrong = |problem: String| setting_error!("address", "TIDEGATE_ADDRESS", "{problem}");
    if texts.len() > NODE_ADDRESSES_MAX {
        return Err(wrong(format!("must be at most {NODE_ADDRESSES_MAX} addresses, not {}", texts.len())));
    }
    let mut addresses = Vec::new();
    for text in texts {
        let address: IpAddr = text
            .parse()
            .map_err(|_| wrong(format!("must be IP addresses such as 192.0.2.10, not `{text}`")))?;
        if let Some(why) = net::forbidden(address) {
            return Err(wrong(format!("`{text}` is {why}; give addresses that other nodes can reach")));
        }
        if addresses.contains(&address) {
            return Err(wrong(format!("`{text}` is given twice")));
        }
        addresses.push(address);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(options: Options) -> String {
        Config::from_options(options, "host").unwrap_err().to_string()
    }

    #[test]
    fn defaults_are_enough_to_start() {
        let config = Config::from_options(Options::default(), "Node-1.Example").unwrap();
        assert_eq!(config.node.as_str(), "node-1.example");
        assert_eq!(config.apis[0].as_str(), "http://127.0.0.1:7440/");
        assert!(config.is_api_default);
        let options = Options { api: Some(vec![API_DEFAULT.to_owned()]), ..Options::default() };
        assert!(!Config::from_options(options, "host").unwrap().is_api_default);
        assert_eq!(config.listen.to_string(), LISTEN_DEFAULT);
    }

    #[test]
    fn errors_name_the_flag_and_the_remedy() {
        let some = |text: &str| Some(text.to_owned());
        let apis = |text: &str| Some(vec![text.to_owned()]);
        let twice = problem(Options { api: apis("http://a:1,http://a:1/"), ..Options::default() });
        assert!(twice.contains("--api") && twice.contains("given twice"), "{twice}");
        let many = (0..=APIS_MAX).map(|number| format!("http://control-{number}:7440")).collect();
        let many = problem(Options { api: Some(many), ..Options::default() });
        assert!(many.contains("at most 8 servers, not 9"), "{many}");
        let ftp = problem(Options { api: apis("ftp://control:7440"), ..Options::default() });
        assert!(
            ftp.starts_with("--api (TIDEGATE_API, or `api` in the file): must begin with https:// or"),
            "{ftp}"
        );
        let in_plain = Options {
            api: apis("http://control:7440"),
            join_token_file: Some("token".into()),
            ..Options::default()
        };
        assert!(problem(in_plain).contains("--join-token-file"));
        let path = problem(Options { api: apis("http://control:7440/v1"), ..Options::default() });
        assert!(path.contains("must end after host and port"), "{path}");
        let proxy = |settings| problem(Options { proxy: settings, ..Options::default() });
        let mode = proxy(ProxySettings { mode: some("turbo"), ..ProxySettings::default() });
        assert!(mode.contains("--mode") && mode.contains("`nftables`, `iptables`"), "{mode}");
        let bit = proxy(ProxySettings { masquerade_bit: Some(32), ..ProxySettings::default() });
        assert!(bit.contains("--masquerade-bit") && bit.contains("0 to 31"), "{bit}");
        let naming = proxy(ProxySettings { naming: some("docker"), ..ProxySettings::default() });
        assert!(naming.contains("--naming") && naming.contains("`kube`"), "{naming}");
        let nets = Some(vec!["10.1.1.1/24".to_owned()]);
        let ports = proxy(ProxySettings { node_port_addresses: nets, ..ProxySettings::default() });
        assert!(ports.contains("--node-port-addresses") && ports.contains("write 10.1.1.0/24"), "{ports}");
        let node = problem(Options { node: some("Node_1"), ..Options::default() });
        assert!(node.contains("--node") && node.contains("lower-case"), "{node}");
        let cidr = |list: &[&str]| {
            let list = list.iter().map(ToString::to_string).collect();
            problem(Options { workload_cidr: Some(list), ..Options::default() })
        };
        assert!(cidr(&["10.1.1.1/24"]).contains("write 10.1.1.0/24"));
        assert!(cidr(&["10.0.0.0/8", "10.1.0.0/16"]).contains("overlaps"));
        assert!(cidr(&["127.0.0.0/8"]).contains("loopback"));
        let address = problem(Options { address: Some(vec!["127.0.0.1".to_owned()]), ..Options::default() });
        assert!(address.contains("--address") && address.contains("loopback"), "{address}");
    }

    #[test]
    fn a_host_name_that_is_no_node_name_asks_for_the_flag() {
        let error = Config::from_options(Options::default(), "my_host").unwrap_err().to_string();
        assert!(error.contains("--node") && error.contains("host name"), "{error}");
    }
}
