//! `api`: documentation of kinds and their fields, from the API description of this version. Sends no request.

use serde_json::Value;

use crate::{
    args::api::Api,
    error::{ExitCode, Failure},
    output::Terminal,
    resource::{self, Resource},
    terminal::{
        style::Style,
        table::{Cell, Table},
    },
};

/// API description of this version.
const DESCRIPTION: &str = include_str!("../../../openapi/tidegate-v1.json");
/// Maximum number of fields in a path.
const DEPTH_MAX: usize = 32;
/// Maximum number of references that are followed from one field.
const REFERENCES_MAX: usize = 16;

pub(crate) fn run(command: &Api, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let text = match command {
        Api::Resources => resources(terminal.style),
        Api::Explain { field } => explained(field, terminal.style)?,
    };
    terminal.print(&text)?;
    Ok(ExitCode::Success)
}

/// Returns true if the subject of `explain` is a field, such as `svc.spec.ports`, and no Service or address.
pub(crate) fn is_field(subject: &str) -> bool {
    subject.split_once('.').is_some_and(|(kind, rest)| kind.parse::<Resource>().is_ok() && !rest.is_empty())
}

/// Describes a field, such as `svc.spec.ports`, and the fields in it.
pub(crate) fn explained(path: &str, style: Style) -> Result<String, Failure> {
    let document: Value = serde_json::from_str(DESCRIPTION).map_err(|error| {
        Failure::usage(format!("the API description is invalid: {error}"), "use another version")
    })?;
    text(&document, path, style)
        .map_err(|message| Failure::usage(message, "`tidegate api resources` lists the kinds"))
}

fn resources(style: Style) -> String {
    let mut table = Table::new(vec!["NAME", "SHORTNAMES", "NAMESPACED", "KIND", "WRITTEN BY"]);
    for (resource, [plural, _, short]) in resource::words() {
        let (kind, writer) = match resource {
            Resource::Object(kind) if kind.is_kept_by_server() => (kind.as_str(), "server"),
            Resource::Object(kind) => (kind.as_str(), "users"),
            Resource::Endpoints => ("-", "server"),
        };
        let namespaced = if resource.is_namespaced() { "true" } else { "false" };
        table.push([*plural, *short, namespaced, kind, writer].into_iter().map(Cell::from).collect());
    }
    table.render(style)
}

fn text(document: &Value, path: &str, style: Style) -> Result<String, String> {
    let mut names = path.split('.').map(|name| name.split_once('[').map_or(name, |(name, _)| name));
    let kind = match names.next().unwrap_or_default().parse::<Resource>()? {
        Resource::Object(kind) => kind.as_str(),
        Resource::Endpoints => return Err("endpoints are computed and have no fields to write".to_owned()),
    };
    let root =
        document.pointer(&format!("/components/schemas/{kind}")).ok_or("the kind has no description")?;
    let (mut field, mut place) = (Field::of(document, root), kind.to_owned());
    for name in names.take(DEPTH_MAX) {
        let found = field.entries.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let Some((known, schema)) = found else {
            let known: Vec<&str> = field.entries.iter().map(|(name, _)| name.as_str()).collect();
            return Err(if known.is_empty() {
                format!("{place} has no fields")
            } else {
                format!("{place} has no field `{name}`; its fields are {}", known.join(", "))
            });
        };
        place = format!("{place}.{known}");
        field = Field::of(document, schema);
    }
    let mut text = format!("{place} <{}>\n\n{}\n", field.type_name, indented(&field.description));
    let mut table = Table::new(vec!["FIELD", "TYPE", "DESCRIPTION"]);
    for (name, schema) in &field.entries {
        let inner = Field::of(document, schema);
        let required = if field.required.contains(name) { ", required" } else { "" };
        let kind = format!("{}{required}", inner.type_name);
        table.push([name.clone(), kind, first_sentence(&inner.description)].iter().map(Cell::from).collect());
    }
    if !table.is_empty() {
        text.push_str(&format!("\n{}", table.render(style)));
    }
    Ok(text)
}

/// Field of an object, resolved as far as its own fields.
struct Field {
    /// Type, such as `string` or `list of ServicePort`.
    type_name: String,
    description: String,
    /// Names and schemas of the fields in the field, or in its list entries.
    entries: Vec<(String, Value)>,
    required: Vec<String>,
}

