//! Settings from the command line, the environment and a file, in this order of precedence, then the
//! defaults. Every setting of the file is a flag, so that each is documented in one place.
//!
//! Invariant: unknown keys in the file, and values that the flag would reject, are reported.

use std::{
    ffi::OsString,
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, Command, CommandFactory as _, FromArgMatches as _, error::ErrorKind};
use toml::{Table, Value};

use crate::args::Cli;

/// Maximum size of the settings file in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Flag that names the file.
const CONFIG: &str = "config";

/// Parses a command line and the settings file that it names.
///
/// # Errors
/// Returns a user-facing error if either is invalid.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let words: Vec<OsString> = words.into_iter().collect();
    // Required arguments may be in the file, so they are not required in this first pass.
    let loose = Cli::command().mut_subcommands(|source| source.mut_args(|arg| arg.required(false)));
    let found = loose.try_get_matches_from(&words)?;
    let path = found.get_one::<PathBuf>(CONFIG).cloned();
    let command = match (path, found.subcommand_name()) {
        (Some(path), Some(source)) => {
            let refused = |problem: String| {
                let message = format!("--config {}: {problem}", path.display());
                Cli::command().error(ErrorKind::InvalidValue, message)
            };
            let text = read(&path).map_err(refused)?;
            with_defaults(Cli::command(), source, &text).map_err(refused)?
        }
        (None, _) | (_, None) => Cli::command(),
    };
    Cli::from_arg_matches(&command.try_get_matches_from(words)?)
}

fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("must be at most {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "must be UTF-8 text".to_owned())
}

/// Returns the command with the file's values as defaults of its flags.
fn with_defaults(command: Command, source: &str, text: &str) -> Result<Command, String> {
    let table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut command = command;
    for (key, value) in table {
        let of_all = command.get_arguments().any(|arg| is_named(arg, &key));
        let own = command.find_subcommand(source);
        let of_source = own.is_some_and(|own| own.get_arguments().any(|arg| is_named(arg, &key)));
        let set = |arg: Arg| set(arg, &key, &value);
        let mut outcome = Ok(());
        let mut change = |args: Command| {
            args.mut_args(|arg| {
                if !is_named(&arg, &key) {
                    return arg;
                }
                set(arg.clone()).unwrap_or_else(|problem| {
                    outcome = Err(problem);
                    arg
                })
            })
        };
        command = match (of_all, of_source) {
            (true, _) => change(command),
            (false, true) => command.mut_subcommand(source, &mut change),
            (false, false) => {
                return Err(format!(
                    "unknown setting `{key}` of `tidegate-sync {source}`; settings are named like the \
                     flags in `tidegate-sync {source} --help`"
                ));
            }
        };
        outcome?;
    }
    Ok(command)
}

/// Returns true if a key of the file names this flag or positional list. Flags for a single run have no
/// environment variable and are not settings.
fn is_named(arg: &Arg, key: &str) -> bool {
    let is_setting = arg.is_positional() || arg.get_env().is_some();
    let name = arg.get_long().unwrap_or_else(|| arg.get_id().as_str());
    is_setting && name == key && key != CONFIG
}

/// Sets the default of a flag, if the flag accepts the value.
fn set(arg: Arg, key: &str, value: &Value) -> Result<Arg, String> {
    let words = words(&arg, value).ok_or_else(|| format!("`{key}` must be {}", wanted(&arg)))?;
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

/// Returns the equivalent command line words.
fn words(arg: &Arg, value: &Value) -> Option<Vec<String>> {
    let word = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    };
    if is_switch(arg) {
        return value.as_bool().map(|flag| vec![flag.to_string()]);
    }
    match value.as_array() {
        Some(entries) if is_list(arg) => entries.iter().map(word).collect(),
        Some(_) | None => Some(vec![word(value)?]),
    }
}

