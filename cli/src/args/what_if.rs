//! Arguments of `what-if`.

use clap::{Args, ValueEnum, builder::NonEmptyStringValueParser};

/// Arguments of `what-if`.
#[derive(Debug, Args)]
pub struct WhatIf {
    /// The nodes that fail, as node/NAME or NAME; several with commas, or given again
    #[arg(long, value_name = "NODE", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub fail: Vec<String>,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: WhatIfOutput,
}

/// Forms of the output of `what-if`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum WhatIfOutput {
    /// For people
    #[default]
    Table,
    /// What the server answered, as JSON
    Json,
    /// What the server answered, as YAML
    Yaml,
}
