//! `delete`: removes objects given by name or by manifest.

use model::kinds::resource::{Kind, ObjectKey};

use super::get::parse_name;
use crate::{
    args::Delete,
    client::{Client, Request},
    error::{ExitCode, Failure},
    manifest::Manifest,
    output::Terminal,
    resource::{Resource, parse_kind},
    views::render,
};

pub(crate) async fn run(
    client: &Client,
    arguments: Delete,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let keys = match &arguments.filename {
        Some(path) => Manifest::read(path)?.keys_in_reverse()?,
        None => keys(&arguments)?,
    };
    if keys.iter().any(|key| key.kind == Kind::Address) {
        return Err(Failure::usage(
            "Address objects are managed by the server",
            "delete the Service that holds the address, or change the addresses it requests",
        ));
    }
    if keys.iter().any(|key| key.kind == Kind::EndpointHealth) {
        return Err(Failure::usage(
            "EndpointHealth objects are managed by the server",
            "repair the endpoints, or remove spec.healthCheck from the Service",
        ));
    }
    let total = keys.len();
    let mut failures = Vec::new();
    for key in &keys {
        let request = Request::delete(key.path())
            .query("dryRun", arguments.dry_run.then_some("true"))
            .query("evict", arguments.evict.then_some("true"))
            .query("confirm", arguments.because.confirm.then_some("true"))
            .message(arguments.because.message.clone());
        match client.send(request).await {
            Ok(object) => {
                terminal.print(&render::outcome(&object, "deleted", arguments.dry_run, terminal.style))?;
            }
            Err(failure) if arguments.ignore_not_found && failure.problem_code() == Some("NotFound") => {}
            Err(failure) => {
                let code = failure.exit_code();
                failures.push(failure);
                // If the server is unreachable, every further request would wait and fail in the same way.
                if code == ExitCode::Unreachable {
                    break;
                }
            }
        }
    }
    finish(failures, total, terminal)
}

fn finish(mut failures: Vec<Failure>, total: usize, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    if total == 1 || failures.is_empty() {
        return failures.pop().map_or(Ok(ExitCode::Success), Err);
    }
    let code = failures.iter().map(Failure::exit_code).max().unwrap_or(ExitCode::Failed);
    for failure in &failures {
        terminal.report(failure);
    }
    Err(Failure::Some { failed: failures.len(), total, code })
}

/// Parses the arguments `KIND NAME…` or `KIND/NAME…` and returns the keys of the objects to delete.
fn keys(arguments: &Delete) -> Result<Vec<ObjectKey>, Failure> {
    let words = &arguments.words;
    let key = |kind: Kind, name: &str| {
        let namespace = kind.is_namespaced().then(|| arguments.namespace.clone());
        Ok(ObjectKey { kind, namespace, name: parse_name(Resource::Object(kind), name)? })
    };
    let kind = |word: &str| parse_kind(word).map_err(|message| Failure::Usage { message, hint: None });
    let (first, rest) = words.split_first().ok_or_else(|| {
        Failure::usage("no object to delete was given", "write `delete KIND NAME…` or `delete -f FILE`")
    })?;
    if first.contains('/') {
        let split = |word: &String| match word.split_once('/') {
            Some((kind_word, name)) => key(kind(kind_word)?, name),
            None => {
                Err(Failure::usage(format!("`{word}` is not KIND/NAME"), "write all objects as KIND/NAME"))
            }
        };
        return words.iter().map(split).collect();
    }
    let kind = kind(first)?;
    if rest.is_empty() {
        let word = Resource::Object(kind).singular();
        return Err(Failure::usage(format!("which {word}?"), format!("the name of the {word} is missing")));
    }
    rest.iter().map(|name| key(kind, name)).collect()
}
