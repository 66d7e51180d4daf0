//! Arguments of `env`.

use clap::{Args, ValueEnum};
use model::primitives::name::{Name, Namespace};

/// Arguments of `env`.
#[derive(Debug, Clone, Args)]
pub struct Env {
    /// Services whose variables are printed; all of the namespace if omitted
    #[arg(value_name = "SERVICE", value_parser = Name::parse)]
    pub services: Vec<Name>,
    /// Namespace of the Services
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// Leave out the variables of Docker container links, such as WEB_PORT_80_TCP_ADDR
    #[arg(long)]
    pub no_links: bool,
    /// Print the variables even if they have more than 1 MiB in all
    #[arg(long)]
    pub force: bool,
    /// Print again on each change, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: EnvOutput,
}

/// Output formats of `env`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum EnvOutput {
    /// Lines NAME=VALUE, for `docker run --env-file`, compose and shells
    #[default]
    Dotenv,
    /// Variables with their Services, as JSON
    Json,
    /// List of NAME=VALUE as JSON, for `Env` of the Docker Engine API
    Docker,
}
