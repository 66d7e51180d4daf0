//! Flags for the connection to the control servers, and the client that they describe.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use client::{Client, Connection, Failover, Limits, Options, Pin, Token, TokenSource, Url};

/// Environment variable with a token. There is no flag for the token itself, because process arguments are visible to
/// all users of a machine.
const TOKEN_VARIABLE: &str = "TIDEGATE_TOKEN";
/// Connect timeout; another control server may be available.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of requests other than streams.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time without any data on the watch; control servers send a heartbeat at least every 10 s.
const SILENCE_MAX: Duration = Duration::from_secs(35);

/// Flags for the connection to the control servers.
#[derive(Debug, Clone, Args)]
pub struct ControlArgs {
    /// Control servers, separated by commas; they are tried in turn until one answers
    #[arg(
        long,
        env = "TIDEGATE_API",
        hide_env_values = true,
        value_name = "URL,…",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:7440",
        help_heading = "Connection"
    )]
    pub api: Vec<Url>,
    /// File with the bearer token to authenticate with, read for every request; TIDEGATE_TOKEN can hold the token
    /// itself
    #[arg(
        long,
        env = "TIDEGATE_TOKEN_FILE",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Connection"
    )]
    pub token_file: Option<PathBuf>,
    /// PEM file with the CA certificates to verify the servers with [default: the system's CA certificates]
    #[arg(
        long,
        env = "TIDEGATE_CA_FILE",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Connection"
    )]
    pub ca_file: Option<PathBuf>,
    /// Pin the server or CA certificate by hash instead of using --ca-file, as sha256:HEX
    #[arg(
        long,
        env = "TIDEGATE_CA_HASH",
        hide_env_values = true,
        value_name = "HASH",
        help_heading = "Connection"
    )]
    pub ca_hash: Option<Pin>,
}

impl ControlArgs {
    /// Creates a client that names itself `user_agent`, which consists of a program and its version. Sends no request.
    ///
    /// # Errors
    /// Returns an error if the token or a file of the flags is unusable.
    pub fn client(&self, user_agent: &'static str) -> anyhow::Result<Client> {
        let variable = std::env::var(TOKEN_VARIABLE).ok().filter(|text| !text.trim().is_empty());
        let token = match (self.token_file.clone(), variable) {
            (Some(path), _) => TokenSource::File(path),
            (None, Some(text)) => TokenSource::Fixed(Token::parse(&text, TOKEN_VARIABLE)?),
            (None, None) => TokenSource::None,
        };
        let connection = Connection {
            urls: self.api.clone(),
            ca_file: self.ca_file.clone(),
            pin: self.ca_hash,
            identity: None,
            token,
        };
        let options = Options {
            user_agent,
            author: None,
            connect_timeout: CONNECT_TIMEOUT,
            timeout: REQUEST_TIMEOUT,
            idle_timeout: SILENCE_MAX,
            failover: Failover::Safe,
            min_position: None,
            reads_own_writes: false,
            limits: Limits::default(),
            trace_parent: None,
            on_send: None,
        };
        Ok(Client::new(connection, options)?)
    }
}
