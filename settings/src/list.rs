//! List of all settings of a program, for generated reference pages.

use clap::{Arg, Command};

use crate::file::{Rules, is_switch, key_of};

/// Text with which a help text begins the default of a setting.
const DEFAULT_IN_HELP: &str = "[default: ";

/// Setting of a program, as listed in its documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Name of the subcommand that has the setting; empty for settings of the program itself.
    pub subcommand: String,
    /// Flag of the setting, such as `--listen`; `None` for a positional argument.
    pub flag: Option<String>,
    /// Placeholder of the value, such as `ADDRESS:PORT`; `None` for a switch.
    pub value: Option<String>,
    /// Environment variable of the setting; `None` if it has no variable.
    pub variable: Option<String>,
    /// Key of the setting in the settings file; `None` if the file cannot contain the setting.
    pub key: Option<String>,
    /// Default value of the setting as text; `None` if there is none.
    pub default: Option<String>,
    /// Heading under which the help text lists the setting; `None` for the default group.
    pub heading: Option<String>,
    /// Help text of the setting on one line, without the default.
    pub help: String,
}

/// Lists the visible settings of a command in the order of declaration: first those of the command, then
/// those of its subcommands.
#[must_use]
pub fn list(command: &Command, rules: Rules) -> Vec<Setting> {
    let mut settings = Vec::new();
    collect(command, "", rules, &mut settings);
    settings
}

fn collect(command: &Command, name: &str, rules: Rules, settings: &mut Vec<Setting>) {
    let visible = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let is_listed = |arg: &&Arg| arg.get_env().is_some() || rules.is_setting(arg);
    settings.extend(visible.filter(is_listed).map(|arg| setting(arg, name, rules)));
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        let name = [name, subcommand.get_name()].join(" ");
        collect(subcommand, name.trim_start(), rules, settings);
    }
}

fn setting(arg: &Arg, subcommand: &str, rules: Rules) -> Setting {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let (help, documented) = split_default(&help);
    let declared: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let declared = (!declared.is_empty() && !is_switch(arg)).then(|| declared.join(","));
    let names = arg.get_value_names().filter(|_| !is_switch(arg)).unwrap_or_default();
    Setting {
        subcommand: subcommand.to_owned(),
        flag: arg.get_long().map(|long| format!("--{long}")),
        value: names.first().map(ToString::to_string),
        variable: arg.get_env().map(|variable| variable.to_string_lossy().into_owned()),
        key: rules.is_setting(arg).then(|| key_of(arg).to_owned()),
        default: declared.or(documented),
        heading: arg.get_help_heading().map(str::to_owned),
        help,
    }
}

/// Splits a help text such as `Log filter [default: info]` into the text and the default.
fn split_default(help: &str) -> (String, Option<String>) {
    let parts = help.split_once(DEFAULT_IN_HELP).and_then(|(before, rest)| {
        // A default may contain brackets, such as the address [::1]:7441.
        let mut depth = 0_i32;
        let end = rest.find(|c| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            depth < 0
        })?;
        Some((before, rest.get(..end)?, rest.get(end + 1..)?))
    });
    match parts {
        Some((before, default, after)) => {
            let text = [before.trim(), after.trim()].join(" ");
            (text.trim().to_owned(), Some(default.to_owned()))
        }
        None => (help.to_owned(), None),
    }
}
