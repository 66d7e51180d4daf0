//! Arguments of `what-if`.

use clap::{Args, ValueEnum, builder::NonEmptyStringValueParser};

/// Arguments of `what-if`.
#[derive(Debug, Args)]
pub struct WhatIf {
    /// Nodes that fail, as node/NAME or NAME
    #[arg(value_name = "NODE", conflicts_with = "fail", value_parser = NonEmptyStringValueParser::new())]
    pub nodes: Vec<String>,
    /// Nodes that fail, as node/NAME or NAME; several separated by commas, or repeat the flag
    #[arg(long, value_name = "NODE", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub fail: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: WhatIfOutput,
}

/// Output formats of `what-if`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum WhatIfOutput {
    /// Human-readable text
    #[default]
    Table,
    /// Server response as JSON
    Json,
    /// Server response as YAML
    Yaml,
}
