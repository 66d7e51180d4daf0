//! The `tidegate-sync` command.

use std::{
    io::{IsTerminal as _, Write as _},
    path::Path,
    process::ExitCode,
};

use sync::settings::{self, Call};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = match settings::read(std::env::args_os().collect()) {
        Ok(Call::Follow(cli)) => *cli,
        Ok(Call::Manual(share)) => return write_manual(&share),
        Err(error) => error.exit(),
    };
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

fn write_manual(share: &Path) -> ExitCode {
    match settings::write_manual(share) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _gone = writeln!(std::io::stderr(), "error: the manual was not written: {error}");
            ExitCode::FAILURE
        }
    }
}
