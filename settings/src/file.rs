//! Settings file in TOML, whose keys are the long names of the program's flags.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, Command, builder::ValueParser};
use toml::{Table, Value};

use crate::CONFIG;

/// Maximum size of the settings file in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Rules that determine which arguments of a program a settings file may contain.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// True if the file may contain the positional arguments of the subcommand. The key is the identifier of
    /// the argument in clap.
    pub positionals: bool,
    /// Keys that the file may contain. `None` permits a key for each flag that has an environment variable.
    pub keys: Option<&'static [&'static str]>,
}

impl Rules {
    /// Returns true if a settings file may contain the argument.
    #[must_use]
    pub fn is_setting(self, arg: &Arg) -> bool {
        let key = key_of(arg);
        let is_listed = self.keys.is_none_or(|keys| keys.contains(&key));
        key != CONFIG && is_listed && (arg.get_env().is_some() || (self.positionals && arg.is_positional()))
    }

    fn is_named(self, arg: &Arg, key: &str) -> bool {
        key_of(arg) == key && self.is_setting(arg)
    }
}

/// Reason why a settings file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The settings file cannot be read.
    #[error("cannot read --config {}", path.display())]
    Unreadable {
        /// Path of the settings file.
        path: PathBuf,
        /// I/O error of the read.
        #[source]
        cause: std::io::Error,
    },
    /// The file is not TOML, has an unknown key, or has a value that the flag rejects.
    #[error("--config {}: {problem}", path.display())]
    Invalid {
        /// Path of the settings file.
        path: PathBuf,
        /// Description of the error, with the key and the remedy.
        problem: String,
    },
}

/// Settings file that has been read and parsed.
#[derive(Debug, Clone)]
pub struct SettingsFile {
    path: PathBuf,
    table: Table,
}

impl SettingsFile {
    /// Reads a file of at most 64 KiB.
    ///
    /// # Errors
    /// Returns an error if the file is unreadable, too large, or not TOML.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let unreadable = |cause| FileError::Unreadable { path: path.to_owned(), cause };
        let invalid = |problem| FileError::Invalid { path: path.to_owned(), problem };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(invalid(format!("must be at most {FILE_BYTES_MAX} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| invalid("must be UTF-8 text".to_owned()))?;
        let table = toml::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        Ok(Self { path: path.to_owned(), table })
    }

    /// Returns the texts of a key: one of a string, those of an array of strings, none if the key is missing.
    #[must_use]
    pub fn texts(&self, key: &str) -> Vec<String> {
        let values = match self.table.get(key) {
            Some(Value::Array(values)) => values.iter().collect(),
            other => Vec::from_iter(other),
        };
        values.into_iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Removes a key that the program itself applies, and returns its text; `None` if the key is missing.
    ///
    /// # Errors
    /// Returns an error if the value is not a string.
    pub fn take_text(&mut self, key: &str) -> Result<Option<String>, FileError> {
        match self.table.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(FileError::Invalid {
                path: self.path.clone(),
                problem: format!("`{key}` must be a string"),
            }),
        }
    }

    /// Makes the values in the file the defaults of the arguments of `command` and of its subcommand
    /// `subcommand`. Returns the changed command.
    ///
    /// # Errors
    /// Returns an error if a key is unknown, or if a flag rejects its value.
    pub fn apply(
        &self,
        command: Command,
        subcommand: Option<&str>,
        rules: Rules,
    ) -> Result<Command, FileError> {
        let applied = self.table.iter().try_fold(command, |command, (key, value)| {
            with_default(command, subcommand, rules, (key, value))
        });
        applied.map_err(|problem| FileError::Invalid { path: self.path.clone(), problem })
    }
}

/// Sets one key of the file as the default of the argument with the same name, and returns the changed
/// command.
fn with_default(
    command: Command,
    subcommand: Option<&str>,
    rules: Rules,
    (key, value): (&str, &Value),
) -> Result<Command, String> {
    let has = |command: &Command| command.get_arguments().any(|arg| rules.is_named(arg, key));
    let mut outcome = Ok(());
    let mut change = |command: Command| {
        command.mut_args(|arg| {
            if !rules.is_named(&arg, key) {
                return arg;
            }
            set(arg.clone(), key, value).unwrap_or_else(|problem| {
                outcome = Err(problem);
                arg
            })
        })
    };
    let own = subcommand.filter(|name| command.find_subcommand(name).is_some_and(has));
    let command = match own {
        _ if has(&command) => change(command),
        Some(name) => command.mut_subcommand(name, &mut change),
        None => return Err(unknown(&command, subcommand, rules, key)),
    };
    outcome.map(|()| command)
}

fn unknown(command: &Command, subcommand: Option<&str>, rules: Rules, key: &str) -> String {
    // The help of a subcommand without own settings does not show those of the program.
    let has_settings = |name: &&str| {
        let own = command.find_subcommand(name);
        own.is_some_and(|own| own.get_arguments().any(|arg| rules.is_setting(arg)))
    };
    let names = [Some(command.get_name()), subcommand.filter(has_settings)];
    let program = names.into_iter().flatten().collect::<Vec<_>>().join(" ");
    match rules.keys {
        Some(keys) => format!("unknown setting `{key}`; the file may contain {}", keys.join(", ")),
        None => format!(
            "unknown setting `{key}` of `{program}`; settings are named like the flags in `{program} --help`"
        ),
    }
}

/// Returns the argument with `value` as its default. Returns an error message if the argument does not accept
/// the value; `key` is the key in the file.
fn set(arg: Arg, key: &str, value: &Value) -> Result<Arg, String> {
    let words = words(&arg, value).ok_or_else(|| format!("`{key}` must be {}", expected(&arg)))?;
    let probe = Command::new("settings").no_binary_name(true).disable_help_flag(true);
    let probe = probe.arg(arg.clone().env(None::<&str>).required(false));
    let typed: Vec<String> = if is_switch(&arg) {
        Vec::new()
    } else if arg.is_positional() {
        words.clone()
    } else {
        words.iter().map(|word| format!("--{key}={word}")).collect()
    };
    if let Err(error) = probe.try_get_matches_from(typed) {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        return Err(format!("`{key}`: {}", first.trim_start_matches("error: ")));
    }
    // Settings live as long as the process.
    let words = words.into_iter().map(|word| &*word.leak());
    Ok(arg.required(false).default_values(words))
}

/// Converts a TOML value to the command-line values that set `arg`. Returns `None` if the type of the value does
/// not fit the argument.
fn words(arg: &Arg, value: &Value) -> Option<Vec<String>> {
    let word = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    };
    if is_boolean(arg) {
        return value.as_bool().map(|flag| vec![flag.to_string()]);
    }
    match value.as_array() {
        Some(entries) if is_list(arg) => entries.iter().map(word).collect(),
        Some(_) | None => Some(vec![word(value)?]),
    }
}

fn expected(arg: &Arg) -> &'static str {
    if is_boolean(arg) {
        "true or false"
    } else if is_list(arg) {
        "a string, or a list of strings"
    } else {
        "a string or a whole number"
    }
}

/// Returns the key of an argument in a settings file: its long flag name, or the identifier of a positional
/// argument.
pub(crate) fn key_of(arg: &Arg) -> &str {
    arg.get_long().unwrap_or_else(|| arg.get_id().as_str())
}

/// Returns true for a flag without a value, such as `--insecure`.
pub(crate) fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

fn is_boolean(arg: &Arg) -> bool {
    is_switch(arg) || arg.get_value_parser().type_id() == ValueParser::bool().type_id()
}

fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}
