//! The `tidegate` command line client of the control API.
//!
//! The server makes all decisions: the client sends files unmodified, and the server parses and validates
//! them. Output is produced by the pure functions of [`views`] from a response, the time and a
//! [`terminal::style::Style`]; only `client` and the modules under `commands` do I/O. Responses are decoded
//! leniently (`views::typed`), so that a newer or faulty server causes a gap in a table or an error, never a
//! panic.

pub mod args;
mod client;
mod commands;
mod connection;
mod error;
pub mod jsonpath;
mod manifest;
mod output;
mod resource;
pub mod terminal;
pub mod views;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use model::primitives::age;

/// Import of configurations of other load balancers.
pub use translate as import;

use crate::{args::settings::ParseError, error::Failure, output::Terminal};
pub use crate::{
    error::{CheckState, ExitCode},
    resource::Resource,
};
use translate::parse;

/// Prints the words that complete a command line, and ends the process, if a completion script started the process.
pub fn answer_completion() {
    commands::completion::answer();
}

/// Runs the command with the given arguments, the first of which is the program's name, and returns its exit
/// code.
pub async fn run(arguments: Vec<OsString>) -> ExitCode {
    let mut terminal = Terminal::of_process();
    let is_check = arguments.iter().any(|word| word == "--check");
    let code = run_command(&arguments, &mut terminal).await;
    if !is_check || matches!(code, ExitCode::Check(_) | ExitCode::Success) {
        return code;
    }
    // The reason is on stderr; a monitoring system reads the first line of stdout.
    let line = views::check::unknown("no result, see the error message");
    let _closed = terminal.print(&line).and_then(|()| terminal.flush().map_err(Failure::from));
    ExitCode::Check(CheckState::Unknown)
}

async fn run_command(arguments: &[OsString], terminal: &mut Terminal) -> ExitCode {
    let cli = match args::settings::parse(arguments) {
        Ok(cli) => cli,
        Err(ParseError::Failure(failure)) => {
            terminal.report(&failure);
            return failure.exit_code();
        }
        Err(ParseError::CommandLine(error)) => {
            if let Some(failure) = unknown_subcommand(&error) {
                terminal.report(&failure);
                return failure.exit_code();
            }
            // clap selects the stream: help goes to stdout, errors to stderr. A closed stream is ignored.
            let _closed = error.print();
            return if error.use_stderr() { ExitCode::Usage } else { ExitCode::Success };
        }
    };
    let context = cli.global.context_of_api.clone();
    let result = commands::traced::run(cli, arguments, terminal).await;
    match result.and_then(|code| terminal.flush().map(|()| code).map_err(Failure::from)) {
        Ok(code) => code,
        Err(failure) => {
            terminal.report(&failure);
            if let Some(context) = context.filter(|_| failure.is_of_connection()) {
                terminal.note(&format!(
                    "  hint: the URL is that of context {context}; `tidegate login URL --name {context}` replaces it, \
                     `tidegate context delete {context}` removes it"
                ));
            }
            failure.exit_code()
        }
    }
}

/// Returns the failure for a subcommand that does not exist, if its remedy is known.
fn unknown_subcommand(error: &clap::Error) -> Option<Failure> {
    let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    args::habits::remedy(verb).map(|remedy| Failure::usage(format!("there is no command `{verb}`"), remedy))
}
