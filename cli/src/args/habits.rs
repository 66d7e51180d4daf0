//! Habits from `kubectl` that the command line accepts in another form: namespaces before the subcommand, `help`, and
//! subcommands that have another name here.

use std::ffi::OsString;

/// Options with a value that may precede the subcommand.
const WITH_VALUE: [&str; 7] =
    ["--api", "--token-file", "--ca-file", "--ca-hash", "--context", "--timeout", "--min-position"];

/// Subcommands that do not exist, with the remedy.
const VERBS: [(&str, &str); 12] = [
    ("auth", "`tidegate can-i VERB KIND` checks permissions, `tidegate whoami` shows the roles"),
    ("cluster-info", "`tidegate status` shows the servers, nodes and problems"),
    ("config", "`tidegate context` lists and chooses stored connections, `tidegate login URL` stores one"),
    ("cordon", "`tidegate drain node NAME` stops new connections"),
    ("expose", "`tidegate create service NAME --port PORT --selector KEY=VALUE`"),
    ("list", "`tidegate get KIND`"),
    (
        "logs",
        "`tidegate addresses events`, `tidegate bgp events` and `tidegate history` show events; logs are in the journal of each machine",
    ),
    ("ls", "`tidegate get KIND`"),
    ("replace", "`tidegate apply -f FILE` creates or updates objects"),
    ("rollout", "`tidegate history` lists changes, `tidegate rollback REVISION` undoes later ones"),
    ("scale", "the number of endpoints is that of the Workloads; `tidegate get workloads` lists them"),
    ("uncordon", "`tidegate undrain node NAME` puts the node back in service"),
];

/// Returns the remedy for a subcommand that does not exist; `None` if the word has no known meaning.
pub(crate) fn remedy(verb: &str) -> Option<&'static str> {
    VERBS.iter().find(|(known, _)| *known == verb).map(|(_, remedy)| *remedy)
}

/// Moves `-n NAMESPACE`, `--namespace NAMESPACE` and `-A` from before the subcommand to after it. A subcommand without
/// these options rejects them there. Replaces `help SUBCOMMAND` by `SUBCOMMAND --help`.
pub(crate) fn in_usual_order(words: &[OsString]) -> Vec<OsString> {
    let (mut kept, mut moved): (Vec<OsString>, Vec<OsString>) = (Vec::new(), Vec::new());
    let mut words = words.iter().cloned();
    kept.extend(words.next());
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        match text.as_str() {
            "-n" | "--namespace" => {
                moved.push(word);
                moved.extend(words.next());
            }
            "-A" | "--all-namespaces" => moved.push(word),
            _ if text.starts_with("--namespace=") || (text.starts_with("-n") && text.len() > 2) => {
                moved.push(word);
            }
            _ if WITH_VALUE.contains(&text.as_str()) => {
                kept.push(word);
                kept.extend(words.next());
            }
            _ if text.starts_with('-') => kept.push(word),
            "help" => {
                kept.extend(words.by_ref());
                moved.clear();
                kept.push("--help".into());
            }
            "create" => {
                let next = words.next();
                let is_file = next.as_ref().and_then(|next| next.to_str()).is_some_and(is_file_option);
                kept.push(if is_file { "apply".into() } else { word });
                if is_file { &mut moved } else { &mut kept }.extend(next);
                break;
            }
            "top" => {
                kept.push(word);
                let next = words.next();
                kept.extend(next.map(|next| match next.to_str() {
                    Some("node" | "no") => "nodes".into(),
                    Some("service" | "svc") => "services".into(),
                    Some(_) | None => next,
                }));
                break;
            }
            "api-resources" => {
                kept.extend(["api".into(), "resources".into()]);
                break;
            }
            "get" => {
                let next = words.next();
                let is_namespaces =
                    |word: &OsString| matches!(word.to_str(), Some("namespaces" | "namespace" | "ns"));
                let is_events = |word: &OsString| matches!(word.to_str(), Some("events" | "event" | "ev"));
                if next.as_ref().is_some_and(is_namespaces) {
                    kept.push("namespaces".into());
                } else if next.as_ref().is_some_and(is_events) {
                    // Unknown as a subcommand too, so that the remedy is printed.
                    kept.extend(next);
                } else {
                    kept.push(word);
                    moved.extend(next);
                }
                break;
            }
            // The subcommand; the words after it are its own.
            _ => {
                kept.push(word);
                break;
            }
        }
    }
    kept.extend(moved);
    kept.extend(words);
    without_dry_run_values(kept)
}

