//! Configuration of the server. Each setting is taken from its flag, otherwise from its environment variable
//! `TIDEGATE_…`, otherwise from a TOML file, otherwise from its default. The crate `settings` merges the
//! first three sources into [`Flags`].
//!
//! Contradictory settings are rejected at start, with the flag to change in the message. Values are never
//! corrected silently.

use crate::TlsOptions;
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::{Parser, ValueEnum};
use ipnet::IpNet;
use model::{
    cluster::{
        config::{ASN_DEFAULT, ClusterConfig, ConfigError, Guards, WORKLOAD_RANGES_DEFAULT},
        quota::{QuotaSetting, Quotas},
    },
    kinds::resource::ServiceKey,
    observed::health::GUARD_PERCENT_DEFAULT,
};

pub mod acme;
pub mod etcd;
mod node_lost;
pub mod oidc;
pub mod page;
mod port_range;
mod responses;
pub mod tls;
pub mod webhooks;

pub use ::base::Hosts;
use ::traces::Tracer;
use acme::{AcmeFlags, AcmeServers};
use etcd::EtcdFlags;
pub use node_lost::NodeLostAfter;
use oidc::{OidcFlags, OidcSettings};
use page::{PageFlags, PageSettings};
pub use port_range::PortRange;
pub use responses::ResponseLimits;
use tls::{TlsChoice, TlsMin, TlsWish};
use webhooks::{WebhookFlags, WebhookSettings};

const LISTEN_DEFAULT: &str = "127.0.0.1:7440";
const STORE_DEFAULT: &str = "sqlite:tidegate.sqlite";
const SERVICE_CIDR_DEFAULT: &str = "10.96.0.0/16";
/// Default of `--guard-vips-percent`. A mistaken write usually removes nearly all virtual addresses; an intended
/// one rarely removes more than half at once.
const GUARD_VIPS_PERCENT_DEFAULT: u8 = 50;
/// Default of `--guard-endpoints-percent`. A Service that keeps two thirds of its endpoints can usually carry
/// its load.
const GUARD_ENDPOINTS_PERCENT_DEFAULT: u8 = 33;
const BOOTSTRAP_TOKEN_FILE_DEFAULT: &str = "bootstrap-token";
const LOG_DEFAULT: &str = "info";
/// Name of this control server if the machine has no usable host name.
const REPLICA_NAME_DEFAULT: &str = "control";
/// Maximum length of a server name in characters: that of a Linux host name.
const REPLICA_NAME_LENGTH_MAX: usize = 64;

