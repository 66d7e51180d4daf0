//! Arguments of `export`.

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
use model::primitives::name::Namespace;

use crate::import::export::Target;

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct Export {
    /// Output format
    #[arg(long, value_name = "FORMAT",
        value_parser = PossibleValuesParser::new(Target::ALL.map(Target::as_str)).try_map(|word| word.parse::<Target>()))]
    pub format: Target,
    /// Namespace of the Services and EndpointSets to export
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// Export all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Export these manifests (files or directories, or - for stdin) instead of the objects on the server
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["namespace", "all_namespaces"])]
    pub filename: Vec<PathBuf>,
    /// File for the report on how each setting was converted [default: stderr]
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}
