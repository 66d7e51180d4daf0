//! Arguments of `doctor`.

use clap::{Args, ValueEnum, builder::NonEmptyStringValueParser};

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Nodes to diagnose, as NAME or node/NAME; all nodes if omitted
    #[arg(value_name = "NODE", value_parser = NonEmptyStringValueParser::new())]
    pub nodes: Vec<String>,
    /// Also show checks that passed
    #[arg(short, long)]
    pub all: bool,
    /// Ask the agents to fix findings that can be fixed without affecting traffic (the findings name them).
    /// Agents do so only if started with --allow-fixes
    #[arg(long)]
    pub fix: bool,
    /// Do not ask for confirmation before changing machines
    #[arg(short, long, requires = "fix")]
    pub yes: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: DoctorOutput,
}

/// Output formats of `doctor`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum DoctorOutput {
    /// One row per finding
    #[default]
    Table,
    /// Server response for each node, as JSON
    Json,
    /// Server response for each node, as YAML
    Yaml,
}
