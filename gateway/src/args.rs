//! Command-line arguments of `tidegate-gateway`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Parser;
use daemon::{log::LogArgs, start::WithLog, status::parse_listen};
use ipnet::IpNet;
use model::{http::HttpObjectKey, primitives::name::Name};
use replica::ControlArgs;
use settings::Rules;

/// Maximum of the times that are given in seconds.
const TIME_SECS_MAX: i64 = 3600;

/// Rules for the settings file of `tidegate-gateway`: each flag that has an environment variable.
pub const RULES: Rules = Rules { positionals: false, keys: None };

/// Accepts HTTP requests at the listeners of Gateways, and forwards them to the Services of HttpRoutes
#[derive(Debug, Clone, Parser)]
#[command(name = "tidegate-gateway", version = base::build::text(), max_term_width = 110)]
pub struct Args {
    /// Connection to the control servers.
    #[command(flatten)]
    pub control: ControlArgs,
    /// Addresses at which to listen, separated by commas; the ports are those of the listeners
    #[arg(
        long,
        env = "TIDEGATE_GATEWAY_ADDRESS",
        hide_env_values = true,
        value_name = "ADDRESS,…",
        value_delimiter = ',',
        default_value = "0.0.0.0,::"
    )]
    pub address: Vec<IpAddr>,
    /// Gateways to serve, separated by commas [default: all]
    #[arg(
        long,
        env = "TIDEGATE_GATEWAY_SERVE",
        hide_env_values = true,
        value_name = "NAMESPACE/NAME,…",
        value_delimiter = ','
    )]
    pub serve: Vec<HttpObjectKey>,
    /// Networks of proxies in front of this one, separated by commas, whose X-Forwarded headers are kept and extended;
    /// those of other clients are replaced [default: none]
    #[arg(
        long,
        env = "TIDEGATE_GATEWAY_TRUSTED_PROXY",
        hide_env_values = true,
        value_name = "NETWORK,…",
        value_delimiter = ','
    )]
    pub trusted_proxy: Vec<IpNet>,
    /// Maximum number of open connections of clients
    #[arg(
        long, env = "TIDEGATE_GATEWAY_CONNECTIONS", hide_env_values = true, value_name = "NUMBER", default_value = "20000",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    pub connections: u32,
    /// Time in seconds within which an endpoint must accept a connection
    #[arg(
        long, env = "TIDEGATE_GATEWAY_CONNECT_TIMEOUT", hide_env_values = true, value_name = "SECONDS",
        default_value = "2", value_parser = clap::value_parser!(u32).range(1..=TIME_SECS_MAX)
    )]
    pub connect_timeout: u32,
    /// Time in seconds within which an endpoint must begin its response
    #[arg(
        long, env = "TIDEGATE_GATEWAY_RESPONSE_TIMEOUT", hide_env_values = true, value_name = "SECONDS",
        default_value = "60", value_parser = clap::value_parser!(u32).range(1..=TIME_SECS_MAX)
    )]
    pub response_timeout: u32,
    /// Time in seconds after which a body without any progress, or a connection without a request, is ended
    #[arg(
        long, env = "TIDEGATE_GATEWAY_IDLE_TIMEOUT", hide_env_values = true, value_name = "SECONDS",
        default_value = "60", value_parser = clap::value_parser!(u32).range(1..=TIME_SECS_MAX)
    )]
    pub idle_timeout: u32,
    /// Time in seconds for which requests may go on after SIGTERM or SIGINT
    #[arg(
        long, env = "TIDEGATE_GATEWAY_DRAIN_TIMEOUT", hide_env_values = true, value_name = "SECONDS",
        default_value = "20", value_parser = clap::value_parser!(u32).range(0..=TIME_SECS_MAX)
    )]
    pub drain_timeout: u32,
    /// Log every request, with its client, route, endpoint, status code and duration
    #[arg(long, env = "TIDEGATE_GATEWAY_ACCESS_LOG", hide_env_values = true)]
    pub access_log: bool,
    /// Directory for the last received state, from which requests are decided after a restart until a control server
    /// is reached [default: none]
    #[arg(long, env = "TIDEGATE_STATE_DIR", hide_env_values = true, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Address for /healthz, /readyz and /metrics; requests are not authenticated
    #[arg(
        long, env = "TIDEGATE_LISTEN", hide_env_values = true, value_name = "ADDRESS:PORT",
        value_parser = parse_listen, default_value = "127.0.0.1:7444"
    )]
    pub status_listen: SocketAddr,
    /// Name of this gateway in its reports to the control servers, unique among the gateways, such as that of the node
    /// [default: the host name]
    #[arg(
        long, env = "TIDEGATE_GATEWAY_NAME", hide_env_values = true, value_name = "NAME", value_parser = Name::parse
    )]
    pub name: Option<Name>,
    /// Flags of the log.
    #[command(flatten)]
    pub log: LogArgs,
    /// TOML file with settings named like the flags
    #[arg(long, env = "TIDEGATE_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl WithLog for Args {
    fn log(&self) -> &LogArgs {
        &self.log
    }
}
