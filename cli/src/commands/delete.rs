//! `delete`: removes objects given by name or by manifest, several of them in one write.

use std::collections::BTreeSet;

use model::{
    admission::admit::OPERATIONS_MAX,
    kinds::resource::{Kind, ObjectKey},
};
use serde_json::{Value, json};
use translate::parse::Language;

use super::{
    apply::print_outcomes,
    get::{collection_path, parse_located, parse_name},
};
use crate::{
    args::delete::Delete,
    client::{Client, Request},
    error::{ExitCode, Failure},
    manifest::Manifest,
    output::Terminal,
    resource::{Resource, Target, parse_kind},
    views::{
        render,
        typed::{ObjectHeader, decode_items, documents::ApplyResult},
    },
};

/// Maximum number of missing objects that a command names.
const MISSING_NAMED_MAX: usize = 20;
/// Maximum number of deleted Services whose EndpointSets a command looks up, one request each.
const SERVICES_LOOKED_AT_MAX: usize = 20;

pub(crate) async fn run(
    client: &Client,
    arguments: Delete,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let keys = match &arguments.filename {
        Some(path) => Manifest::load(path, client.timeout()).await?.keys_in_reverse()?,
        None if arguments.all || arguments.selector.is_some() => {
            let keys = selected(client, &arguments).await?;
            if keys.is_empty() {
                terminal.note("no object matches: nothing is deleted");
                return Ok(ExitCode::Success);
            }
            keys
        }
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
    let code = match &keys[..] {
        [only] => one(client, &arguments, only, terminal).await?,
        several => many(client, &arguments, several, terminal).await?,
    };
    if !arguments.dry_run && arguments.filename.is_none() {
        name_remaining_endpoints(client, &keys, terminal).await;
    }
    Ok(code)
}

/// Names the EndpointSets that remain after their Services were deleted and have the names of these, as those of
/// `create service` do. A lookup that fails is ignored, because the deletion succeeded.
async fn name_remaining_endpoints(client: &Client, deleted: &[ObjectKey], terminal: &mut Terminal) {
    let sets = deleted.iter().filter(|key| key.kind == Kind::Service);
    let sets = sets.map(|key| ObjectKey { kind: Kind::EndpointSet, ..key.clone() });
    let remaining = sets.filter(|set| !deleted.contains(set)).take(SERVICES_LOOKED_AT_MAX);
    for set in remaining.collect::<Vec<_>>() {
        let Ok(object) = client.send(Request::get(set.path())).await else { continue };
        if object.pointer("/spec/service").and_then(Value::as_str) != Some(set.name.as_str()) {
            continue;
        }
        let namespace = set.namespace.as_ref().filter(|namespace| namespace.as_str() != "default");
        let namespace = namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
        let name = &set.name;
        terminal.note(&format!(
            "endpointset/{name}, which has the endpoints of the Service, remains: `tidegate delete eps {name}{namespace}` deletes it"
        ));
    }
}

async fn one(
    client: &Client,
    arguments: &Delete,
    key: &ObjectKey,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    match client.send(with_options(Request::delete(key.path()), arguments)).await {
        Ok(object) => {
            terminal.print(&render::outcome(&object, "deleted", arguments.dry_run, terminal.style))?;
        }
        Err(failure) if arguments.ignore_not_found && failure.problem_code() == Some("NotFound") => {}
        Err(failure) => return Err(failure),
    }
    Ok(ExitCode::Success)
}

/// Deletes objects in requests of at most [`OPERATIONS_MAX`], so that the guards of the server judge them together.
/// Objects that do not exist do not prevent the deletion of the others.
async fn many(
    client: &Client,
    arguments: &Delete,
    keys: &[ObjectKey],
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let distinct: BTreeSet<&ObjectKey> = keys.iter().collect();
    let distinct: Vec<&ObjectKey> = distinct.into_iter().collect();
    let mut missing: Vec<&ObjectKey> = Vec::new();
    for part in distinct.chunks(OPERATIONS_MAX) {
        let references: Vec<Value> = part.iter().map(|key| reference(key)).collect();
        let request = Request::post("/v1/delete")
            .body(Language::Json.media_type(), Value::from(references).to_string())
            .query("ignoreNotFound", Some("true"));
        let answer = client.send(with_options(request, arguments)).await?;
        print_outcomes(&answer, arguments.dry_run, terminal)?;
        let results: Vec<ApplyResult> = decode_items(&answer, "/results");
        let deleted: BTreeSet<_> = results
            .iter()
            .map(|result| {
                let ObjectHeader { kind, metadata } = ObjectHeader::of(&result.object);
                (kind, metadata.namespace, metadata.name)
            })
            .collect();
        missing.extend(part.iter().copied().filter(|key| {
            let namespace = key.namespace.as_ref().map_or_else(String::new, ToString::to_string);
            !deleted.contains(&(key.kind.to_string(), namespace, key.name.to_string()))
        }));
    }
    if missing.is_empty() || arguments.ignore_not_found {
        return Ok(ExitCode::Success);
    }
    for key in missing.iter().take(MISSING_NAMED_MAX) {
        terminal.note(&format!("{key} does not exist"));
    }
    Err(Failure::Some { failed: missing.len(), total: distinct.len(), code: ExitCode::Failed })
}

/// Lists the keys of the objects that `-l` or `--all` selects. At most [`OPERATIONS_MAX`], so that one write deletes them
/// and the guards of the server judge it as a whole.
async fn selected(client: &Client, arguments: &Delete) -> Result<Vec<ObjectKey>, Failure> {
    let [kinds] = &arguments.words[..] else {
        return Err(Failure::usage(
            "-l and --all select the objects, so names are not given",
            "write `delete KIND -l SELECTOR` or `delete KIND --all`",
        ));
    };
    let target: Target = kinds.parse().map_err(|message| Failure::Usage { message, hint: None })?;
    if target.name.is_some() {
        return Err(Failure::usage("-l and --all select the objects", "omit the name"));
    }
    let mut keys = Vec::new();
    for resource in target.resources {
        let Resource::Object(kind) = resource else {
            return Err(Failure::usage(
                "endpoints are computed",
                "delete EndpointSets, Workloads or Services",
            ));
        };
        let listing = client.list(|| {
            Request::get(collection_path(resource, Some(&arguments.namespace)))
                .query("labelSelector", arguments.selector.as_ref().map(ToString::to_string))
        });
        for header in decode_items::<ObjectHeader>(&listing.await?.envelope, "/items") {
            let namespace = kind.is_namespaced().then(|| arguments.namespace.clone());
            keys.push(ObjectKey { kind, namespace, name: parse_name(resource, &header.metadata.name)? });
        }
    }
    if keys.len() > OPERATIONS_MAX {
        return Err(Failure::usage(
            format!("{} objects match, and one write deletes at most {OPERATIONS_MAX}", keys.len()),
            "select fewer with -l",
        ));
    }
    Ok(keys)
}

fn reference(key: &ObjectKey) -> Value {
    let mut reference = json!({ "kind": key.kind.as_str(), "name": key.name.as_str() });
    if let Some(namespace) = &key.namespace {
        reference["namespace"] = json!(namespace.as_str());
    }
    reference
}

fn with_options(request: Request, arguments: &Delete) -> Request {
    request
        .query("dryRun", arguments.dry_run.then_some("true"))
        .query("evict", arguments.evict.then_some("true"))
        .query("confirm", arguments.because.confirm.then_some("true"))
        .message(arguments.because.message.clone())
}

/// Parses the arguments `KIND NAME…` or `KIND/NAME…` and returns the keys of the objects to delete.
fn keys(arguments: &Delete) -> Result<Vec<ObjectKey>, Failure> {
    let words = &arguments.words;
    let key = |kind: Kind, name: &str| {
        let (namespace, name) = parse_located(Resource::Object(kind), name, &arguments.namespace)?;
        Ok(ObjectKey { kind, namespace: kind.is_namespaced().then_some(namespace), name })
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
    if first.contains(',') && !rest.is_empty() {
        let kinds: Vec<Kind> = first.split(',').map(kind).collect::<Result<_, _>>()?;
        let all = kinds.into_iter().flat_map(|kind| rest.iter().map(move |name| key(kind, name)));
        return all.collect();
    }
    let kind = kind(first)?;
    if rest.is_empty() {
        let word = Resource::Object(kind).singular();
        return Err(Failure::usage(format!("which {word}?"), format!("the name of the {word} is missing")));
    }
    rest.iter().map(|name| key(kind, name)).collect()
}
