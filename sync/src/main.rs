//! Entry point of `tidegate-sync`: parses the settings and runs the source.

use std::{
    io::{IsTerminal as _, Write as _},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use clap::CommandFactory as _;
use man_pages::Section;
use sync::args::{Cli, Global, LogFormat};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    // Hidden subcommand for building packages; not a source.
    if let [_, command, share] = &words[..]
        && command == "manual"
    {
        return write_manual(Path::new(share));
    }
    let cli = sync::settings::parse(words).unwrap_or_else(|error| error.exit());
    match start_log(&cli.global).and_then(|()| work(cli)) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start_log(global: &Global) -> anyhow::Result<()> {
    // The adapter logs these library errors itself, with their meaning.
    let filter = EnvFilter::try_new(format!("kube_client::client::builder=off,{}", global.log));
    // An invalid filter must be reported in the log, so logging starts with the default.
    let (filter, outcome) = match filter {
        Ok(filter) => (filter, Ok(())),
        Err(error) => (EnvFilter::new("info"), Err(error)),
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match global.log_format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
    outcome.with_context(|| format!("--log {}", global.log))
}

fn work(cli: Cli) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(sync::run::run(cli));
    // A blocked read of a source must not delay the shutdown.
    runtime.shutdown_background();
    outcome
}

/// Writes man pages and completions below a directory laid out as `/usr/share`.
fn write_manual(share: &Path) -> ExitCode {
    match man_pages::write(Cli::command(), Section::Administration, share) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Ignored if stderr is closed.
            let _gone = writeln!(std::io::stderr(), "error: cannot write the manual: {error}");
            ExitCode::FAILURE
        }
    }
}
