//! Arguments of `doctor`.

use clap::{Args, ValueEnum, builder::NonEmptyStringValueParser};

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Which nodes, as NAME or node/NAME; all when left out
    #[arg(value_name = "NODE", value_parser = NonEmptyStringValueParser::new())]
    pub nodes: Vec<String>,
    /// Show what is well, too
    #[arg(short, long)]
    pub all: bool,
    /// Ask the agents to put right what takes nothing from anybody; findings say which that is. Agents do so only when they
    /// were started with --allow-fixes
    #[arg(long)]
    pub fix: bool,
    /// Do not ask before machines are changed
    #[arg(short, long, requires = "fix")]
    pub yes: bool,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: DoctorOutput,
}

/// Forms of the output of `doctor`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum DoctorOutput {
    /// A row for each finding
    #[default]
    Table,
    /// What the server answered for each node, as JSON
    Json,
    /// What the server answered for each node, as YAML
    Yaml,
}