fn is_file_option(word: &str) -> bool {
    word.starts_with("--filename") || (word.starts_with("-f") && !word.starts_with("--"))
}

/// Replaces `--dry-run=server` and `--dry-run=client` by `--dry-run`, because previews are always made by the server, and
/// removes `--dry-run=none`. Words after `--` stay.
fn without_dry_run_values(words: Vec<OsString>) -> Vec<OsString> {
    let options = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let replaced = |(at, word): (usize, OsString)| match word.to_str() {
        Some("--dry-run=server" | "--dry-run=client") if at < options => Some("--dry-run".into()),
        Some("--dry-run=none") if at < options => None,
        Some(_) | None => Some(word),
    };
    words.into_iter().enumerate().filter_map(replaced).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    fn moved(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let words = in_usual_order(&words);
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_namespace_before_the_subcommand_belongs_to_it() {
        for (given, expected) in [
            ("tidegate -n shop get svc", "tidegate get -n shop svc"),
            ("tidegate --namespace=shop get svc", "tidegate get --namespace=shop svc"),
            ("tidegate -nshop --api http://x get svc", "tidegate --api http://x get -nshop svc"),
            ("tidegate -A get svc", "tidegate get -A svc"),
            ("tidegate get svc -n shop", "tidegate get svc -n shop"),
            (
                "tidegate --show-request --timeout 5s -n shop get svc",
                "tidegate --show-request --timeout 5s get -n shop svc",
            ),
            ("tidegate -n", "tidegate -n"),
            ("tidegate", "tidegate"),
            ("tidegate help", "tidegate --help"),
            ("tidegate help bgp peers", "tidegate bgp peers --help"),
            ("tidegate get help", "tidegate get help"),
            ("tidegate get ns -o json", "tidegate namespaces -o json"),
            ("tidegate api-resources", "tidegate api resources"),
            ("tidegate create -f web.yaml", "tidegate apply -f web.yaml"),
            ("tidegate create --filename=web.yaml", "tidegate apply --filename=web.yaml"),
            ("tidegate -n shop create svc web", "tidegate create svc -n shop web"),
            ("tidegate top node", "tidegate top nodes"),
            ("tidegate top svc", "tidegate top services"),
            ("tidegate get events -A", "tidegate events -A"),
            ("tidegate apply -f a --dry-run=server", "tidegate apply -f a --dry-run"),
            ("tidegate apply --dry-run=none -f a", "tidegate apply -f a"),
            ("tidegate env -- --dry-run=none", "tidegate env -- --dry-run=none"),
        ] {
            assert_eq!(moved(given), expected);
        }
        assert_eq!(in_usual_order(&[]), Vec::<OsString>::new());
    }

    #[test]
    fn remedies_are_for_subcommands_that_do_not_exist() {
        let command = Cli::command();
        for (verb, _) in VERBS {
            assert!(command.find_subcommand(verb).is_none(), "{verb} exists");
        }
        assert!(remedy("replace").unwrap().contains("apply") && remedy("x").is_none());
    }

    #[test]
    fn every_option_with_a_value_may_precede_the_subcommand() {
        let with_value = Cli::command();
        let with_value = with_value.get_arguments().filter(|arg| arg.get_action().takes_values());
        let names: Vec<_> =
            with_value.filter_map(|arg| arg.get_long()).map(|name| format!("--{name}")).collect();
        assert_eq!(names, WITH_VALUE);
    }
}
