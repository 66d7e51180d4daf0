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
    /// In whose words
    #[arg(long, value_name = "FORMAT",
        value_parser = PossibleValuesParser::new(Target::ALL.map(Target::as_str)).try_map(|word| word.parse::<Target>()))]
    pub format: Target,
    /// The namespace of Services and EndpointSets
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// Of every namespace
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Manifests instead of what the server has: files, directories, or - for stdin
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["namespace", "all_namespaces"])]
    pub filename: Vec<PathBuf>,
    /// Where to write what became of every setting [default: stderr]
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}
