//! Settings of the command: flags take precedence over environment variables, both over the file
//! `tidegate/config.toml` in the user's configuration directory.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use ::settings::{FileError, Rules, SettingsFile};
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, parser::ValueSource};

use model::primitives::name::Name;

use crate::{
    args::{
        Cli, Command, context,
        drain::{Drain, Maintenance},
        groups,
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
    let is_help = |word: &OsString| matches!(word.to_str(), Some("-h" | "--help"));
    let bare = if words.iter().any(is_help) { groups::for_help() } else { Cli::command() };
    let bare = without_empty_variables(bare);
    let variable = variable.as_deref().filter(|text| !text.is_empty());
    let command = namespace::with_default(bare.clone(), namespace::VARIABLE, variable)?;
    let matches = command.clone().try_get_matches_from(&words)?;
    namespace::check(&command, &matches)?;
    let is_of_context = matches.value_source("context").is_some();
    let Some(path) = settings_file(&matches)? else {
        let mut cli = Cli::from_arg_matches(&matches)?;
        apply_timeout(&mut cli, &matches);
        return Ok(cli);
    };
    let mut file = SettingsFile::read(&path)?;
    let of_file = file.take_text(namespace::KEY)?;
    let command = match of_file.as_deref() {
        Some(text) if is_of_context || variable.is_none() => {
            namespace::with_default(bare, &format!("`{}` in {}", namespace::KEY, path.display()), Some(text))?
        }
        Some(_) | None => command,
    };
    let command = if is_of_context { without_variables(command) } else { command };
    let command = file.apply(command, None, RULES)?;
    let matches = command.try_get_matches_from(&words)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    let is_from_file = |id: &str| matches.value_source(id) == Some(ValueSource::DefaultValue);
    cli.global.context_of_api = Some(&path)
        .filter(|_| is_from_file("api") && !cli.global.api.is_empty())
        .filter(|path| path.parent().and_then(Path::file_name).is_some_and(|name| name == "contexts"))
        .and_then(|path| Name::parse(&path.file_stem()?.to_string_lossy()).ok());
    cli.global.is_token_file_from_settings = is_from_file("token_file") && !is_of_context;
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

/// Returns the settings file to use: that of the context given by flag or variable, else that of the current context,
/// else `config.toml` if it exists. `login`, `context` and `quickstart` use none.
fn settings_file(matches: &ArgMatches) -> Result<Option<PathBuf>, Failure> {
    if matches!(matches.subcommand_name(), Some("login" | "context" | "quickstart")) {
        return Ok(None);
    }
    let Some(directory) = context::directory() else { return Ok(None) };
    let given = matches.get_one::<Name>("context").cloned();
    let Some(name) = given.or_else(|| context::current(&directory)) else {
        return Ok(Some(directory.join("config.toml")).filter(|path| path.exists()));
    };
    let path = context::settings_of(&directory, &name);
    if path.exists() {
        return Ok(Some(path));
    }
    Err(Failure::usage(
        format!("there is no context {name}"),
        "`tidegate context list` lists the contexts, `tidegate login URL` creates one",
    ))
}

/// Treats empty environment variables as unset, because shells have no other way to unset one for a single command.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| {
        let is_empty = arg.get_env().and_then(std::env::var_os).is_some_and(|text| text.is_empty());
        if is_empty { arg.env("TIDEGATE_VARIABLE_THAT_IS_NEVER_SET") } else { arg }
    })
}

/// Makes the connection independent of environment variables, for a context that is given explicitly.
fn without_variables(command: clap::Command) -> clap::Command {
    let keys = RULES.keys.unwrap_or_default();
    // clap has no way to remove the variable of an argument, so it gets one that does not exist.
    command.mut_args(|arg| {
        let is_key = arg.get_long().is_some_and(|long| keys.contains(&long));
        if is_key { arg.env("TIDEGATE_VARIABLE_THAT_IS_NEVER_SET") } else { arg }
    })
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Unreadable { path, cause } => Self::File { path, cause: cause.to_string() },
            FileError::Invalid { path, problem } => Self::File { path, cause: problem },
        }
    }
}
