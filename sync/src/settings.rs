//! How `tidegate-sync` is told what to do: flags, then `TIDEGATE_…` variables, then a TOML file, then defaults.
//!
//! What the file says and neither the command line nor the environment does is added to the command line, which is then read
//! once more: there is one place that knows what a setting may be, and one form in which mistakes are said.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory as _, Error, FromArgMatches as _, error::ErrorKind,
    parser::ValueSource,
};
use toml::{Table, Value};

use crate::args::Cli;

/// Bytes of a file of settings; those that people write have some hundred.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// The variable that names the file.
const VARIABLE: &str = "TIDEGATE_CONFIG";
/// The hidden subcommand that packages are made with.
const MANUAL: &str = "manual";
/// Flags that ask for something at once, or name the file itself: no settings.
const NO_SETTINGS: [&str; 5] = ["config", "once", "dry_run", "help", "version"];

/// What a file adds to the command line.
#[derive(Debug, Default)]
struct Added {
    /// Settings with a flag, as `--flag` or `--flag=VALUE`.
    flags: Vec<OsString>,
    /// Those without.
    others: Vec<OsString>,
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Call {
    /// To follow a source.
    Follow(Box<Cli>),
    /// To write man pages and completions below a directory.
    Manual(PathBuf),
}

/// Reads the command line, and the file that it or the environment names.
///
/// # Errors
/// Whatever is wrong with one of them, as it is to be told to whoever called; or a question for help.
pub fn read(arguments: Vec<OsString>) -> Result<Call, Error> {
    let file = config_of(&arguments).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
    let Some(file) = file else { return parse(arguments) };
    let table = load(&file).map_err(|message| problem(&file, &message))?;
    let mut first = lenient().try_get_matches_from(&arguments)?;
    if first.subcommand_name() == Some(MANUAL) {
        return parse(arguments);
    }
    let mut arguments = arguments;
    if first.subcommand_name().is_none() {
        let source = source_of(&table).map_err(|message| problem(&file, &message))?;
        arguments.push(source.into());
        first = lenient().try_get_matches_from(&arguments)?;
    }
    let added = missing(&table, &first).map_err(|message| problem(&file, &message))?;
    insert(&mut arguments, added);
    // Without the file all was well, but for what is required; only questions are no mistakes of it.
    parse(arguments).map_err(
        |error| {
            if error.use_stderr() { problem(&file, &error.to_string()) } else { error }
        },
    )
}

/// The whole command, with what packages are made with.
fn command() -> Command {
    let share = Arg::new("share").value_name("DIR").required(true).value_parser(clap::value_parser!(PathBuf));
    let about = "Write man pages and completions below a directory that is laid out as /usr/share; packages are made with it";
    Cli::command().subcommand(Command::new(MANUAL).about(about).hide(true).arg(share))
}

/// The command as it is read before the file is looked at: nothing is missing yet.
fn lenient() -> Command {
    command().subcommand_required(false).arg_required_else_help(false).mut_subcommands(|source| {
        source.mut_args(|argument| argument.required(false)).arg_required_else_help(false)
    })
}

fn parse(arguments: Vec<OsString>) -> Result<Call, Error> {
    let matches = command().try_get_matches_from(arguments)?;
    if let Some((MANUAL, manual)) = matches.subcommand() {
        let share = manual.get_one::<PathBuf>("share").expect("it is required");
        return Ok(Call::Manual(share.clone()));
    }
    Cli::from_arg_matches(&matches).map(|cli| Call::Follow(Box::new(cli)))
}

/// Writes man pages and completions.
///
/// # Errors
/// A file cannot be written.
pub fn write_manual(share: &Path) -> std::io::Result<()> {
    manual::write(Cli::command(), manual::Section::Administration, share)
}

fn problem(file: &Path, message: &str) -> Error {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    Error::raw(ErrorKind::Io, format!("{}: {}\n", file.display(), message.trim_end()))
}

/// The value of `--config`, wherever it stands; nothing else may follow an option that begins with a hyphen.
fn config_of(arguments: &[OsString]) -> Option<PathBuf> {
    let mut arguments = arguments.iter().take_while(|argument| *argument != OsStr::new("--"));
    while let Some(argument) = arguments.next() {
        if argument == OsStr::new("--config") {
            return arguments.next().map(PathBuf::from);
        }
        if let Some(file) = argument.to_str().and_then(|text| text.strip_prefix("--config=")) {
            return Some(PathBuf::from(file));
        }
    }
    None
}

fn load(path: &Path) -> Result<Table, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is longer than {FILE_BYTES_MAX} bytes"));
    }
    text.parse::<Table>().map_err(|error| format!("is no TOML: {error}"))
}

