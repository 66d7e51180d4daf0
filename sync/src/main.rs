//! The `tidegate-sync` command.

use std::{io::IsTerminal as _, process::ExitCode};

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = sync::args::Cli::parse();
    let filter = EnvFilter::try_from_env("TIDEGATE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let outcome = runtime.block_on(sync::run::run(cli));
        // A read of a source that hangs must not hold up the end.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
