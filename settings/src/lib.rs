//! Settings of a program from the command line, the environment, a TOML file and defaults, in this order of
//! precedence.
//!
//! Every key of the file is a flag of the program, so each setting is declared, checked and documented in one
//! place: its clap argument. Flags without an environment variable belong to a single run and are not settings.
//! Secrets are read from files, whose paths are settings.
//!
//! ```text
//! command line ──▶ clap ──▶ --config FILE ──▶ [SettingsFile] ──▶ defaults of the arguments ──▶ clap ──▶ program
//! ```
//! Invariant: unknown keys in the file, and values that the flag would reject, are errors that name the key.

mod file;
mod list;

use std::{ffi::OsString, path::PathBuf};

use clap::{Command, CommandFactory, FromArgMatches};

pub use self::{
    file::{FileError, Rules, SettingsFile},
    list::{Setting, list},
};

/// Long name of the flag that names the settings file.
const CONFIG: &str = "config";

/// Error in the command line or in the settings file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line is invalid, or the user requested the help or the version.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// The settings file is unreadable or invalid.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Parses a command line, the environment, and the settings file named by `--config` or its environment variable.
///
/// # Errors
/// Returns the first error in the command line or in the file.
pub fn parse<C: CommandFactory + FromArgMatches>(
    words: impl IntoIterator<Item = OsString>,
    rules: Rules,
) -> Result<C, Error> {
    let words: Vec<OsString> = words.into_iter().collect();
    // Required arguments may be in the file, so they are not required in this first pass.
    let found = optional(C::command(), rules).try_get_matches_from(&words)?;
    let command = match found.get_one::<PathBuf>(CONFIG) {
        Some(path) => SettingsFile::read(path)?.apply(C::command(), found.subcommand_name(), rules)?,
        None => C::command(),
    };
    Ok(C::from_arg_matches(&command.try_get_matches_from(words)?)?)
}

/// Parses the command line of the process as [`parse`] does. Exits the process after printing help, the version or
/// an error in the command line.
///
/// # Errors
/// Returns an error if the settings file is unreadable or invalid.
pub fn parse_or_exit<C: CommandFactory + FromArgMatches>(rules: Rules) -> Result<C, FileError> {
    match parse(std::env::args_os(), rules) {
        Ok(parsed) => Ok(parsed),
        Err(Error::CommandLine(error)) => error.exit(),
        Err(Error::File(error)) => Err(error),
    }
}

