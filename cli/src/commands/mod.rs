//! One module per subcommand. Each sends requests, renders the responses with pure functions and prints the
//! result.

mod addresses;
mod apply;
mod authority;
mod backup;
mod bgp;
pub(crate) mod completion;
mod confirm;
mod context;
mod create;
mod delete;
mod describe;
mod dns;
mod doctor;
mod drain;
mod edit;
mod environment;
mod explain;
mod export;
mod fields;
mod get;
mod health;
mod history;
mod http;
mod import;
mod label;
mod move_address;
mod namespaces;
mod oidc;
mod patch;
mod plans;
mod policy;
mod programs;
mod prompt;
mod quickstart;
mod rebalance;
mod repeat;
mod rollback;
mod security;
mod status;
mod support_bundle;
mod top;
pub(crate) mod traced;
mod traffic;
mod version;
mod wait;
mod watch;
mod what_if;

pub(crate) use get::collection_path;

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::CommandFactory;
use model::primitives::{
    quantity::Timestamp,
    text::{escape_json, is_display_control},
};
use serde_json::Value;

use crate::{
    args::{Cli, Command, Document, addresses::Addresses, explain::Explain},
    client::Client,
    connection::Connection,
    error::{ExitCode, Failure},
    output::Terminal,
};

/// Runs the selected subcommand and returns its exit code.
pub(crate) async fn run(cli: Cli, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let Cli { global, command } = cli;
    // These commands choose the connection themselves.
    if let Command::Login(arguments) = command {
        return context::login(global, arguments, terminal).await;
    }
    if let Command::Context(command) = &command {
        return context::run(command, terminal);
    }
    if let Command::Quickstart(arguments) = command {
        return quickstart::run(global, arguments, terminal).await;
    }
    oidc::refresh(&global).await?;
    let connection = Connection::of(&global)?;
    for warning in &connection.warnings {
        terminal.note(warning);
    }
    let client = Client::of_command(connection, &global)?;
    match command {
        Command::Get(arguments) => get::run(&client, arguments, terminal).await,
        Command::Describe(arguments) => describe::run(&client, arguments, terminal).await,
        Command::Apply(arguments) => apply::run(&client, arguments, terminal).await,
        Command::Plan(arguments) => plans::run(&client, arguments, terminal).await,
        Command::Diff(arguments) => plans::diff(&client, arguments, terminal).await,
        Command::Delete(arguments) => delete::run(&client, arguments, terminal).await,
        Command::Create(command) => create::run(&client, command, terminal).await,
        Command::Edit(arguments) => edit::run(&client, arguments, terminal).await,
        Command::Patch(arguments) => patch::run(&client, arguments, terminal).await,
        Command::Label(arguments) => label::run(&client, label::LABELS, arguments, terminal).await,
        Command::Annotate(arguments) => label::run(&client, label::ANNOTATIONS, arguments, terminal).await,
        Command::Status(arguments) => {
            repeat::if_asked(arguments.watch, &client, arguments, terminal, status::run).await
        }
        Command::Top(arguments) => top::run(&client, arguments, terminal).await,
        Command::Traffic(arguments) => {
            repeat::if_asked(arguments.watch, &client, arguments, terminal, traffic::run).await
        }
        Command::Health(arguments) => {
            repeat::if_asked(arguments.watch, &client, arguments, terminal, health::run).await
        }
        Command::Dns(command) => {
            repeat::if_asked(command.is_watch(), &client, command, terminal, dns::run).await
        }
        Command::Http(command) => {
            repeat::if_asked(command.is_watch(), &client, command, terminal, http::run).await
        }
        Command::Explain(arguments) => explain_subject(&client, arguments, terminal).await,
        Command::Env(arguments) => {
            repeat::if_asked(arguments.watch, &client, arguments, terminal, environment::run).await
        }
        Command::Addresses(Addresses::Events(arguments)) => {
            repeat::if_asked(arguments.watch, &client, arguments, terminal, addresses::events).await
        }
        Command::Bgp(command) => {
            repeat::if_asked(command.is_watch(), &client, command, terminal, bgp::run).await
        }
        Command::History(arguments) => history::run(&client, arguments, terminal).await,
        Command::Rollback(arguments) => rollback::run(&client, arguments, terminal).await,
        Command::Audit(arguments) => {
            repeat::if_asked(arguments.watch, &client, arguments, terminal, history::audit).await
        }
        Command::Confirm(arguments) => confirm::run(&client, arguments, terminal).await,
        Command::Move(arguments) => move_address::run(&client, arguments, terminal).await,
        Command::Rebalance(arguments) => rebalance::run(&client, arguments, terminal).await,
        Command::Drain(arguments) => drain::drain(&client, arguments, terminal).await,
        Command::Maintenance(arguments) => drain::maintenance(&client, arguments, terminal).await,
        Command::Undrain(subject) => drain::undrain(&client, subject, terminal).await,
        Command::Export(arguments) => export::run(&client, arguments, terminal).await,
        Command::Import(arguments) => import::run(&client, arguments, terminal).await,
        Command::Doctor(arguments) => doctor::run(&client, arguments, terminal).await,
        Command::Wait(arguments) => wait::run(&client, arguments, terminal).await,
        Command::WhatIf(arguments) => what_if::run(&client, arguments, terminal).await,
        Command::Backup(arguments) => backup::run(&client, arguments, terminal).await,
        Command::Store(arguments) => Err(backup::store(&arguments)),
        Command::Demo(arguments) => Err(programs::demo(&arguments)),
        Command::Watch(arguments) => watch::run(&client, arguments, terminal).await,
        Command::SupportBundle(arguments) => support_bundle::run(&client, &global, arguments, terminal).await,
        Command::Token(command) => security::token(&client, command, terminal).await,
        Command::Role(command) => security::role(&client, command, terminal).await,
        Command::Whoami(form) => security::who_am_i(&client, form.output, terminal).await,
        Command::CanI(wish) => security::can_i(&client, wish, terminal).await,
        Command::Node(command) => security::node(&client, command, terminal).await,
        Command::Authority(command) => authority::run(&client, command, terminal).await,
        Command::Namespaces(arguments) => {
            repeat::if_asked(arguments.watch, &client, arguments, terminal, namespaces::run).await
        }
        Command::Api(command) => fields::run(&command, terminal),
        // Handled above.
        Command::Login(_) | Command::Context(_) | Command::Quickstart(_) => Ok(ExitCode::Success),
        Command::Version => version::run(&client, terminal).await,
        Command::Manual { share } => manual(&share),
        Command::Completions { shell } => {
            let script = completion::script(shell)?;
            terminal.print(&String::from_utf8_lossy(&script))?;
            Ok(ExitCode::Success)
        }
    }
}

