//! Asks the control server for the words that complete an argument.

use std::{
    ffi::{OsStr, OsString},
    time::Duration,
};

use clap_complete::CompletionCandidate;
use model::{
    kinds::resource::Kind,
    primitives::name::{Name, Namespace},
};
use serde_json::Value;

use super::{WordType, words};
use crate::{
    Resource,
    args::{Cli, Command, context, settings},
    client::{Client, Request},
    commands::collection_path,
    connection::Connection,
    resource,
    terminal::clean,
    views::typed::{ObjectHeader, decode_items},
};

/// Maximum time to wait for the server.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of objects that are requested.
const OBJECTS_MAX: &str = "500";

/// Returns the words that may complete `current`, which begin with it. `typed` is the whole command line.
pub(super) fn candidates(wanted: WordType, current: &OsStr, typed: &[OsString]) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let found = match wanted {
        WordType::Kinds => kinds(current, typed),
        WordType::NamesOfKind => {
            words::kind(typed).map_or_else(Vec::new, |resource| names(resource, current, typed))
        }
        WordType::Names(resource) => names(resource, current, typed),
        WordType::Namespaces => namespaces(typed),
        WordType::Contexts => contexts(),
    };
    let mut found: Vec<_> = found.into_iter().filter(|word| word.starts_with(current)).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(CompletionCandidate::new).collect()
}

/// Returns the plural name of each kind; after a slash, the names of the objects of the kind before it.
fn kinds(current: &str, typed: &[OsString]) -> Vec<String> {
    match current.split_once('/') {
        Some((kind, name)) => {
            let Ok(resource) = kind.parse() else { return Vec::new() };
            names(resource, name, typed).into_iter().map(|name| format!("{kind}/{name}")).collect()
        }
        None => {
            // One name for each kind; the others are shorter to type than to choose.
            resource::words().iter().map(|(_, [plural, ..])| (*plural).to_owned()).collect()
        }
    }
}

/// Returns the names of the objects of one kind; with their namespace if `current` begins with one.
fn names(resource: Resource, current: &str, typed: &[OsString]) -> Vec<String> {
    let (prefix, namespace) = match current.split_once('/').filter(|_| resource.is_namespaced()) {
        Some((namespace, _)) => (format!("{namespace}/"), Namespace::parse(namespace).ok()),
        None => (String::new(), words::namespace(typed).or_else(|| namespace_default(typed))),
    };
    let Some(namespace) = namespace else { return Vec::new() };
    // Each Service has endpoints, under its name.
    let stored = match resource {
        Resource::Endpoints => Resource::Object(Kind::Service),
        Resource::Object(_) => resource,
    };
    let path = collection_path(stored, Some(&namespace));
    let request = Request::get(path).query("limit", Some(OBJECTS_MAX.to_owned()));
    let listing = ask(request, typed).unwrap_or_default();
    let headers = decode_items::<ObjectHeader>(&listing, "/items");
    headers.into_iter().map(|header| prefix.clone() + &word_of(stored, &header.metadata.name)).collect()
}

/// Returns an object's name as a user types it: the record of an address is named by the address.
fn word_of(resource: Resource, name: &str) -> String {
    let address = (resource == Resource::Object(Kind::Address))
        .then(|| model::kinds::address::address_of(name).map(|address| address.to_string()))
        .flatten();
    address.unwrap_or_else(|| clean(name))
}

/// Returns the namespaces that contain objects.
fn namespaces(typed: &[OsString]) -> Vec<String> {
    let listing = ask(Request::get("/v1/namespaces"), typed).unwrap_or_default();
    let items = listing["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["name"].as_str().map(clean)).collect()
}

/// Returns the names of the stored connections.
fn contexts() -> Vec<String> {
    let files = context::directory().and_then(|directory| std::fs::read_dir(directory.join("contexts")).ok());
    let name = |file: std::fs::DirEntry| {
        let text = file.file_name().into_string().ok()?;
        let name = text.strip_suffix(".toml")?;
        Name::parse(name).ok().map(|name| name.to_string())
    };
    files.into_iter().flatten().filter_map(|file| name(file.ok()?)).collect()
}

/// Returns the namespace of commands without `-n`: that of the variable or of the context.
fn namespace_default(typed: &[OsString]) -> Option<Namespace> {
    let Command::Get(get) = parsed(typed, &["get", "services"])?.command else { return None };
    Some(get.namespace)
}

/// Parses a command with the connection options that are typed already.
fn parsed(typed: &[OsString], command: &[&str]) -> Option<Cli> {
    let mut line = vec![OsString::from("tidegate")];
    line.extend(words::connection(typed));
    line.extend(command.iter().map(OsString::from));
    settings::parse(&line).ok()
}

/// Sends a request over the connection that the command line, the variables and the settings file select. Returns `None`
/// on any error: a shell has no place for messages.
fn ask(request: Request, typed: &[OsString]) -> Option<Value> {
    let global = parsed(typed, &["version"])?.global;
    let connection = Connection::of(&global).ok()?;
    let client = Client::new(connection, TIMEOUT, None, false).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, client.send(request)).await }).ok()?.ok()
}
