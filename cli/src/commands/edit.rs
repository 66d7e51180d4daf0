//! `edit`: opens an object in the user's editor and replaces it by the edited text.
//!
//! ```text
//! read ──▶ editor ──▶ replace, if nobody changed the object since ──▶ done
//!            ▲                │ rejected
//!            └── the error is in comments above the text
//! ```

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use translate::parse::{self, Language};

use super::{
    document,
    get::{object_path, parse_located},
    patch::one_object,
};
use crate::{
    args::{Document, patch::Edit},
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    terminal::style::Style,
    views::{
        drain::entity_tag,
        render::{self, field_path, object_name, outcome},
    },
};

/// Editor that is used without the variables VISUAL and EDITOR.
const EDITOR_DEFAULT: &str = "vi";
/// Maximum number of times that the editor is opened.
const ROUNDS_MAX: usize = 100;
/// Maximum size of the edited file in bytes.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Maximum number of fields named that somebody else has changed.
const FIELDS_NAMED_MAX: usize = 20;
/// HTTP status of a write whose precondition failed, because the object was changed.
const PRECONDITION_FAILED: u16 = 412;
/// Fields of the metadata that the server sets.
const SERVER_SET: [&str; 7] =
    ["uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "applySet", "applySetLimited"];

pub(crate) async fn run(
    client: &Client,
    arguments: Edit,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let (resource, name) = one_object(&arguments.target, arguments.name.as_deref())?;
    let (namespace, name) = parse_located(resource, name, &arguments.namespace)?;
    let path = object_path(resource, &namespace, &name);
    let mut object = client.send(Request::get(path.clone())).await?;
    let original = document(&editable(&object), Document::Yaml);
    let file = EditedFile::create()?;
    let (mut text, mut notes) = (original.clone(), String::new());
    let mut rejected: Option<(String, Failure)> = None;
    for _ in 0..ROUNDS_MAX {
        text = file.edit(&format!("{}{}{text}", introduction(&object), comment(&notes)))?;
        if text.trim().is_empty() || text == original {
            terminal.note("nothing was changed");
            return Ok(ExitCode::Success);
        }
        if let Some((_, failure)) = rejected.take_if(|(before, _)| *before == text) {
            terminal.note(&format!("not changed after the error; the edited text is in {}", file.keep()));
            return Err(failure);
        }
        let value = match only_object(&text) {
            Ok(value) => value,
            Err(error) => {
                notes = format!("error: {error}");
                rejected = Some((text.clone(), Failure::Usage { message: error, hint: None }));
                continue;
            }
        };
        let request = Request::put(path.clone())
            .json(&value)
            .if_match(entity_tag(&object))
            .query("confirm", arguments.because.confirm.then_some("true"))
            .message(arguments.because.message.clone());
        match client.send(request).await {
            Ok(object) => {
                terminal.print(&outcome(&object, "edited", false, terminal.style))?;
                return Ok(ExitCode::Success);
            }
            Err(Failure::Refused(problem)) if problem.rejection.status == PRECONDITION_FAILED => {
                let newest = client.send(Request::get(path.clone())).await?;
                notes = conflict(&object, &newest);
                object = newest;
            }
            Err(failure @ Failure::Refused(_)) => {
                notes = render::failure(&failure, Style::PLAIN);
                rejected = Some((text.clone(), failure));
            }
            Err(failure) => {
                terminal.note(&format!("the edited text is in {}", file.keep()));
                return Err(failure);
            }
        }
    }
    Err(Failure::usage(format!("not accepted after {ROUNDS_MAX} attempts"), "use `tidegate apply -f FILE`"))
}

fn introduction(object: &Value) -> String {
    format!(
        "# {}. Lines that begin with # are ignored. An empty file, or one without a change, cancels.\n",
        object_name(object)
    )
}

fn comment(notes: &str) -> String {
    notes.lines().map(|line| format!("# {line}\n")).collect()
}

/// Returns the object without its status and the fields that the server sets.
fn editable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        for field in SERVER_SET {
            metadata.remove(field);
        }
    }
    object
}

fn only_object(text: &str) -> Result<Value, String> {
    let mut objects = parse::objects(Language::Yaml, text.as_bytes())?;
    match (objects.pop(), objects.is_empty()) {
        (Some(object), true) => Ok(object),
        (_, _) => Err("the file must contain one object".to_owned()),
    }
}

