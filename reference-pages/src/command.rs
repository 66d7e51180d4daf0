//! Generator of the reference page of a command: its settings, and its subcommands with arguments and flags.

use std::collections::BTreeSet;

use clap::{Arg, ArgAction, Command};

use crate::{cell, table};

/// Text with which clap's help begins the default of an argument.
const DEFAULT: &str = "[default:";

/// Properties of a program's settings file that its reference page shows.
#[derive(Debug, Clone, Copy)]
pub struct File {
    /// Description of the settings file, in one sentence.
    pub description: &'static str,
    /// Keys that the file may contain. `None` permits a key for each flag that has an environment variable.
    pub keys: Option<&'static [&'static str]>,
}

/// Returns the reference page of a command as Markdown: title, settings, and all subcommands that are not hidden.
#[must_use]
pub fn page(command: &Command, file: File) -> String {
    let mut command = command.clone().disable_help_subcommand(true);
    command.build();
    let name = command.get_name().to_owned();
    let mut text = format!(
        "# {name}\n\n{}\n\nThis page is generated from the definition of the command.\n\n## Settings\n\n{}\n\n",
        long_about(&command),
        file.description,
    );
    text += "Precedence: flag, environment variable, file, default.\n\n";
    text += &headed(command.get_arguments().filter(|arg| is_shown(arg)), file);
    let global: BTreeSet<String> = command.get_arguments().map(|arg| arg.get_id().to_string()).collect();
    if let Some(examples) = after(&command) {
        text += &format!("```text\n{examples}\n```\n\n");
    }
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        section(subcommand, 2, &global, file, &mut text);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// Appends the section of a subcommand to the page and, recursively, the sections of its own subcommands.
fn section(command: &Command, level: usize, global: &BTreeSet<String>, file: File, text: &mut String) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    *text += &format!("{} {name}\n\n{}\n\n", "#".repeat(level), long_about(command));
    let usage = command.clone().render_usage().to_string();
    *text += &format!("```text\n{}\n```\n\n", usage.trim_start_matches("Usage: ").trim());
    let own = command.get_arguments().filter(|arg| is_shown(arg) && !global.contains(arg.get_id().as_str()));
    let (positional, flags): (Vec<_>, Vec<_>) = own.partition(|arg| arg.is_positional());
    if !positional.is_empty() {
        let rows: Vec<_> = positional.into_iter().map(argument).collect();
        *text += &(table(["argument", "description"], &rows) + "\n");
    }
    *text += &headed(flags.into_iter(), file);
    if let Some(examples) = after(command) {
        *text += &format!("```text\n{examples}\n```\n\n");
    }
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        section(subcommand, level + 1, global, file, text);
    }
}

/// Returns Markdown tables of the flags in `args`, one table for each heading of the help text.
fn headed<'a>(args: impl Iterator<Item = &'a Arg>, file: File) -> String {
    let mut groups: Vec<(Option<&str>, Vec<&Arg>)> = Vec::new();
    for arg in args {
        match groups.iter_mut().find(|(heading, _)| *heading == arg.get_help_heading()) {
            Some((_, group)) => group.push(arg),
            None => groups.push((arg.get_help_heading(), vec![arg])),
        }
    }
    let mut text = String::new();
    for (heading, args) in groups {
        if let Some(heading) = heading {
            text += &format!("**{heading}**\n\n");
        }
        // Most subcommands have flags only.
        let is_setting = args.iter().any(|arg| arg.get_env().is_some());
        text += &if is_setting {
            let rows: Vec<_> = args.into_iter().map(|arg| setting(arg, file)).collect();
            table(["flag", "variable", "key in the file", "default", "description"], &rows)
        } else {
            let rows: Vec<_> = args.into_iter().map(flag).collect();
            table(["flag", "default", "description"], &rows)
        };
        text.push('\n');
    }
    text
}

fn setting(arg: &Arg, file: File) -> [String; 5] {
    let [flag, default, description] = flag(arg);
    let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let key = arg.get_long().filter(|name| match file.keys {
        Some(keys) => keys.contains(name),
        None => arg.get_env().is_some() && *name != "config",
    });
    [flag, variable, key.map(|key| format!("`{key}`")).unwrap_or_default(), default, description]
}

