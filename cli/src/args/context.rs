//! Arguments of `context` and `login`, and the files of contexts.
//!
//! A context is a settings file `contexts/NAME.toml` in the configuration directory, with the keys of `config.toml`. The
//! file `context` has the name of the current one.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use client::Url;
use model::primitives::name::{Name, Namespace};

use super::parse_api;

const LOGIN_HELP: &str = "\
Sends a request with the connection options of the command line and of the environment, and stores them if the server
accepts it: ~/.config/tidegate/contexts/NAME.toml and, with a token, NAME.token, both readable by you only. The new
context is current.

With --oidc, the command prints an address to open in a browser, waits until you have confirmed a code there, and stores
the ID token and, in NAME.oidc, the refresh token, by which later commands replace an ID token that ends.

Examples:
  tidegate login https://lb.example.org:7440 --oidc
  tidegate login https://10.0.0.1:7440 --ca-file ca.pem --token-file token --name prod
  pass show tidegate | tidegate login https://lb.example.org:7440 --token-stdin";

/// Subcommands of `context`.
#[derive(Debug, Subcommand)]
pub enum Context {
    /// List the contexts; an asterisk marks the current one
    List,
    /// Make a context the current one
    Use {
        /// Name of the context
        #[arg(value_name = "NAME", value_parser = Name::parse)]
        name: Name,
        /// Namespace of later commands without -n; the context keeps it
        #[arg(short, long, value_name = "NAMESPACE", value_parser = Namespace::parse)]
        namespace: Option<Namespace>,
    },
    /// Delete a context with its token
    Delete {
        /// Name of the context
        #[arg(value_name = "NAME", value_parser = Name::parse)]
        name: Name,
    },
}

/// Arguments of `login`.
#[derive(Debug, Args)]
#[command(after_help = LOGIN_HELP)]
pub struct Login {
    /// Control server, as http:// or https:// URL
    #[arg(value_name = "URL", value_parser = parse_api)]
    pub url: Url,
    /// Name of the context; the host of the URL if omitted
    #[arg(long, value_name = "NAME", value_parser = Name::parse)]
    pub name: Option<Name>,
    /// Namespace of later commands without -n; that which the context had if omitted
    #[arg(short, long, value_name = "NAMESPACE", value_parser = Namespace::parse)]
    pub namespace: Option<Namespace>,
    /// Read the token from stdin, instead of the file or variable
    #[arg(long)]
    pub token_stdin: bool,
    /// Log in at the OpenID Connect issuer of the server with a browser, on this or on another machine
    #[arg(long, conflicts_with = "token_stdin")]
    pub oidc: bool,
    /// PEM file with the CA certificates to verify the issuer with [default: the system's CA certificates]
    #[arg(long, value_name = "FILE", requires = "oidc")]
    pub oidc_ca_file: Option<PathBuf>,
}

/// Environment variable with the directory of the user's configuration (XDG Base Directory Specification).
const CONFIG_HOME: &str = "XDG_CONFIG_HOME";

/// Returns the configuration directory of the command; `None` if the user has no home directory.
pub(crate) fn directory() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(CONFIG_HOME).or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(base.join("tidegate"))
}

/// Returns the file of a context.
pub(crate) fn settings_of(directory: &Path, name: &Name) -> PathBuf {
    directory.join("contexts").join(format!("{name}.toml"))
}

/// Returns the file with the token of a context.
pub(crate) fn token_of(directory: &Path, name: &Name) -> PathBuf {
    directory.join("contexts").join(format!("{name}.token"))
}

/// Returns the name of the current context; `None` if there is none.
pub(crate) fn current(directory: &Path) -> Option<Name> {
    let text = std::fs::read_to_string(directory.join("context")).ok()?;
    Name::parse(text.trim()).ok()
}