/// Describes the fields that somebody else changed while the object was edited.
fn conflict(before: &Value, after: &Value) -> String {
    let mut fields = Vec::new();
    differences(&editable(before), &editable(after), String::new(), &mut fields);
    let more = fields.len().saturating_sub(FIELDS_NAMED_MAX);
    let named: Vec<String> = fields
        .iter()
        .take(FIELDS_NAMED_MAX)
        .map(|(pointer, value)| format!("  {} is now {value}\n", field_path(pointer)))
        .collect();
    let more = if more == 0 { String::new() } else { format!("  and {more} more fields\n") };
    format!(
        "error: somebody else changed the object meanwhile. Save to replace it by the text below. Changed fields:\n{}{more}",
        named.concat()
    )
}

fn differences(before: &Value, after: &Value, pointer: String, fields: &mut Vec<(String, Value)>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                let pointer = format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
                let value =
                    |fields: &serde_json::Map<String, Value>| fields.get(key).cloned().unwrap_or_default();
                differences(&value(before), &value(after), pointer, fields);
            }
        }
        (before, after) if before != after => fields.push((pointer, after.clone())),
        (_, _) => {}
    }
}

/// Temporary file for the editor, readable by the user only. Removed when dropped, unless it is kept.
struct EditedFile {
    path: PathBuf,
    is_kept: std::cell::Cell<bool>,
}

impl EditedFile {
    fn create() -> Result<Self, Failure> {
        let directory = std::env::temp_dir();
        let mut failure = None;
        for number in 0..100 {
            let path = directory.join(format!("tidegate-edit-{}-{number}.yaml", std::process::id()));
            match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(_) => return Ok(Self { path, is_kept: std::cell::Cell::new(false) }),
                Err(error) => failure = Some(Failure::File { path, cause: error.to_string() }),
            }
        }
        Err(failure.unwrap_or_else(|| Failure::usage("no temporary file can be created", "set TMPDIR")))
    }

    /// Writes `text`, runs the editor and returns the edited text without comment lines.
    fn edit(&self, text: &str) -> Result<String, Failure> {
        let failed =
            |error: std::io::Error| Failure::File { path: self.path.clone(), cause: error.to_string() };
        // Truncates the file that this process created, so that its mode stays.
        let mut file = fs::OpenOptions::new().write(true).truncate(true).open(&self.path).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        drop(file);
        run_editor(&self.path)?;
        let mut bytes = Vec::new();
        let file = fs::File::open(&self.path).map_err(failed)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(Failure::File { path: self.path.clone(), cause: "the file is too large".to_owned() });
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| Failure::File { path: self.path.clone(), cause: "must be UTF-8 text".to_owned() })?;
        Ok(text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect())
    }

    /// Keeps the file after the command and returns its path.
    fn keep(&self) -> String {
        self.is_kept.set(true);
        self.path.display().to_string()
    }
}

impl Drop for EditedFile {
    fn drop(&mut self) {
        if !self.is_kept.get() {
            let _removed = fs::remove_file(&self.path);
        }
    }
}

/// Runs the editor of the user on a file and waits until it ends.
fn run_editor(path: &Path) -> Result<(), Failure> {
    let variable = |name| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
    let editor =
        variable("VISUAL").or_else(|| variable("EDITOR")).unwrap_or_else(|| EDITOR_DEFAULT.to_owned());
    // The variable may contain options, so a shell splits it.
    let status = Command::new("sh").args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(path).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::usage(
            format!("the editor `{editor}` failed ({status}); nothing was changed"),
            "set EDITOR to another editor",
        )),
        Err(error) => Err(Failure::usage(
            format!("cannot run the editor `{editor}`: {error}"),
            "set EDITOR to another editor",
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conflict_names_the_fields_of_somebody_else() {
        let before = json!({ "spec": { "ports": [{ "port": 80 }], "a/b": 1 }, "status": { "x": 1 } });
        let after =
            json!({ "spec": { "ports": [{ "port": 81 }], "type": "ClusterIP" }, "status": { "x": 2 } });
        let text = conflict(&before, &after);
        assert!(
            text.contains(r#"spec.ports is now [{"port":81}]"#)
                && text.contains(r#"spec.type is now "ClusterIP""#)
        );
        assert!(text.contains("spec[\"a/b\"] is now null") && !text.contains("status"), "{text}");
    }

    #[test]
    fn fields_of_the_server_are_not_edited() {
        let object = json!({ "metadata": { "name": "web", "uid": "u", "resourceVersion": "7" }, "status": {}, "spec": {} });
        assert_eq!(editable(&object), json!({ "metadata": { "name": "web" }, "spec": {} }));
        assert!(only_object("a: 1\n---\nb: 2\n").is_err() && only_object("").is_err());
    }
}