/// Writes the manual pages and completions below a directory.
fn manual(share: &Path) -> Result<ExitCode, Failure> {
    man_pages::write(Cli::command(), man_pages::Section::User, share)?;
    man_pages::write_completions("tidegate", share, completion::script)?;
    Ok(ExitCode::Success)
}

/// Explains a DNS name, an HTTP request, a field of a kind, or the way of packets.
async fn explain_subject(
    client: &Client,
    arguments: Explain,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    if arguments.is_request() {
        return http::explain(client, arguments, terminal).await;
    }
    if arguments.is_connection() {
        return policy::explain(client, arguments, terminal).await;
    }
    if arguments.is_name() {
        return dns::explain(client, arguments, terminal).await;
    }
    if fields::is_field(&arguments.what) {
        terminal.print(&fields::explained(&arguments.what, terminal.style)?)?;
        return Ok(ExitCode::Success);
    }
    explain::run(client, arguments, terminal).await
}

/// Returns the current time of this machine.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_seconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Formats a whole response as JSON or YAML. Characters that control the display are escaped. In YAML this is
/// possible in quoted text only, so a response with such characters is formatted as JSON, which is YAML as
/// well.
fn document(value: &Value, form: Document) -> String {
    // Values parsed from JSON always serialize.
    let json = || escape_json(&format!("{value:#}"));
    let mut text = match form {
        Document::Json => json(),
        Document::Yaml => match serde_saphyr::to_string(value) {
            Ok(yaml) if !yaml.chars().any(|c| c != '\n' && is_display_control(c)) => yaml,
            Ok(_) | Err(_) => json(),
        },
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_have_no_characters_that_control_a_terminal() {
        let value = json!({ "note": "a\u{9b}31m\u{202e}b\u{1b}[0m\u{7f}", "lines": "a\nb" });
        for form in [Document::Json, Document::Yaml] {
            let text = document(&value, form);
            assert!(!text.chars().any(|c| c != '\n' && is_display_control(c)), "{text:?}");
            assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), value, "{form:?}");
        }
        let plain = document(&json!({ "lines": "a\nb" }), Document::Yaml);
        assert!(!plain.starts_with('{'), "{plain}");
    }
}
