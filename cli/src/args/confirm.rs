//! Arguments of `confirm`.

use clap::Args;
use model::primitives::name::Name;

/// Arguments of `confirm`.
#[derive(Debug, Args)]
pub struct Confirm {
    /// Node, as NAME or node/NAME
    #[arg(value_name = "NODE", value_parser = parse_node)]
    pub node: Name,
    /// Accept the rejected state of this epoch; without this flag the rejected state is only shown
    #[arg(long, value_name = "EPOCH")]
    pub epoch: Option<u64>,
}

fn parse_node(text: &str) -> Result<Name, String> {
    let name = text.strip_prefix("node/").unwrap_or(text);
    Name::parse(name).map_err(|error| error.to_string())
}
