//! Completion of words in a shell: subcommands and options from the definition of the command line, and kinds, names,
//! nodes, addresses, namespaces and contexts from the control server.
//!
//! The script that `tidegate completions` prints runs `tidegate` again on each TAB, with [`VARIABLE`] set. Nothing is
//! printed if the server does not respond in time.

mod lookup;
mod words;

use std::{ffi::OsString, io};

use clap::{Arg, Command, CommandFactory as _};
use clap_complete::{
    ArgValueCompleter, CompleteEnv, Shell,
    env::{EnvCompleter, Shells},
};

use crate::args::Cli;

/// Environment variable in which the script names the shell.
const VARIABLE: &str = "TIDEGATE_COMPLETE";

/// Type of the words that complete an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordType {
    /// Kinds; after a slash, the names of objects of the kind.
    Kinds,
    /// Names of objects of the kind that precedes on the command line.
    NamesOfKind,
    /// Names of objects of one kind.
    Names(crate::Resource),
    Namespaces,
    Contexts,
}

/// Prints the words for a shell and ends the process if the process was started by a completion script.
pub(crate) fn answer() {
    CompleteEnv::with_factory(|| with_completers(Cli::command())).var(VARIABLE).complete();
}

/// Returns the completion script of a shell.
pub(super) fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let (shells, mut script) = (Shells::builtins(), Vec::new());
    let name = shell.to_string();
    let completer: &dyn EnvCompleter = shells
        .completer(&name)
        .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, format!("no completions for {name}")))?;
    completer.write_registration(VARIABLE, "tidegate", "tidegate", "tidegate", &mut script)?;
    Ok(script)
}

/// Adds the completers to the arguments of all subcommands, by the names of their values.
fn with_completers(command: Command) -> Command {
    let name = command.get_name().to_owned();
    command
        .mut_args(|arg| match wanted(&name, &arg) {
            Some(wanted) => arg.add(ArgValueCompleter::new(move |current: &std::ffi::OsStr| {
                lookup::candidates(wanted, current, &typed())
            })),
            None => arg,
        })
        .mut_subcommands(with_completers)
}

/// Returns the words of the command line that is being completed, which follow `--`.
fn typed() -> Vec<OsString> {
    std::env::args_os().skip_while(|word| word != "--").skip(1).collect()
}

/// Returns the type of the words that complete an argument of a subcommand; `None` for free text and new names.
fn wanted(subcommand: &str, arg: &Arg) -> Option<WordType> {
    use model::kinds::resource::Kind;

    let of = |kind| Some(WordType::Names(crate::Resource::Object(kind)));
    if arg.get_id() == "namespace" {
        return Some(WordType::Namespaces);
    }
    let value = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    match (subcommand, value) {
        ("use" | "delete", "NAME") if arg.get_id() == "name" => Some(WordType::Contexts),
        (_, "NAME") if arg.get_id() == "context" => Some(WordType::Contexts),
        (
            "get" | "describe" | "delete" | "edit" | "patch" | "label" | "annotate" | "wait" | "drain"
            | "undrain" | "maintenance",
            "NAME" | "NAME|KEY=VALUE|KEY-",
        ) => Some(WordType::NamesOfKind),
        (_, "KIND") => Some(WordType::Kinds),
        (_, "NODE") => of(Kind::Node),
        (_, "SERVICE" | "SERVICE|ADDRESS|SOURCE") => of(Kind::Service),
        (_, "POOL") => of(Kind::AddressPool),
        (_, "PEER") => of(Kind::BgpPeer),
        (_, "ADDRESS") => of(Kind::Address),
        _ => None,
    }
}
