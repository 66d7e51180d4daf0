//! Entry point of `tidegate-sync`: parses the settings and runs the source.

use std::process::ExitCode;

use clap::CommandFactory as _;
use daemon::start;
use man_pages::Section;
use sync::args::Cli;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(share) = start::share(&words) {
        return start::outcome(
            man_pages::write(Cli::command(), Section::Administration, share).map_err(Into::into),
        );
    }
    let cli = sync::settings::parse(words).unwrap_or_else(|error| error.exit());
    // The adapter logs the errors of this library itself, with their meaning.
    match cli.global.log.start("kube_client::client::builder=off,").and_then(|()| work(cli)) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(cli: Cli) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(sync::run::run(cli));
    // A blocked read of a source must not delay the shutdown.
    runtime.shutdown_background();
    outcome
}
