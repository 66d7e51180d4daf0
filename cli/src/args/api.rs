//! Arguments of `api` and `namespaces`.

use clap::Subcommand;

use super::help;

/// Subcommands of `api`.
#[derive(Debug, Subcommand)]
pub enum Api {
    /// List the kinds with their short names
    Resources,
    /// Describe a field of a kind, without a server
    #[command(after_help = help::API_EXPLAIN_HELP)]
    Explain {
        /// Kind as accepted by `get`, with a path of fields separated by dots
        #[arg(value_name = "KIND[.FIELD…]")]
        field: String,
    },
}