fn flag(arg: &Arg) -> [String; 3] {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<_> = short.into_iter().chain(long).collect();
    let value = if takes_value(arg) { format!(" {}", value_name(arg)) } else { String::new() };
    let (description, default) = description(arg);
    [format!("`{}{value}`", names.join("`, `")), default, description]
}

fn argument(arg: &Arg) -> [String; 2] {
    let (description, _) = description(arg);
    [format!("`{}`", value_name(arg)), description]
}

/// Returns two texts for an argument: its description with the accepted values, and its default.
fn description(arg: &Arg) -> (String, String) {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let (help, stated) = split_default(&help);
    let mut description = cell(&help);
    let words: Vec<_> = arg
        .get_possible_values()
        .iter()
        .filter(|word| !word.is_hide_set())
        .map(|word| format!("`{}`", word.get_name()))
        .collect();
    if takes_value(arg) && !words.is_empty() {
        description += &format!(". One of {}", words.join(", "));
    }
    if !description.ends_with('.') {
        description.push('.');
    }
    let values: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = match stated {
        Some(stated) => cell(&stated),
        None if takes_value(arg) && !values.is_empty() => format!("`{}`", values.join(",")),
        None => String::new(),
    };
    (description, default)
}

/// Splits a help text into the text without `[default: …]`, and the default.
fn split_default(help: &str) -> (String, Option<String>) {
    let found = help.split_once(DEFAULT).and_then(|(before, rest)| Some((before, rest.split_once(']')?)));
    match found {
        Some((before, (default, after))) => {
            (format!("{}{after}", before.trim_end()), Some(default.trim().to_owned()))
        }
        None => (help.to_owned(), None),
    }
}

fn long_about(command: &Command) -> String {
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let paragraphs: Vec<_> = about.split("\n\n").map(|paragraph| sentence(&cell(paragraph))).collect();
    paragraphs.join("\n\n")
}

fn sentence(text: &str) -> String {
    if text.is_empty() || text.ends_with(['.', ':']) { text.to_owned() } else { format!("{text}.") }
}

/// Returns the text that follows the help of a command, usually examples, with its original line breaks;
/// `None` if there is none.
fn after(command: &Command) -> Option<String> {
    let text = command.get_after_long_help().or_else(|| command.get_after_help())?.to_string();
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn is_shown(arg: &Arg) -> bool {
    let is_automatic = matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    );
    !arg.is_hide_set() && !is_automatic
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// Returns the placeholder of an argument's value. `|` is escaped, because it would end a cell of a Markdown
/// table.
fn value_name(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    if names.is_empty() {
        arg.get_id().as_str().to_uppercase()
    } else {
        names.iter().map(|name| name.replace('|', "\\|")).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Command {
        let port =
            Arg::new("port").long("port").env("TIDE_PORT").value_name("PORT").help("Port [default: 80]");
        let far = Arg::new("far").long("far").short('f').action(ArgAction::SetTrue).help("Go far");
        Command::new("tide")
            .about("Comes and goes")
            .arg(port.global(true))
            .subcommand(Command::new("ebb").about("Goes").arg(far).after_help("Examples:\n  tide ebb -f"))
            .subcommand(Command::new("secret").hide(true))
    }

    #[test]
    fn settings_and_subcommands_are_listed_and_hidden_ones_are_not() {
        let file = File { description: "No file.", keys: None };
        let page = page(&example(), file);
        assert!(page.contains("| `--port PORT` | `TIDE_PORT` | `port` | 80 | Port. |"), "{page}");
        assert!(page.contains("## tide ebb\n\nGoes.\n\n```text\ntide ebb"), "{page}");
        assert!(page.contains("| `-f`, `--far` |  | Go far. |"), "{page}");
        assert!(page.contains("```text\nExamples:\n  tide ebb -f\n```"), "{page}");
        assert_eq!(page.matches("--port").count(), 1, "{page}");
        assert!(!page.contains("secret"), "{page}");
    }
}
