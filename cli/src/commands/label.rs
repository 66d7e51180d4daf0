//! `label` and `annotate`: set and remove labels and annotations of objects.

use serde_json::{Map, Value, json};

use super::get::{object_path, parse_located};
use crate::{
    args::label::{EntryChange, Label},
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::Resource,
    views::{
        drain::entity_tag,
        render::{object_name, outcome},
    },
};

/// Part of the metadata that a command changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryField {
    /// Name of the field in the metadata.
    pub(crate) field: &'static str,
    /// Name of one entry in messages.
    pub(crate) entry: &'static str,
    /// Word printed for a changed object.
    pub(crate) outcome: &'static str,
}

/// Field of `label`.
pub(crate) const LABELS: EntryField = EntryField { field: "labels", entry: "label", outcome: "labeled" };
/// Field of `annotate`.
pub(crate) const ANNOTATIONS: EntryField =
    EntryField { field: "annotations", entry: "annotation", outcome: "annotated" };

pub(crate) async fn run(
    client: &Client,
    field: EntryField,
    arguments: Label,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let [resource @ Resource::Object(_)] = arguments.target.resources[..] else {
        return Err(Failure::usage("only objects of one stored kind can be changed", "write KIND/NAME"));
    };
    let usage = |message| Failure::Usage { message, hint: None };
    let (names, changes) = arguments.names_and_changes().map_err(usage)?;
    let mut paths = Vec::new();
    for name in names {
        let (namespace, name) = parse_located(resource, name, &arguments.namespace)?;
        paths.push(object_path(resource, &namespace, &name));
    }
    let mut objects = Vec::new();
    for path in &paths {
        let object = client.send(Request::get(path.clone())).await?;
        if let (false, Some((key, value))) = (arguments.overwrite, replaced(&object, field, &changes)) {
            return Err(Failure::usage(
                format!("{} has the {} {key}={value}", object_name(&object), field.entry),
                "use --overwrite to replace it",
            ));
        }
        objects.push(object);
    }
    for (path, object) in paths.into_iter().zip(&objects) {
        if !is_change(object, field, &changes) {
            terminal.print(&outcome(object, "unchanged", arguments.dry_run, terminal.style))?;
            continue;
        }
        let entries: Map<String, Value> =
            changes.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let request = Request::patch(path)
            .json(&json!({ "metadata": { field.field: entries } }))
            .if_match(entity_tag(object))
            .query("dryRun", arguments.dry_run.then_some("true"))
            .query("confirm", arguments.because.confirm.then_some("true"))
            .message(arguments.because.message.clone());
        let changed = client.send(request).await?;
        terminal.print(&outcome(&changed, field.outcome, arguments.dry_run, terminal.style))?;
    }
    Ok(ExitCode::Success)
}

fn current<'a>(object: &'a Value, field: EntryField, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get(field.field)?.get(key)?.as_str()
}

/// Returns the first entry of an object that a change would replace, with its value.
fn replaced<'a>(
    object: &'a Value,
    field: EntryField,
    changes: &'a [EntryChange],
) -> Option<(&'a str, &'a str)> {
    changes.iter().find_map(|(key, value)| {
        let wanted = value.as_deref()?;
        current(object, field, key).filter(|value| *value != wanted).map(|value| (key.as_str(), value))
    })
}

fn is_change(object: &Value, field: EntryField, changes: &[EntryChange]) -> bool {
    changes.iter().any(|(key, value)| current(object, field, key) != value.as_deref())
}
