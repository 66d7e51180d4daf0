//! Entry point of `tidegate-dns`: parses the settings and runs the server.

use std::{
    io::{IsTerminal as _, Write as _},
    path::Path,
    process::ExitCode,
};

use clap::CommandFactory as _;
use dns::args::{Args, LogFormat, RULES};
use man_pages::Section;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::ALLOCATOR;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    // Hidden subcommand for building packages.
    if let [_, command, share] = &words[..]
        && command == "manual"
    {
        return outcome(man_pages::write(Args::command(), Section::Administration, Path::new(share)));
    }
    let args: Args = match settings::parse_or_exit(RULES) {
        Ok(args) => args,
        Err(error) => return outcome(Err(error)),
    };
    outcome(work(args))
}

fn work(args: Args) -> anyhow::Result<()> {
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(&args.log)?)
        .with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(dns::run::run(args));
    runtime.shutdown_background();
    outcome
}

/// Prints an error and returns the exit code of the process.
fn outcome<E: Into<anyhow::Error>>(result: Result<(), E>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let error: anyhow::Error = error.into();
    // Ignored if stderr is closed.
    let _gone = writeln!(std::io::stderr(), "error: {error:#}");
    ExitCode::FAILURE
}
