//! Rendering of a plan as added and removed lines. Pure.

use serde_json::Value;

use crate::{
    lenient_json::{clean, entries, items, number, text},
    terminal::style::{Style, Tone},
};

/// Maximum length of a field value on one line; longer values are split into lines.
const VALUE_CHARS_MAX: usize = 200;

/// Returns true if the plan changes anything.
#[must_use]
pub fn has_changes(plan: &Value) -> bool {
    !items(plan, "/objects").is_empty()
}

/// Renders the complete plan: changed objects, then the effects on each node.
#[must_use]
pub fn whole(plan: &Value, style: Style) -> String {
    let mut out = objects(plan, style);
    if !has_changes(plan) {
        return out;
    }
    let addresses: String =
        items(plan, "/addresses").iter().map(|address| address_lines(address, style)).collect();
    if !addresses.is_empty() {
        out += &format!("\n{}\n{addresses}", style.paint(Tone::Title, "addresses"));
    }
    out += &nodes(plan, style);
    let guards = items(plan, "/guards");
    if !guards.is_empty() {
        out += "\n";
    }
    for guard in guards {
        let guard = clean(guard.as_str().unwrap_or_default());
        out += &format!("{} {guard}\n", style.paint(Tone::Waiting, "guard:"));
    }
    let (id, expires) = (clean(&text(plan, "/id")), clean(&text(plan, "/expires")));
    out + &format!("\nplan {id}, valid until {expires}; apply it with: tidegate apply --plan {id}\n")
}

/// Renders the effects of the plan on each node, as added and removed kernel lines.
#[must_use]
pub fn nodes(plan: &Value, style: Style) -> String {
    let title = |name: &str| style.paint(Tone::Title, &format!("node/{}", clean(name)));
    let nodes = entries(plan, "/nodes");
    nodes.map(|(name, node)| format!("\n{}\n{}", title(name), node_lines(node, style))).collect()
}

/// Renders the changes of objects, field by field.
#[must_use]
pub fn objects(plan: &Value, style: Style) -> String {
    if !has_changes(plan) {
        return "Nothing would change.\n".to_owned();
    }
    items(plan, "/objects").iter().map(|object| object_lines(object, style)).collect()
}

fn object_lines(object: &Value, style: Style) -> String {
    let (name, action) = (clean(&text(object, "/object")), text(object, "/action"));
    let (sign, tone) = match action.as_str() {
        "created" => ('+', Tone::Good),
        "deleted" | "pruned" => ('-', Tone::Bad),
        _ => ('~', Tone::Waiting),
    };
    let mut out = style.paint(tone, &format!("{sign} {name} {}", clean(&action))) + "\n";
    let fields = items(object, "/fields");
    if fields.is_empty() {
        out += "    (the changed fields are secret)\n";
    }
    for field in fields {
        let pointer = clean(&text(field, "/pointer"));
        for (side, sign, tone) in [("before", '-', Tone::Bad), ("after", '+', Tone::Good)] {
            let Some(value) = field.get(side) else { continue };
            for line in value_lines(&pointer, value) {
                out += &(style.paint(tone, &format!("  {sign} {line}")) + "\n");
            }
        }
    }
    match number(object, "/omitted") {
        0 => out,
        omitted => out + &format!("    {omitted} more fields not shown\n"),
    }
}

/// Returns a JSON value as `pointer: value` on one line; an object is split into one line per field.
fn value_lines(pointer: &str, value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) if !fields.is_empty() && (pointer.is_empty() || is_long(value)) => fields
            .iter()
            .flat_map(|(name, value)| value_lines(&format!("{pointer}/{}", clean(name)), value))
            .collect(),
        Value::Array(values) if is_long(value) => values
            .iter()
            .enumerate()
            .flat_map(|(at, value)| value_lines(&format!("{pointer}/{at}"), value))
            .collect(),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {
            vec![format!("{pointer}: {}", shortened(&clean(&value.to_string())))]
        }
    }
}

fn is_long(value: &Value) -> bool {
    value.to_string().chars().count() > VALUE_CHARS_MAX
}

fn shortened(value: &str) -> String {
    match value.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

fn address_lines(address: &Value, style: Style) -> String {
    let name = clean(&text(address, "/address"));
    let mut out = String::new();
    for (side, sign, tone) in [("before", '-', Tone::Bad), ("after", '+', Tone::Good)] {
        let Some(usage) = address.get(side) else { continue };
        let list = |pointer: &str| {
            let names = items(usage, pointer).iter().filter_map(Value::as_str).map(clean);
            names.collect::<Vec<_>>().join(", ")
        };
        let mut line = format!("{sign} {name} of {}", list("/services"));
        for (pointer, word) in [("/nodes", "answered by"), ("/advertisements", "announced to routers by")] {
            match list(pointer) {
                names if names.is_empty() => {}
                names => line += &format!(", {word} {names}"),
            }
        }
        out += &format!("  {}\n", style.paint(tone, &line));
    }
    out
}

fn node_lines(node: &Value, style: Style) -> String {
    if let Some(error) = node.get("error").and_then(Value::as_str) {
        return format!("  {} {}\n", style.paint(Tone::Waiting, "not known:"), clean(error));
    }
    let mut out = String::new();
    for list in ["/preview/announcements", "/preview/kernel"] {
        let mut place = String::new();
        let mut changes: Vec<&Value> = items(node, list).iter().collect();
        // Sorted by place; within a place, removed lines come before added ones.
        changes.sort_by_key(|change| (text(change, "/place"), text(change, "/change") == "added"));
        for change in changes {
            let at = clean(&text(change, "/place"));
            if at != place {
                out += &format!("  {}\n", style.paint(Tone::Faint, &at));
                place = at;
            }
            let (sign, tone) =
                if text(change, "/change") == "added" { ('+', Tone::Good) } else { ('-', Tone::Bad) };
            let line = format!("{sign} {}", clean(&text(change, "/line")));
            out += &format!("    {}\n", style.paint(tone, &line));
        }
    }
    for (pointer, word) in [
        ("/preview/sessionResets", "BGP session restarts:"),
        ("/preview/failures", "unsupported, or not shown:"),
    ] {
        for said in items(node, pointer).iter().filter_map(Value::as_str) {
            out += &format!("  {} {}\n", style.paint(Tone::Bad, word), clean(said));
        }
    }
    if let Some(count) =
        node.pointer("/preview/connectionsAtRisk").and_then(Value::as_u64).filter(|count| *count > 0)
    {
        out += &format!("  {count} established connections would be terminated or moved\n");
    }
    match number(node, "/preview/omitted") {
        0 if out.is_empty() => "  nothing\n".to_owned(),
        0 => out,
        omitted => out + &format!("  {omitted} more lines not shown\n"),
    }
}
