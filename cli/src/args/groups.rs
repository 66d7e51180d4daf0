//! Help of the command: subcommands in groups, and the options of all subcommands on the first page only.

use clap::{Command, CommandFactory as _};

use crate::args::Cli;

/// Groups of subcommands on the first page, in display order.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Everyday",
        &[
            "get",
            "describe",
            "apply",
            "create",
            "edit",
            "patch",
            "label",
            "annotate",
            "delete",
            "wait",
            "watch",
            "api",
            "namespaces",
        ],
    ),
    (
        "Why does it (not) work",
        &[
            "status",
            "explain",
            "dns",
            "http",
            "health",
            "traffic",
            "top",
            "addresses",
            "bgp",
            "doctor",
            "history",
            "audit",
        ],
    ),
    ("Before a change", &["plan", "diff", "what-if"]),
    (
        "Operate",
        &[
            "rollback",
            "drain",
            "maintenance",
            "undrain",
            "move",
            "rebalance",
            "confirm",
            "env",
            "import",
            "export",
        ],
    ),
    ("This machine", &["demo", "quickstart", "login", "context", "completions", "version"]),
    (
        "Administer",
        &["backup", "store", "token", "role", "whoami", "can-i", "node", "authority", "support-bundle"],
    ),
];

/// Returns the command for its help texts.
#[must_use]
pub fn for_help() -> Command {
    let mut command = Cli::command();
    command.build();
    let width = command.get_subcommands().map(|one| one.get_name().len()).max().unwrap_or_default();
    let mut listing = String::new();
    for (heading, names) in GROUPS {
        listing.push_str(&format!("{heading}:\n"));
        for one in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = one.get_about().map(ToString::to_string).unwrap_or_default();
            listing.push_str(&format!("  {:width$}  {about}\n", one.get_name()));
        }
        listing.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listing}Options:\n{{options}}{{after-help}}"
    );
    command.help_template(template).mut_subcommands(without_global_options)
}

/// Hides the options of all subcommands and names the page that lists them.
fn without_global_options(command: Command) -> Command {
    let note = "Connection options: `tidegate --help`";
    let after = command.get_after_help().map_or_else(|| note.to_owned(), |text| format!("{text}\n\n{note}"));
    command
        .mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg })
        .mut_subcommands(without_global_options)
        .after_help(after)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_subcommand_is_in_one_group() {
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name);
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(shown.collect::<BTreeSet<_>>(), grouped.iter().copied().collect());
        assert_eq!(
            grouped.len(),
            grouped.iter().collect::<BTreeSet<_>>().len(),
            "a subcommand is in two groups"
        );
    }
}
