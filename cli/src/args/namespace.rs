//! Namespace of a command: `--namespace`, else the variable `TIDEGATE_NAMESPACE`, else that of the context, else `default`.

use clap::{ArgMatches, Command, error::ErrorKind, parser::ValueSource};
use model::primitives::name::{Name, Namespace};

use crate::{error::Failure, resource::Resource};

/// Environment variable with the namespace of commands that act on one namespace.
pub(crate) const VARIABLE: &str = "TIDEGATE_NAMESPACE";
/// Identifier of the argument `--namespace` in every subcommand.
const ARGUMENT: &str = "namespace";
/// Namespace that commands use if none is given.
const DEFAULT: &str = "default";

/// Key of the namespace in a settings file.
pub(crate) const KEY: &str = "namespace";

/// Makes `namespace` the default of `--namespace` in each subcommand whose default is `default`. Unlike a value of the
/// command line, a default does not conflict with `--all-namespaces`. `source` is the variable or file that has the value.
///
/// # Errors
/// Returns an error that names `source` if the value is not a valid namespace.
pub(crate) fn with_default(
    mut command: Command,
    source: &str,
    namespace: Option<&str>,
) -> Result<Command, clap::Error> {
    let Some(text) = namespace.filter(|text| !text.is_empty()) else { return Ok(command) };
    match Namespace::parse(text) {
        // clap requires defaults that live as long as the process, which parses one command line.
        Ok(namespace) => Ok(with_namespace(command, String::from(namespace.as_str()).leak())),
        Err(error) => Err(command.error(ErrorKind::InvalidValue, format!("{source}: {error}"))),
    }
}

fn with_namespace(command: Command, namespace: &'static str) -> Command {
    let command = command.mut_args(|arg| {
        let is_default = arg.get_id() == ARGUMENT && arg.get_default_values() == [DEFAULT];
        if is_default { arg.default_value(namespace) } else { arg }
    });
    command.mut_subcommands(|subcommand| with_namespace(subcommand, namespace))
}

/// Rejects a positional `NAMESPACE/NAME` whose namespace differs from that of `--namespace` on the command line.
///
/// # Errors
/// Returns a usage error that names both namespaces.
pub(crate) fn check(command: &Command, matches: &ArgMatches) -> Result<(), Failure> {
    let (mut command, mut matches) = (command, matches);
    while let Some((name, own)) = matches.subcommand() {
        let Some(subcommand) = command.find_subcommand(name) else { return Ok(()) };
        (command, matches) = (subcommand, own);
    }
    let has_namespace = command.get_arguments().any(|arg| arg.get_id() == ARGUMENT);
    if !has_namespace || matches.value_source(ARGUMENT) != Some(ValueSource::CommandLine) {
        return Ok(());
    }
    let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
    let Some(given) = matches.get_raw(ARGUMENT).and_then(|mut values| values.next_back()).map(text) else {
        return Ok(());
    };
    for positional in command.get_positionals() {
        for word in matches.get_raw(positional.get_id().as_str()).into_iter().flatten().map(text) {
            if let Some(named) = namespace_of(&word).filter(|named| *named != given) {
                return Err(Failure::usage(
                    format!("`{word}` is in namespace {named}, and -n names {given}"),
                    "omit one of the two namespaces",
                ));
            }
        }
    }
    Ok(())
}

/// Returns the namespace in `NAMESPACE/NAME` or `KIND/NAMESPACE/NAME`; `None` for other words.
fn namespace_of(word: &str) -> Option<&str> {
    let rest = match word.split_once('/') {
        Some((first, rest)) if first.parse::<Resource>().is_ok() => rest,
        Some(_) | None => word,
    };
    let (namespace, name) = rest.split_once('/')?;
    (Namespace::parse(namespace).is_ok() && Name::parse(name).is_ok()).then_some(namespace)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _};

    use super::*;
    use crate::args::Cli;

    fn namespaces(line: &str, variable: Option<&str>) -> Result<String, String> {
        let command = with_default(Cli::command(), VARIABLE, variable).map_err(|error| error.to_string())?;
        let matches =
            command.clone().try_get_matches_from(line.split(' ')).map_err(|error| error.to_string())?;
        check(&command, &matches).map_err(|failure| failure.to_string())?;
        let cli = Cli::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        if let crate::args::Command::Get(get) = cli.command {
            return Ok(format!("{} {}", get.namespace, get.all_namespaces));
        }
        Ok(String::new())
    }

    #[test]
    fn the_variable_is_the_default_of_commands_for_one_namespace() {
        let shop = Some("shop");
        assert_eq!(namespaces("tidegate get svc", shop).as_deref(), Ok("shop false"));
        assert_eq!(namespaces("tidegate get svc -n infra", shop).as_deref(), Ok("infra false"));
        assert_eq!(namespaces("tidegate get svc -A", shop).as_deref(), Ok("shop true"));
        assert_eq!(namespaces("tidegate get svc", Some("")).as_deref(), Ok("default false"));
        let refusal = namespaces("tidegate get svc", Some("Shop")).unwrap_err();
        assert!(refusal.contains("TIDEGATE_NAMESPACE"), "{refusal}");
    }

    #[test]
    fn two_namespaces_that_contradict_each_other_are_an_error() {
        for line in ["get svc shop/web -n infra", "get svc/shop/web -n infra", "delete svc/shop/web -n infra"]
        {
            let refusal = namespaces(&format!("tidegate {line}"), None).unwrap_err();
            assert_eq!(
                refusal.split_once(" is in ").map(|(_, rest)| rest),
                Some("namespace shop, and -n names infra")
            );
        }
        for line in [
            "get svc shop/web -n shop",
            "get svc/web -n infra",
            "get svc shop/web",
            "explain 10.96.0.1:80/tcp -n infra",
            "get nodes -n infra",
        ] {
            assert!(namespaces(&format!("tidegate {line}"), Some("other")).is_ok(), "{line}");
        }
    }
}
