//! `delete`: removes objects that are named, or that a manifest names.

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
            "records of addresses are kept by the server",
            "delete the Service that has the address, or change what it asks for",
        ));
    }
    if keys.iter().any(|key| key.kind == Kind::EndpointHealth) {
        return Err(Failure::usage(
            "records of health are kept by the server",
            "repair the endpoints, or take spec.healthCheck out of the Service",
        ));
    }
    let total = keys.len();
    let mut failures = Vec::new();
    for key in &keys {
        let request = Request::delete(key)
            .query("dryRun", arguments.dry_run.then_some("true"))
            .query("evict", arguments.evict.then_some("true"))
            .query("confirm", arguments.because.confirm.then_some("true"))
            .because(arguments.because.message.as_ref());
        match client.send(request).await {
            Ok(object) => {
                terminal.print(&render::outcome(&object, "deleted", arguments.dry_run, terminal.style))?;
            }
            Err(failure) if arguments.ignore_not_found && failure.problem_code() == Some("NotFound") => {}
            Err(failure) => {
                let code = failure.exit_code();
                failures.push(failure);
                // Without a server every further object would wait and fail in the same way.
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

/// The objects named as `KIND NAME…` or as `KIND/NAME…`.
fn keys(arguments: &Delete) -> Result<Vec<ObjectKey>, Failure> {
    let words = &arguments.words;
    let key = |kind: Kind, name: &str| {
        let namespace = kind.is_namespaced().then(|| arguments.namespace.clone());
        Ok(ObjectKey { kind, namespace, name: parse_name(Resource::Object(kind), name)? })
    };
    let kind = |word: &str| parse_kind(word).map_err(|message| Failure::Usage { message, hint: None });
    let (first, rest) = words.split_first().ok_or_else(|| {
        Failure::usage("nothing to delete is named", "write `delete KIND NAME…` or `delete -f FILE`")
    })?;
    if first.contains('/') {
        let split = |word: &String| match word.split_once('/') {
            Some((kind_word, name)) => key(kind(kind_word)?, name),
            None => {
                Err(Failure::usage(format!("`{word}` is not KIND/NAME"), "write all of them as KIND/NAME"))
            }
        };
        return words.iter().map(split).collect();
    }
    let kind = kind(first)?;
    if rest.is_empty() {
        let word = Resource::Object(kind).singular();
        return Err(Failure::usage(format!("which {word}?"), format!("write `delete {word} NAME…`")));
    }
    rest.iter().map(|name| key(kind, name)).collect()
}