/// The Tidegate control server: stores the configuration of the cluster and distributes it to the agents
#[derive(Debug, Clone, Default, Parser)]
#[command(name = "tidegate-api", version = ::base::build::text())]
pub struct Flags {
    /// Address and port to listen on [default: 127.0.0.1:7440]
    #[arg(long, env = "TIDEGATE_LISTEN", value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Unix socket to listen on as well. Its clients have full permissions without a token; only the user and
    /// the group of this process, and root, can connect
    ///
    /// A socket that systemd passes (tidegate-api.socket) is served in the same way, without this setting.
    #[arg(long, env = "TIDEGATE_LISTEN_SOCKET", value_name = "PATH")]
    pub listen_socket: Option<PathBuf>,
    /// Store of the objects: sqlite:PATH, etcd:http://HOST:2379,… for several control servers, or memory: for
    /// a store that is lost at exit [default: sqlite:tidegate.sqlite]
    #[arg(long, global = true, env = "TIDEGATE_STORE", value_name = "URL")]
    pub store: Option<String>,
    /// Flags for the connection to etcd.
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// CIDRs from which virtual addresses of Services are allocated, the primary family first [default:
    /// 10.96.0.0/16]
    #[arg(long, env = "TIDEGATE_SERVICE_CIDR", value_name = "CIDR", value_delimiter = ',')]
    pub service_cidr: Vec<IpNet>,
    /// Range from which node ports of Services are allocated [default: 30000-32767]
    #[arg(long, env = "TIDEGATE_NODE_PORT_RANGE", value_name = "FROM-TO")]
    pub node_port_range: Option<PortRange>,
    /// CIDRs allowed for external IPs and for load balancer addresses outside any pool; none by default
    #[arg(long, env = "TIDEGATE_ALLOW_EXTERNAL_IP", value_name = "CIDR", value_delimiter = ',')]
    pub allow_external_ip: Vec<IpNet>,
    /// CIDRs in which agents may register the workload networks of their nodes: together at most a /16 or, in
    /// IPv6, a /48 for each node. Other networks are pending until `tidegate node accept` [default:
    /// 10.0.0.0/8,100.64.0.0/10,172.16.0.0/12,192.168.0.0/16,fc00::/7]
    #[arg(long, env = "TIDEGATE_WORKLOAD_RANGE", value_name = "CIDR", value_delimiter = ',')]
    pub workload_range: Vec<IpNet>,
    /// BGP AS number of nodes that do not set one [default: 64512]
    #[arg(long, env = "TIDEGATE_ASN", value_name = "AS")]
    pub asn: Option<u32>,
    /// Maximum percentage of the health-checked endpoints of a namespace, and of the cluster, that may become
    /// unhealthy within a minute. Further ones stay in service until a user confirms their removal. 100 disables
    /// this guard [default: 33]
    #[arg(long, env = "TIDEGATE_HEALTH_GUARD_PERCENT", value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub health_guard_percent: Option<u8>,
    /// Health check by default of endpoints of single TCP ports that nobody else checks: tcp (a connection every 10 s)
    /// or none. Give all control servers of a store the same value [default: tcp]
    #[arg(long, env = "TIDEGATE_DEFAULT_HEALTH_CHECK", value_name = "CHECK")]
    pub default_health_check: Option<DefaultHealthCheck>,
    /// Quotas of namespaces: RESOURCE=LIMIT for each namespace, or NAMESPACE/RESOURCE=LIMIT for one. Resources:
    /// services, endpoint-sets, workloads, endpoints, node-ports, load-balancer-addresses, checked-endpoints. The
    /// limit is a number or `unlimited` [default: unlimited]
    #[arg(long, env = "TIDEGATE_QUOTA", value_name = "QUOTA", value_delimiter = ',')]
    pub quota: Vec<QuotaSetting>,
    /// Silence in seconds, from 10 to 86400, after which a Node counts as lost: other nodes then check its
    /// Workloads, and those that fail leave service. `never`: the silence of an agent has no effect on endpoints
    /// [default: 40]
    #[arg(long, env = "TIDEGATE_NODE_LOST_AFTER", value_name = "SECONDS")]
    pub node_lost_after: Option<NodeLostAfter>,
    /// Maximum percentage of all virtual addresses that one write may remove without confirmation. 100
    /// disables this guard [default: 50]
    #[arg(long, env = "TIDEGATE_GUARD_VIPS_PERCENT", value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub guard_vips_percent: Option<u8>,
    /// Maximum percentage of all endpoint addresses that one write may remove without confirmation. 100
    /// disables this guard [default: 33]
    #[arg(long, env = "TIDEGATE_GUARD_ENDPOINTS_PERCENT", value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub guard_endpoints_percent: Option<u8>,
    /// At this start, begin a new epoch of the store (identity of its history). Give the flag once, after a
    /// backup was restored without `tidegate-api store restore`, such as by copying the database file.
    /// Otherwise agents that have a newer state reject the restored one
    #[arg(long)]
    pub new_epoch: bool,
    /// Name of this control server, unique among the servers of its store [default: the host name]
    #[arg(long, env = "TIDEGATE_REPLICA_NAME", value_name = "NAME")]
    pub replica_name: Option<String>,
    /// Register this server as an endpoint of a Service, given as NAMESPACE/NAME, so that all control servers
    /// of a store share one virtual address. The Service is created if it does not exist; nodes health-check
    /// the servers
    #[arg(long, env = "TIDEGATE_PUBLISH_AS", value_name = "SERVICE", value_parser = service_key)]
    pub publish_as: Option<ServiceKey>,
    /// TLS mode: auto, on or off. Auto enables TLS when the server listens on an address other than loopback or
    /// --tls-cert-file is given, and disables it with --insecure [default: auto]
    #[arg(long, env = "TIDEGATE_TLS", value_name = "WHEN")]
    pub tls: Option<TlsChoice>,
    /// Minimum TLS version: 1.3, or 1.2 for older clients [default: 1.3]
    #[arg(long, env = "TIDEGATE_TLS_MIN", value_name = "VERSION")]
    pub tls_min: Option<TlsMin>,
    /// PEM file with the certificate chain of this server, instead of a certificate signed by Tidegate's own
    /// CA; reloaded when it changes
    #[arg(long, env = "TIDEGATE_TLS_CERT_FILE", value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with the key of --tls-cert-file
    #[arg(long, env = "TIDEGATE_TLS_KEY_FILE", value_name = "FILE")]
    pub tls_key_file: Option<PathBuf>,
    /// Additional names and addresses in the server certificate that is signed by Tidegate's own CA. The host
    /// name, localhost and the addresses of the machine are always included
    #[arg(long, env = "TIDEGATE_TLS_NAME", value_name = "NAME", value_delimiter = ',')]
    pub tls_name: Vec<String>,
    /// Lifetime of agent certificates in seconds. Agents renew them after two thirds of it [default: 86400]
    #[arg(long, env = "TIDEGATE_AGENT_CERTIFICATE_SECS", value_name = "SECONDS")]
    pub agent_certificate_secs: Option<u32>,
    /// Time in seconds after the expiry of an agent certificate during which the agent can still renew it, from 0 to
    /// 31536000 (one year). Nodes then return by themselves after a long outage of the control servers. With 0, they need
    /// a new join token [default: 2592000, 30 days]
    #[arg(long, env = "TIDEGATE_AGENT_RENEWAL_GRACE_SECS", value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=tls::AGENT_RENEWAL_GRACE_SECS_MAX))]
    pub agent_renewal_grace_secs: Option<u32>,
    /// Allow listening on an address other than loopback without TLS and without authentication; for labs only
    #[arg(long, env = "TIDEGATE_INSECURE")]
    pub insecure: bool,
    /// Host names under which browsers may reach the server, in addition to localhost and IP addresses. On an
    /// address other than loopback, every name is accepted if none is given
    #[arg(long, env = "TIDEGATE_ALLOWED_HOST", value_name = "NAME", value_delimiter = ',')]
    pub allowed_host: Vec<String>,
    /// Authentication: required (token or agent certificate) or off [default: off on loopback and with --insecure,
    /// otherwise required]
    #[arg(long, env = "TIDEGATE_AUTH", value_name = "AUTH")]
    pub auth: Option<Auth>,
    /// File for the first token, which is written if authentication is required and no token exists yet
    /// [default: bootstrap-token next to the sqlite file, else in the working directory]
    #[arg(long, env = "TIDEGATE_BOOTSTRAP_TOKEN_FILE", value_name = "FILE")]
    pub bootstrap_token_file: Option<PathBuf>,
    /// Flags for the settings of the status page.
    #[command(flatten)]
    pub page: PageFlags,
    /// Flags for webhooks.
    #[command(flatten)]
    pub webhooks: WebhookFlags,
    /// Flags for ACME servers.
    #[command(flatten)]
    pub acme: AcmeFlags,
    /// Flags for OpenID Connect.
    #[command(flatten)]
    pub oidc: OidcFlags,
    /// Also serve a read-only Kubernetes API below /k8s/, for `kubectl get`, `describe` and `-w` with
    /// --server set to the address of this server followed by /k8s
    #[arg(long, env = "TIDEGATE_KUBERNETES_VIEW")]
    pub kubernetes_view: bool,
    /// Log filter, such as `info` or `api=debug` [default: info]
    #[arg(long, env = "TIDEGATE_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// Log format [default: text]
    #[arg(long, env = "TIDEGATE_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// TOML file with any of these settings, named as the flags
    #[arg(long, global = true, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Authentication mode of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Auth {
    /// Every request must be authenticated
    Required,
    /// Requests need no authentication; a token that is sent still determines the caller
    Off,
}

