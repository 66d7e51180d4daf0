//! Settings of `tidegate-sync`: the flags that have an environment variable, and the positional arguments of
//! the sources (paths or DNS names).

use std::ffi::OsString;

use clap::{CommandFactory as _, error::ErrorKind};
use settings::{Error, Rules};

use crate::args::Cli;

/// Rules for the settings file of `tidegate-sync`, which may contain positional arguments and each flag that
/// has an environment variable.
pub const RULES: Rules = Rules { positionals: true, keys: None };

/// Parses a command line, and the settings file that `--config` names.
///
/// # Errors
/// Returns a user-facing error if the command line or the file is invalid.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    ::settings::parse(words, RULES).map_err(|error| match error {
        Error::CommandLine(error) => error,
        Error::File(error) => Cli::command().error(ErrorKind::InvalidValue, client::chain(&error)),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_in_result, reason = "a test fails by panicking, also in its helpers")]

    use std::path::{Path, PathBuf};

    use settings::SettingsFile;

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
        let ports: Vec<_> = cli.global.api.iter().map(client::Url::port).collect();
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
            ("listen = '0.0.0.0'", "must be an address and a port"),
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

    /// Every setting in the packaged example files is valid, including those in commented-out lines.
    #[test]
    fn every_setting_of_the_example_files_is_one() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/etc/tidegate");
        let file = tempfile::NamedTempFile::new().unwrap();
        let check = |source: &str, text: &str| {
            std::fs::write(file.path(), text).unwrap();
            let applied = SettingsFile::read(file.path()).unwrap().apply(Cli::command(), Some(source), RULES);
            applied.unwrap_or_else(|error| panic!("{text}: {error}"));
        };
        for source in ["files", "docker", "dns", "kubernetes"] {
            let example = std::fs::read_to_string(root.join(format!("sync-{source}.toml"))).unwrap();
            let settings = example.lines().filter_map(|line| line.strip_prefix('#'));
            let settings: Vec<_> = settings.filter(|line| line.starts_with(char::is_alphabetic)).collect();
            assert!(settings.len() > 3, "{source}");
            for line in settings {
                check(source, line);
            }
            check(source, &example);
        }
    }
}