/// The source that a file has a table for, when the command line names none.
fn source_of(table: &Table) -> Result<String, String> {
    let sources: Vec<_> = table.iter().filter(|(_, value)| value.is_table()).map(|(name, _)| name).collect();
    match sources[..] {
        [source] if !is_source(source) => Err(no_source(source)),
        [source] => Ok(source.clone()),
        [] => Err("names no source: write a table [files], [docker], [dns] or [kubernetes]".to_owned()),
        _ => Err(format!("has tables for several sources ({sources:?}): say on the command line which")),
    }
}

fn is_source(name: &str) -> bool {
    Cli::command().get_subcommands().any(|source| source.get_name() == name)
}

fn no_source(name: &str) -> String {
    format!("[{name}] is no source: files, docker, dns and kubernetes are")
}

/// What the file says and the command line and the environment do not, as arguments. Tables of other sources may stand in a file
/// that several processes share, but what they say has to be right.
fn missing(table: &Table, matches: &ArgMatches) -> Result<Added, String> {
    let command = command();
    let (source, chosen) = matches.subcommand().ok_or("names no source")?;
    let mut added = Added::default();
    for (key, value) in table {
        let Value::Table(inner) = value else {
            let argument = find(&command, key).ok_or_else(|| unknown(key, "every source", &command))?;
            // Values of flags that all sources take are known in the source's own part.
            if !is_said(chosen, argument) {
                append(&mut added, argument, key, value)?;
            }
            continue;
        };
        let mut sources = command.get_subcommands().filter(|source| source.get_name() != MANUAL);
        let of = sources.find(|source| source.get_name() == key);
        let of = of.ok_or_else(|| no_source(key))?;
        // What another source is told is looked at and left.
        let mut elsewhere = Added::default();
        let to = if of.get_name() == source { &mut added } else { &mut elsewhere };
        for (key, value) in inner {
            let argument = find(of, key).ok_or_else(|| unknown(key, of.get_name(), of))?;
            if of.get_name() != source || !is_said(chosen, argument) {
                append(to, argument, key, value)?;
            }
        }
    }
    Ok(added)
}

fn is_said(matches: &ArgMatches, argument: &Arg) -> bool {
    matches!(
        matches.value_source(argument.get_id().as_str()),
        Some(ValueSource::CommandLine | ValueSource::EnvVariable)
    )
}

/// The argument that a key of the file means: by the name of its flag, or by its own where it has none.
fn find<'command>(command: &'command Command, key: &str) -> Option<&'command Arg> {
    let mut arguments = command.get_arguments().filter(|argument| is_setting(argument));
    arguments.find(|argument| name(argument) == key)
}

fn is_setting(argument: &Arg) -> bool {
    !NO_SETTINGS.contains(&argument.get_id().as_str())
}

fn name(argument: &Arg) -> &str {
    argument.get_long().unwrap_or_else(|| argument.get_id().as_str())
}

fn unknown(key: &str, of: &str, command: &Command) -> String {
    let known: Vec<_> = command.get_arguments().filter(|argument| is_setting(argument)).map(name).collect();
    format!("`{key}` is no setting of {of}; there are {}", known.join(", "))
}

fn append(to: &mut Added, argument: &Arg, key: &str, value: &Value) -> Result<(), String> {
    if matches!(argument.get_action(), ArgAction::SetTrue) {
        return match value {
            Value::Boolean(true) => {
                to.flags.push(format!("--{key}").into());
                Ok(())
            }
            Value::Boolean(false) => Ok(()),
            Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Datetime(_)
            | Value::Array(_)
            | Value::Table(_) => Err(format!("`{key}` must be true or false")),
        };
    }
    let values = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
    for value in values {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Boolean(_) | Value::Float(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => {
                return Err(format!("`{key}` must be a text, a whole number, or a list of them"));
            }
        };
        if argument.is_positional() {
            to.others.push(text.into());
        } else {
            to.flags.push(format!("--{key}={text}").into());
        }
    }
    Ok(())
}

/// Puts flags where they still count as flags, and what has no flag behind the mark that ends them.
fn insert(arguments: &mut Vec<OsString>, added: Added) {
    let Added { flags, others } = added;
    let mark = arguments.iter().position(|argument| *argument == OsStr::new("--"));
    let at = mark.unwrap_or(arguments.len());
    arguments.splice(at..at, flags);
    if !others.is_empty() {
        if mark.is_none() {
            arguments.push("--".into());
        }
        arguments.extend(others);
    }
}