/// Health check by default of endpoints that nobody else checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum DefaultHealthCheck {
    /// TCP connection to the endpoint
    #[default]
    Tcp,
    /// No check
    None,
}

/// Output format of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable text
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// Complete, validated configuration of the server from flags, environment and file.
#[derive(Debug, Clone)]
pub struct Config {
    /// Socket address on which the API is served.
    pub listen: SocketAddr,
    /// Path of the Unix socket on which the API is served as well; `None` for no socket.
    pub listen_socket: Option<PathBuf>,
    /// URL of the store: `memory:`, `sqlite:` or `etcd:`.
    pub store: String,
    /// Options of the store, such as etcd credentials.
    pub store_options: store::Options,
    /// True if the server gives the store a new epoch (identity of the store's history) at start
    /// (`--new-epoch`).
    pub is_new_epoch: bool,
    /// File to which the first token is written if no valid token has the permissions of an administrator.
    pub bootstrap_token_file: PathBuf,
    /// Service to which this server adds itself as an endpoint (`--publish-as`), if any.
    pub publish_as: Option<ServiceKey>,
    /// Settings that the server uses while it runs.
    pub settings: Settings,
    /// Log filter in the syntax of `tracing`.
    pub log: String,
    /// Output format of log lines.
    pub log_format: LogFormat,
}