/// Makes every argument that a settings file may contain optional, because the file may supply a required
/// one. Returns the changed command.
fn optional(command: Command, rules: Rules) -> Command {
    let relax = |command: Command| {
        command.mut_args(|arg| if rules.is_setting(&arg) { arg.required(false) } else { arg })
    };
    relax(command).mut_subcommands(relax)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_in_result, reason = "a test fails by panicking, also in its helpers")]

    use clap::{Args, Parser, Subcommand};

    use super::*;

    const RULES: Rules = Rules { positionals: true, keys: None };

    #[derive(Debug, Parser)]
    #[command(name = "program")]
    struct Cli {
        /// Settings file
        #[arg(long, global = true, env = "SETTINGS_TEST_CONFIG")]
        config: Option<PathBuf>,
        /// Servers, separated by commas
        #[arg(long, global = true, env = "SETTINGS_TEST_API", value_delimiter = ',', default_value = "a")]
        api: Vec<String>,
        /// Limit of something [default: [::]:5]
        #[arg(long, global = true, env = "SETTINGS_TEST_LIMIT", value_name = "N", help_heading = "Limits")]
        limit: Option<u8>,
        /// Allows it
        #[arg(long, env = "SETTINGS_TEST_ALLOW", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        allow: Option<bool>,
        /// Runs once
        #[arg(long, global = true)]
        once: bool,
        #[command(subcommand)]
        source: Source,
    }

    #[derive(Debug, Subcommand)]
    enum Source {
        /// Reads the input from files
        Files(Files),
        /// Reads no input
        Nowhere,
    }

    #[derive(Debug, Args)]
    struct Files {
        /// Directories
        #[arg(value_name = "DIR", required = true)]
        paths: Vec<PathBuf>,
        /// Recurses
        #[arg(long, env = "SETTINGS_TEST_DEEP")]
        deep: bool,
    }

    fn parsed(text: &str, words: &[&str]) -> Result<Cli, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let own = ["program", "--config", file.path().to_str().unwrap()];
        parse(own.iter().chain(words).map(OsString::from), RULES).map_err(|error| error.to_string())
    }

    #[test]
    fn texts_of_a_file_are_read_without_the_program() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "api = ['b', 'c']\nnode = 'd'\nlimit = 7").unwrap();
        let file = SettingsFile::read(file.path()).unwrap();
        let texts = ["api", "node", "limit", "absent"].map(|key| file.texts(key).join(" "));
        assert_eq!(texts, ["b c", "d", "", ""]);
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let text = "api = ['b', 'c']\nlimit = 7\nallow = true\npaths = '/x'\ndeep = true";
        let cli = parsed(text, &["files"]).unwrap();
        assert_eq!((cli.api.join(" "), cli.limit, cli.allow), ("b c".to_owned(), Some(7), Some(true)));
        let Source::Files(files) = cli.source else { panic!("another source") };
        assert!(files.deep && files.paths == [PathBuf::from("/x")]);
        let cli = parsed(text, &["--allow=false", "files", "--api", "d"]).unwrap();
        assert_eq!((cli.api.join(" "), cli.allow), ("d".to_owned(), Some(false)), "a list is replaced");
        let cli = parsed("api = 'b,c'", &["nowhere"]).unwrap();
        assert_eq!((cli.api.len(), cli.limit, cli.allow), (2, None, None));
        assert_eq!(parsed("", &["nowhere"]).unwrap().api, ["a"]);
    }

    #[test]
    fn errors_name_the_key_and_the_remedy() {
        let refusals = [
            ("limt = 1", "unknown setting `limt` of `program files`; settings are named like the flags"),
            ("once = true", "unknown setting `once`"),
            ("config = 'x'", "unknown setting `config`"),
            ("limit = 256", "`limit`: invalid value '256'"),
            ("limit = [1]", "`limit` must be a string or a whole number"),
            ("limit = 1.5", "`limit` must be a string or a whole number"),
            ("api = [true]", "`api` must be a string, or a list of strings"),
            ("allow = 'true'", "`allow` must be true or false"),
            ("deep = 1", "`deep` must be true or false"),
            ("limit = ", "TOML parse error at line 1"),
        ];
        for (text, expected) in refusals {
            let refusal = parsed(text, &["files", "x"]).unwrap_err();
            assert!(refusal.contains(expected) && refusal.contains("--config /"), "{text}: {refusal}");
        }
        assert!(parsed("deep = true", &["nowhere"]).unwrap_err().contains("`deep` of `program`;"));
        assert!(parsed("", &["files"]).unwrap_err().contains("DIR"), "neither in the file nor given");
        let words = ["program", "--config", "/nonexistent", "nowhere"].map(OsString::from);
        let error = parse::<Cli>(words, RULES).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"), "{error}");
    }

    #[test]
    fn a_file_is_limited_in_size_and_a_program_can_restrict_its_keys() {
        let huge = format!("api = '{}'", "x".repeat(64 * 1024));
        assert!(parsed(&huge, &["nowhere"]).unwrap_err().contains("must be at most 65536 bytes"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "limit = 1").unwrap();
        let words = ["program", "--config", file.path().to_str().unwrap(), "nowhere"].map(OsString::from);
        let rules = Rules { keys: Some(&["api"]), ..Rules::default() };
        assert!(parse::<Cli>(words, rules).unwrap_err().to_string().contains("unknown setting `limit`"));
    }

    #[test]
    fn every_setting_is_listed_with_flag_variable_key_and_default() {
        let all = list(&Cli::command(), RULES);
        let row = |setting: &Setting| {
            let Setting { subcommand, flag, value, variable, key, default, heading, help } = setting.clone();
            let cells = [flag, value, variable, key, default, heading].map(Option::unwrap_or_default);
            format!("{subcommand}|{}|{help}", cells.join("|"))
        };
        assert_eq!(
            all.iter().map(row).collect::<Vec<_>>(),
            [
                "|--config|CONFIG|SETTINGS_TEST_CONFIG||||Settings file",
                "|--api|API|SETTINGS_TEST_API|api|a||Servers, separated by commas",
                "|--limit|N|SETTINGS_TEST_LIMIT|limit|[::]:5|Limits|Limit of something",
                "|--allow|ALLOW|SETTINGS_TEST_ALLOW|allow|||Allows it",
                "files||DIR||paths|||Directories",
                "files|--deep||SETTINGS_TEST_DEEP|deep|||Recurses",
            ]
        );
    }
}