impl Field {
    fn of(document: &Value, schema: &Value) -> Self {
        let mut descriptions = Vec::new();
        let (mut schema, mut name, mut is_list) = (schema, None::<String>, false);
        for _ in 0..REFERENCES_MAX {
            descriptions.extend(schema.get("description").and_then(Value::as_str));
            let next = if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
                name = reference.rsplit_once('/').map(|(_, name)| name.to_owned());
                document.pointer(reference.trim_start_matches('#'))
            } else if let Some(items) = schema.get("items") {
                is_list = true;
                name = None;
                Some(items)
            } else {
                ["oneOf", "allOf", "anyOf"].iter().find_map(|word| only_choice(schema.get(word)?))
            };
            let Some(next) = next else { break };
            schema = next;
        }
        let words = |value: &Value| {
            let types = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            types.iter().find_map(|word| word.as_str().filter(|word| *word != "null")).map(str::to_owned)
        };
        let own = schema.get("type").and_then(words).unwrap_or_else(|| "value".to_owned());
        let own = match (schema.get("enum").and_then(Value::as_array), own.as_str(), name) {
            (Some(values), _, _) => values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
            (None, "object", Some(name)) => name,
            (None, "object", None) if schema.get("properties").is_none() => "map".to_owned(),
            (None, _, _) => own.clone(),
        };
        let entries = schema.get("properties").and_then(Value::as_object);
        let entries = entries
            .map(|fields| fields.iter().map(|(name, schema)| (name.clone(), schema.clone())).collect());
        let required = schema.get("required").and_then(Value::as_array);
        let required =
            required.map(|names| names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect());
        Self {
            type_name: if is_list { format!("list of {own}") } else { own },
            description: descriptions.first().map(|text| text.replace('\n', " ")).unwrap_or_default(),
            entries: entries.unwrap_or_default(),
            required: required.unwrap_or_default(),
        }
    }
}

/// Returns the only choice that is not null; `None` if there are several.
fn only_choice(choices: &Value) -> Option<&Value> {
    let mut choices =
        choices.as_array()?.iter().filter(|choice| choice.get("type").is_none_or(|word| word != "null"));
    let first = choices.next()?;
    choices.next().is_none().then_some(first)
}

fn first_sentence(text: &str) -> String {
    text.split_once(". ").map_or_else(|| text.to_owned(), |(first, _)| format!("{first}."))
}

/// Wraps a text at about 100 characters, with two blanks before each line.
fn indented(text: &str) -> String {
    let mut lines = vec![String::from(" ")];
    for word in text.split_whitespace() {
        if let Some(line) = lines.last_mut()
            && line.len() + word.len() < 100
        {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use model::kinds::resource::Kind;

    use super::*;

    #[test]
    fn fields_of_every_kind_are_described() {
        for kind in Kind::ALL {
            let text = explained(&format!("{}.spec", kind.as_str()), Style::PLAIN)
                .unwrap_or_else(|e| panic!("{kind}: {e}"));
            assert!(text.contains("DESCRIPTION"), "{kind}: {text}");
        }
        let ports = explained("svc.spec.ports", Style::PLAIN).unwrap();
        assert!(ports.starts_with("Service.spec.ports <list of ServicePort>\n"), "{ports}");
        assert!(ports.lines().any(|line| line.starts_with("targetPort")), "{ports}");
        assert!(ports.lines().any(|line| line.starts_with("port") && line.contains("required")), "{ports}");
        assert!(explained("svc.spec.ports[0].protocol", Style::PLAIN).unwrap().contains("TCP|UDP|SCTP"));
    }

    #[test]
    fn unknown_fields_are_answered_with_the_known_ones() {
        let error = explained("svc.spec.portz", Style::PLAIN).unwrap_err().to_string();
        assert!(error.contains("no field `portz`") && error.contains("clusterIP, "), "{error}");
        for bad in ["", "pods.spec", "svc.spec.type.x", "ep.ports", "svc."] {
            assert!(explained(bad, Style::PLAIN).is_err(), "{bad}");
        }
        assert!(is_field("svc.spec") && !is_field("svc") && !is_field("10.0.0.1") && !is_field("web.spec"));
    }
}
