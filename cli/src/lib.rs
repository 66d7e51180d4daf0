//! The `tidegate` command: a person's and a script's way to the control API.
//!
//! It decides nothing that the server decides: files travel as they are and the server parses, checks and answers. What
//! is printed is made by pure functions ([`columns`], [`describe`], [`render`], [`table`]) of an answer, the time and a
//! [`style::Style`]; only [`client`] and the modules under `commands` do I/O. Answers are read leniently ([`view`]), so
//! that a newer or broken server leads to a gap in a table or an error, never to a panic.

pub mod args;
mod client;
mod commands;
mod connection;
mod error;
pub mod lenient_json;
mod manifest;
mod output;
mod resource;
pub mod terminal;
pub mod views;

use std::ffi::OsString;

use clap::Parser;
use model::primitives::age;

/// How configurations of other load balancers become objects.
pub use translate as import;

pub use crate::{error::ExitCode, resource::Resource};
use crate::{error::Failure, output::Terminal};
use translate::parse;

/// Runs the command with the given arguments, the first of which is the program's name, and says how it ended.
pub async fn run(arguments: Vec<OsString>) -> ExitCode {
    let mut terminal = Terminal::of_process();
    let arguments = match args::Cli::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // clap chooses the stream: help goes to stdout, mistakes to stderr. A closed stream is nobody's mistake.
            let _closed = error.print();
            return if error.use_stderr() { ExitCode::Usage } else { ExitCode::Success };
        }
    };
    let result = commands::run(arguments, &mut terminal).await;
    match result.and_then(|code| terminal.flush().map(|()| code).map_err(Failure::from)) {
        Ok(code) => code,
        Err(failure) => {
            terminal.report(&failure);
            failure.exit_code()
        }
    }
}
