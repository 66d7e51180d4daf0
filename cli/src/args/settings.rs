//! Settings of the command: flags take precedence over environment variables, both over the file
//! `tidegate/config.toml` in the user's configuration directory.

use std::{ffi::OsString, path::PathBuf};

use ::settings::{FileError, Rules, SettingsFile};
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, parser::ValueSource};

use crate::{
    args::{
        Cli, Command,
        drain::{Drain, Maintenance},
        habits::in_usual_order,
        namespace,
    },
    error::Failure,
};

/// Rules for the settings file of the command: the keys that it may contain.
pub const RULES: Rules =
    Rules { positionals: false, keys: Some(&["api", "ca-file", "ca-hash", "token-file"]) };

/// Reason why a command line cannot be used.
#[derive(Debug)]
pub(crate) enum ParseError {
    /// The parser rejects the command line, or the user requested the help or the version.
    CommandLine(clap::Error),
    /// The settings file or a combination of arguments is invalid.
    Failure(Failure),
}

impl From<clap::Error> for ParseError {
    fn from(error: clap::Error) -> Self {
        Self::CommandLine(error)
    }
}

impl From<Failure> for ParseError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<FileError> for ParseError {
    fn from(error: FileError) -> Self {
        Self::Failure(error.into())
    }
}

/// Parses a command line and the settings file of the user, if it exists.
pub(crate) fn parse(words: &[OsString]) -> Result<Cli, ParseError> {
    let words = in_usual_order(words);
    let variable = std::env::var(namespace::VARIABLE).ok();
    let command = namespace::with_default(Cli::command(), variable.as_deref())?;
    let matches = command.clone().try_get_matches_from(&words)?;
    namespace::check(&command, &matches)?;
    let Some(path) = path().filter(|path| path.exists()) else {
        let mut cli = Cli::from_arg_matches(&matches)?;
        apply_timeout(&mut cli, &matches);
        return Ok(cli);
    };
    let command = SettingsFile::read(&path)?.apply(command, None, RULES)?;
    let matches = command.try_get_matches_from(&words)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    let is_from_file = |id: &str| matches.value_source(id) == Some(ValueSource::DefaultValue);
    cli.global.is_token_file_from_settings = is_from_file("token_file");
    // CA file and pin are taken from the same source: a pin given as a flag is not weakened by the CAs of the
    // file.
    match (is_from_file("ca_file"), is_from_file("ca_hash")) {
        (true, false) if cli.global.ca_hash.is_some() => cli.global.ca_file = None,
        (false, true) if cli.global.ca_file.is_some() => cli.global.ca_hash = None,
        (true | false, true | false) => {}
    }
    apply_timeout(&mut cli, &matches);
    Ok(cli)
}

/// Uses a `--timeout` on the command line as the deadline of a command that waits, as in `kubectl wait`. The option of
/// the command itself takes precedence.
fn apply_timeout(cli: &mut Cli, matches: &ArgMatches) {
    if matches.value_source("timeout") != Some(ValueSource::CommandLine) {
        return;
    }
    let is_given = |id: &str| {
        let (_, own) = matches.subcommand()?;
        Some(own.value_source(id) == Some(ValueSource::CommandLine))
    };
    let timeout = cli.global.timeout;
    let is_open = |command: &Command| {
        matches!(command, Command::Wait(_) | Command::Apply(_)) && is_given("at_most") == Some(false)
    };
    if is_open(&cli.command) {
        if let Command::Wait(wait) = &mut cli.command {
            wait.at_most = timeout;
        } else if let Command::Apply(apply) = &mut cli.command {
            apply.at_most = timeout;
        }
    }
    if let Command::Drain(Drain { manner, .. }) | Command::Maintenance(Maintenance { manner, .. }) =
        &mut cli.command
        && manner.wait
    {
        manner.wait_timeout.get_or_insert(timeout);
    }
}

fn path() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(base.join("tidegate/config.toml"))
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Unreadable { path, cause } => Self::File { path, cause: cause.to_string() },
            FileError::Invalid { path, problem } => Self::File { path, cause: problem },
        }
    }
}
