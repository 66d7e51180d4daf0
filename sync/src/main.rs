//! The `tidegate-sync` command.

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
    // Packages are made with it; it is no source, and nobody else needs to know.
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
    // What the library says there, the adapter says with what it means.
    let filter = EnvFilter::try_new(format!("kube_client::client::builder=off,{}", global.log));
    // Whoever gave no filter that can be read is told so in the log all the same.
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
    // A read of a source that hangs must not hold up the end.
    runtime.shutdown_background();
    outcome
}

/// Writes man pages and completions below a directory that is laid out as `/usr/share`.
fn write_manual(share: &Path) -> ExitCode {
    match man_pages::write(Cli::command(), Section::Administration, share) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // When stderr is gone there is nobody to tell.
            let _gone = writeln!(std::io::stderr(), "error: the manual was not written: {error}");
            ExitCode::FAILURE
        }
    }
}
