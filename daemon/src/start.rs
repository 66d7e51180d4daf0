//! Entry point of a program that has settings and no subcommands.

use std::{ffi::OsString, io::Write as _, path::Path, process::ExitCode};

use clap::{CommandFactory, FromArgMatches};
use man_pages::Section;
use settings::Rules;

use crate::log::LogArgs;

/// Settings of a program with a log.
pub trait WithLog {
    /// Returns the flags of the log.
    fn log(&self) -> &LogArgs;
}

/// Parses the settings of the process, starts the log, and executes `run` on a runtime with a thread for each core. An
/// error is printed to standard error and is exit code 1. Tasks that are left at the end are not awaited.
pub fn main<S, F>(rules: Rules, run: impl FnOnce(S) -> F) -> ExitCode
where
    S: CommandFactory + FromArgMatches + WithLog,
    F: Future<Output = anyhow::Result<()>>,
{
    let words: Vec<_> = std::env::args_os().collect();
    outcome(match share(&words) {
        Some(share) => man_pages::write(S::command(), Section::Administration, share).map_err(Into::into),
        None => settings::parse_or_exit(rules).map_err(Into::into).and_then(|settings| work(settings, run)),
    })
}

/// Returns the directory of the hidden subcommand `manual DIRECTORY`, which builds of packages use, if it is given.
#[must_use]
pub fn share(words: &[OsString]) -> Option<&Path> {
    match words {
        [_, command, share] if command == "manual" => Some(Path::new(share)),
        _ => None,
    }
}

fn work<S: WithLog, F>(settings: S, run: impl FnOnce(S) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    settings.log().start("")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(run(settings));
    runtime.shutdown_background();
    outcome
}

/// Prints an error and returns the exit code of the process.
#[must_use]
pub fn outcome(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    // Ignored if stderr is closed.
    let _gone = writeln!(std::io::stderr(), "error: {error:#}");
    ExitCode::FAILURE
}
