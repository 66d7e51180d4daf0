//! Flags of the log, and its start.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Flags of the log.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// Log filter, such as `info`, `debug` or `info,client=debug`
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_LOG",
        hide_env_values = true,
        value_name = "FILTER",
        default_value = "info"
    )]
    pub log: String,
    /// Log format
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_LOG_FORMAT",
        hide_env_values = true,
        value_name = "FORMAT",
        value_enum,
        default_value = "text"
    )]
    pub log_format: LogFormat,
}

/// Log format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable lines.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogArgs {
    /// Starts the log on standard error, with the directives `fixed` before those of the flag. Call it once in a
    /// process.
    ///
    /// # Errors
    /// Returns an error if the filter is invalid. The log has been started then, with the filter `info`.
    pub fn start(&self, fixed: &str) -> anyhow::Result<()> {
        let (filter, outcome) = match EnvFilter::try_new(format!("{fixed}{}", self.log)) {
            Ok(filter) => (filter, Ok(())),
            Err(error) => (EnvFilter::new("info"), Err(error)),
        };
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
            LogFormat::Json => log.json().init(),
        }
        outcome.with_context(|| format!("--log {}", self.log))
    }
}