/// Reason why the configuration is rejected at start.
#[derive(Debug, thiserror::Error)]
pub enum InvalidConfig {
    /// The Service ranges, node port range or external ranges are invalid or contradict each other.
    #[error(transparent)]
    Ranges(#[from] ConfigError),
    /// The etcd flags contradict each other or name an unreadable file.
    #[error(transparent)]
    Store(#[from] etcd::InvalidStore),
    /// Server name that is too long or has characters that are not permitted.
    #[error("--replica-name must be 1 to {REPLICA_NAME_LENGTH_MAX} visible ASCII characters, not `{0}`")]
    ReplicaName(String),
    /// Invalid settings of the status page.
    #[error(transparent)]
    Page(#[from] page::InvalidPage),
    /// Invalid settings of webhooks.
    #[error(transparent)]
    Webhook(#[from] webhooks::InvalidWebhook),
    /// Invalid settings of ACME servers.
    #[error(transparent)]
    Acme(#[from] acme::InvalidAcme),
    /// Invalid settings of OpenID Connect.
    #[error(transparent)]
    Oidc(#[from] oidc::InvalidOidc),
    /// The TLS settings contradict each other.
    #[error(transparent)]
    Tls(#[from] tls::InvalidTls),
    /// The server would be reachable from other machines without TLS, and `--insecure` is not set.
    #[error(
        "--listen {0} is reachable from other machines, and with --tls off anybody could read and change \
         the traffic; leave --tls out, listen on 127.0.0.1, or pass --insecure if this is a lab"
    )]
    InsecureNotSaid(SocketAddr),
}

impl Config {
    /// Applies the defaults to the flags and validates the resulting configuration.
    ///
    /// # Errors
    /// Returns the first invalid or contradictory setting, with the flag to change.
    pub fn load(flags: Flags) -> Result<Self, InvalidConfig> {
        let Flags {
            listen,
            listen_socket,
            store,
            etcd,
            service_cidr,
            node_port_range,
            allow_external_ip,
            workload_range,
            asn,
            health_guard_percent,
            default_health_check,
            quota,
            node_lost_after,
            guard_vips_percent,
            guard_endpoints_percent,
            new_epoch,
            replica_name,
            publish_as,
            tls,
            tls_min,
            tls_cert_file,
            tls_key_file,
            tls_name,
            agent_certificate_secs,
            agent_renewal_grace_secs,
            insecure,
            allowed_host,
            auth,
            bootstrap_token_file,
            page,
            webhooks,
            acme,
            oidc,
            kubernetes_view,
            log,
            log_format,
            config: _,
        } = flags;
        let listen = listen.unwrap_or_else(listen_default);
        let PortRange(ports) = node_port_range.unwrap_or_default();
        let cidrs = if service_cidr.is_empty() { vec![service_cidr_default()] } else { service_cidr };
        let cluster = ClusterConfig::new(cidrs, ports, allow_external_ip)?
            .with_workload_ranges(workload_ranges(workload_range))?
            .with_asn(asn.unwrap_or(ASN_DEFAULT))?
            .with_quotas(Quotas::new(quota))
            .with_default_checks(default_health_check.unwrap_or_default() == DefaultHealthCheck::Tcp)
            .with_guards(guards(guard_vips_percent, guard_endpoints_percent));
        let replica_name = replica_name.map_or_else(|| Ok(machine_name()), named)?;
        let is_loopback = listen.ip().is_loopback();
        let tls = TlsWish {
            choice: tls.unwrap_or_default(),
            min: tls_min,
            certificate: tls_cert_file,
            key: tls_key_file,
            names: tls_name,
            agent_life_secs: agent_certificate_secs,
            agent_renewal_grace_secs,
        }
        .check(listen, insecure)?;
        if tls.is_none() && !(is_loopback || insecure) {
            return Err(InvalidConfig::InsecureNotSaid(listen));
        }
        let store = store.unwrap_or_else(|| STORE_DEFAULT.to_owned());
        let store_options = etcd.check(&store)?;
        let names: BTreeSet<_> = allowed_host.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        let hosts = if is_loopback || !names.is_empty() { Hosts::Local(names) } else { Hosts::Any };
        let is_open = (is_loopback && tls.is_none()) || insecure;
        let is_auth_required = auth.map_or(!is_open, |auth| auth == Auth::Required);
        let bootstrap_token_file = bootstrap_token_file.unwrap_or_else(|| beside(&store));
        Ok(Self {
            listen,
            listen_socket,
            store,
            store_options,
            is_new_epoch: new_epoch,
            bootstrap_token_file,
            publish_as,
            settings: Settings {
                cluster,
                is_insecure: !is_loopback && tls.is_none(),
                hosts,
                health_guard_percent: health_guard_percent.unwrap_or(GUARD_PERCENT_DEFAULT),
                node_lost_after: node_lost_after.unwrap_or_default(),
                tls,
                is_auth_required,
                replica_name,
                page: PageSettings::new(page.page_read_only, &page.page_link)?,
                webhooks: WebhookSettings::new(webhooks)?,
                acme: AcmeServers::new(acme)?,
                oidc: OidcSettings::new(oidc)?,
                has_kubernetes_view: kubernetes_view,
                responses: ResponseLimits::default(),
                tracer: Tracer::default(),
            },
            log: log.unwrap_or_else(|| LOG_DEFAULT.to_owned()),
            log_format: log_format.unwrap_or_default(),
        })
    }
}

fn guards(vips_percent: Option<u8>, endpoints_percent: Option<u8>) -> Guards {
    Guards {
        vips_percent: vips_percent.unwrap_or(GUARD_VIPS_PERCENT_DEFAULT),
        endpoints_percent: endpoints_percent.unwrap_or(GUARD_ENDPOINTS_PERCENT_DEFAULT),
    }
}

fn listen_default() -> SocketAddr {
    LISTEN_DEFAULT.parse().expect("the default address is an address")
}

fn service_cidr_default() -> IpNet {
    SERVICE_CIDR_DEFAULT.parse().expect("the default range is a range")
}

/// Returns the default path of the bootstrap token file: next to the SQLite database, because only the server
/// writes to that directory; for other stores, in the working directory.
fn beside(store: &str) -> PathBuf {
    let database = store.strip_prefix("sqlite:").map(Path::new);
    database.and_then(Path::parent).unwrap_or_else(|| Path::new("")).join(BOOTSTRAP_TOKEN_FILE_DEFAULT)
}

fn workload_ranges(given: Vec<IpNet>) -> Vec<IpNet> {
    if given.is_empty() { WORKLOAD_RANGES_DEFAULT.to_vec() } else { given }
}

fn service_key(text: &str) -> Result<ServiceKey, String> {
    ServiceKey::try_from(text.to_owned())
}

fn named(name: String) -> Result<String, InvalidConfig> {
    let is_fit = (1..=REPLICA_NAME_LENGTH_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic());
    if is_fit { Ok(name) } else { Err(InvalidConfig::ReplicaName(name)) }
}

/// Returns the host name of the machine, or [`REPLICA_NAME_DEFAULT`] if it has none or one that is not printable.
fn machine_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.and_then(|name| named(name).ok()).unwrap_or_else(|| REPLICA_NAME_DEFAULT.to_owned())
}

/// Settings that the server uses while it runs, after validation.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Service ranges, node port range, allowed external ranges and guard limits of the cluster.
    pub cluster: ClusterConfig,
    /// True if the server listens on an address other than loopback without TLS and authentication.
    pub is_insecure: bool,
    /// `Host` header values that the server accepts.
    pub hosts: Hosts,
    /// Maximum percentage of health-checked endpoints that may leave service within a minute. 100: no limit.
    pub health_guard_percent: u8,
    /// Silence after which a Node counts as lost, so that other nodes check its Workloads.
    pub node_lost_after: NodeLostAfter,
    /// Name of this control server, unique among the servers of its store.
    pub replica_name: String,
    /// TLS options; `None` serves plain HTTP.
    pub tls: Option<TlsOptions>,
    /// True if every request must present a token, session or agent certificate.
    pub is_auth_required: bool,
    /// Settings of the status page.
    pub page: PageSettings,
    /// Receivers of notices about problems.
    pub webhooks: WebhookSettings,
    /// ACME servers from which Certificates may be ordered.
    pub acme: AcmeServers,
    /// Issuer of ID tokens of users; `None` if users have tokens of this cluster only.
    pub oidc: Option<OidcSettings>,
    /// True if the read-only Kubernetes API is served below `/k8s/`.
    pub has_kubernetes_view: bool,
    /// Limits on the responses that clients have not received yet.
    pub responses: ResponseLimits,
    /// Recorder of the spans of requests and commits; by default nothing is recorded.
    pub tracer: Tracer,
}

#[cfg(test)]
mod tests;