fn wanted(arg: &Arg) -> &'static str {
    if is_switch(arg) {
        "true or false"
    } else if is_list(arg) {
        "a string, or a list of strings"
    } else {
        "a string or a whole number"
    }
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_in_result, reason = "a test fails by panicking, also in its helpers")]

    use super::*;
    use crate::args::Source;

    fn parsed(text: &str, words: &[&str]) -> Result<Cli, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let own = ["tidegate-sync", "--config", file.path().to_str().unwrap()];
        let words = own.iter().chain(words).map(OsString::from);
        parse(words).map_err(|error| error.to_string())
    }

    fn kubernetes(cli: &Cli) -> &crate::kubernetes::KubernetesArguments {
        match &cli.source {
            Source::Kubernetes(arguments) => arguments,
            Source::Files(_) | Source::Docker(_) | Source::Dns(_) => panic!("another source"),
        }
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let text = "api = ['http://127.0.0.1:1', 'http://127.0.0.1:2']\nprune-limit = 7\nno-metallb = true\nmode = 'proxy'\n\
            lease-name = 'from-file'\nsource = 'here'";
        let cli = parsed(text, &["kubernetes", "--lease-name", "from-flag"]).unwrap();
        let ports: Vec<_> = cli.global.api.iter().map(reqwest::Url::port).collect();
        assert_eq!((ports, cli.global.prune_limit), (vec![Some(1), Some(2)], Some(7)));
        assert_eq!(cli.global.source_id.as_ref().unwrap().as_str(), "here");
        let own = kubernetes(&cli);
        assert!(own.no_metallb && !own.no_nodes);
        assert_eq!(own.mode, crate::kubernetes::translate::Mode::Proxy);
        assert_eq!(own.lease_name, "from-flag");
        assert_eq!(cli.global.listen.port(), 7442, "the default applies");
        let flag = parsed(text, &["kubernetes", "--api", "http://127.0.0.1:3"]).unwrap();
        assert_eq!(flag.global.api.len(), 1, "a list is replaced, not extended");
    }

    #[test]
    fn what_a_source_cannot_do_without_may_be_in_the_file() {
        let cli = parsed("paths = ['/etc/tidegate/objects']", &["files"]).unwrap();
        let Source::Files(arguments) = &cli.source else { panic!("another source") };
        assert_eq!(arguments.paths, [PathBuf::from("/etc/tidegate/objects")]);
        assert!(
            parsed("", &["files"]).unwrap_err().contains("DIR|FILE"),
            "missing from both the file \
                                                                           and the command line"
        );
    }

    #[test]
    fn what_is_no_setting_or_no_value_of_one_is_refused_by_name() {
        let refusals = [
            ("lisen = 'x'", "unknown setting `lisen` of `tidegate-sync kubernetes`"),
            ("resolver = '127.0.0.1:53'", "unknown setting `resolver`"),
            ("once = true", "unknown setting `once`"),
            ("config = 'other.toml'", "unknown setting `config`"),
            ("no-metallb = 'yes'", "`no-metallb` must be true or false"),
            ("mode = ['proxy']", "`mode` must be a string"),
            ("mode = 'both'", "`mode`: invalid value 'both'"),
            ("listen = '0.0.0.0:7442'", "must be a loopback address"),
            ("prune-limit = -1", "`prune-limit`: invalid value '-1'"),
            ("mode = ", "TOML parse error at line 1"),
        ];
        for (text, expected) in refusals {
            let refusal = parsed(text, &["kubernetes"]).unwrap_err();
            assert!(refusal.contains(expected) && refusal.contains("--config /"), "{text}: {refusal}");
        }
        let words = ["tidegate-sync", "dns", "--config", "/nonexistent"].map(OsString::from);
        assert!(parse(words).unwrap_err().to_string().contains("No such file"));
    }

    /// Commented-out lines are examples and must be valid.
    #[test]
    fn every_setting_of_the_example_files_is_one() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/etc/tidegate");
        for source in ["files", "docker", "dns", "kubernetes"] {
            let example = std::fs::read_to_string(root.join(format!("sync-{source}.toml"))).unwrap();
            let settings = example.lines().filter_map(|line| line.strip_prefix('#'));
            let settings: Vec<_> = settings.filter(|line| line.starts_with(char::is_alphabetic)).collect();
            assert!(settings.len() > 3, "{source}");
            for line in settings {
                with_defaults(Cli::command(), source, line).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
            with_defaults(Cli::command(), source, &example).unwrap();
        }
    }
}
