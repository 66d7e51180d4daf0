//! Arguments of `confirm`.

use clap::Args;
use model::primitives::name::Name;

/// Arguments of `confirm`.
#[derive(Debug, Args)]
pub struct Confirm {
    /// The Node, as NAME or node/NAME
    #[arg(value_name = "NODE", value_parser = parse_node)]
    pub node: Name,
    /// Take what the node holds back, of this epoch; without it, say what it holds back
    #[arg(long, value_name = "EPOCH")]
    pub epoch: Option<u64>,
}

fn parse_node(text: &str) -> Result<Name, String> {
    let name = text.strip_prefix("node/").unwrap_or(text);
    Name::parse(name).map_err(|error| error.to_string())
}
