//! Rendering of a plan as added and removed lines. Pure functions.

use model::{
    cluster::{change::Action, history::FieldChange},
    wire::plan::{AddressPlan, AddressUse, LineChange, LineFate, NodePlan, Preview},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    terminal::{
        clean,
        style::{Style, Tone},
    },
    views::typed::{
        UNREADABLE, Word, decode,
        documents::{PlanHead, PlannedObject},
        items, named_rows, rows, word,
    },
};

/// Maximum number of characters of a field value on one line. Longer objects and arrays are split into lines,
/// other values are cut.
const VALUE_CHARS_MAX: usize = 200;

/// Returns true if the plan changes anything.
#[must_use]
pub fn has_changes(plan: &Value) -> bool {
    !items(plan, "/objects").is_empty()
}

/// Renders the complete plan: changed objects and addresses, the effects on each node, and exceeded limits.
#[must_use]
pub fn whole(plan: &Value, style: Style) -> String {
    let mut out = objects(plan, style);
    if !has_changes(plan) {
        return out;
    }
    let addresses: String =
        rows(plan, "/addresses").map(|address| address_lines(address.as_ref(), style)).collect();
    if !addresses.is_empty() {
        out += &format!("\n{}\n{addresses}", style.paint(Tone::Title, "addresses"));
    }
    out += &nodes(plan, style);
    let PlanHead { id, expires, guards } = decode(plan).unwrap_or_default();
    if !guards.is_empty() {
        out += "\n";
    }
    for guard in guards {
        out += &format!("{} {}\n", style.paint(Tone::Waiting, "guard:"), clean(&guard));
    }
    let (id, expires) = (clean(&id), word(&expires));
    out + &format!("\nplan {id}, valid until {expires}; apply it with: tidegate apply --plan {id}\n")
}

/// Renders the effects of the plan on each node, as the lines that would be added to and removed from the
/// node's kernel state.
#[must_use]
pub fn nodes(plan: &Value, style: Style) -> String {
    let title = |name: &str| style.paint(Tone::Title, &format!("node/{}", clean(name)));
    let nodes = named_rows(plan, "/nodes");
    nodes.map(|(name, node)| format!("\n{}\n{}", title(name), node_lines(node.as_ref(), style))).collect()
}

/// Renders the changes of objects, field by field.
#[must_use]
pub fn objects(plan: &Value, style: Style) -> String {
    if !has_changes(plan) {
        return "Nothing would change.\n".to_owned();
    }
    rows(plan, "/objects").map(|object| object_lines(object, style)).collect()
}

fn object_lines(object: Option<PlannedObject>, style: Style) -> String {
    let Some(PlannedObject { object, action, fields, omitted }) = object else { return unreadable() };
    let (sign, tone) = match action {
        Word::Known(Action::Created) => ('+', Tone::Good),
        Word::Known(Action::Deleted | Action::Pruned) => ('-', Tone::Bad),
        Word::Known(Action::Updated | Action::Unchanged) | Word::Unknown(_) => ('~', Tone::Waiting),
    };
    let title = format!("{sign} {} {}", clean(&object), clean(&word(&action)));
    let mut out = style.paint(tone, &title) + "\n";
    if fields.is_empty() {
        out += "    (the changed fields are secret)\n";
    }
    for FieldChange { pointer, before, after } in fields {
        let pointer = clean(&pointer);
        for (value, sign, tone) in [(before, '-', Tone::Bad), (after, '+', Tone::Good)] {
            let Some(value) = value else { continue };
            for line in value_lines(&pointer, &value) {
                out += &(style.paint(tone, &format!("  {sign} {line}")) + "\n");
            }
        }
    }
    match omitted {
        0 => out,
        omitted => out + &format!("    {omitted} more fields not shown\n"),
    }
}

/// Formats a JSON value as `pointer: value`. An object at the root, and a long object or array, is split into
/// one line per element.
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

fn address_lines(plan: Option<&AddressPlan>, style: Style) -> String {
    let Some(AddressPlan { address, before, after }) = plan else { return unreadable() };
    let mut out = String::new();
    for (usage, sign, tone) in [(before, '-', Tone::Bad), (after, '+', Tone::Good)] {
        let Some(AddressUse { services, nodes, advertisements }) = usage else { continue };
        let mut line = format!("{sign} {address} of {}", listed(services));
        for (names, role) in
            [(listed(nodes), "answered by"), (listed(advertisements), "announced to routers by")]
        {
            if !names.is_empty() {
                line += &format!(", {role} {names}");
            }
        }
        out += &format!("  {}\n", style.paint(tone, &line));
    }
    out
}

fn listed<'a, T: Serialize + 'a>(names: impl IntoIterator<Item = &'a T>) -> String {
    names.into_iter().map(word).collect::<Vec<_>>().join(", ")
}

fn node_lines(node: Option<&Value>, style: Style) -> String {
    let Some(NodePlan { preview, error }) = node.and_then(decode) else { return unreadable() };
    if let Some(error) = error {
        return format!("  {} {}\n", style.paint(Tone::Waiting, "not known:"), clean(&error));
    }
    let Preview { omitted, session_resets, connections_at_risk, failures, .. } = preview.unwrap_or_default();
    let mut out = String::new();
    for listing in ["/preview/announcements", "/preview/kernel"] {
        // The lines are decoded one by one, so that an invalid one is not left out.
        out += &listing_lines(node.into_iter().flat_map(|node| rows(node, listing)), style);
    }
    for (texts, title) in
        [(session_resets, "BGP session restarts:"), (failures, "unsupported, or not shown:")]
    {
        for text in texts {
            out += &format!("  {} {}\n", style.paint(Tone::Bad, title), clean(&text));
        }
    }
    if let Some(count) = connections_at_risk.filter(|count| *count > 0) {
        out += &format!("  {count} established connections would be terminated or moved\n");
    }
    match omitted {
        0 if out.is_empty() => "  nothing\n".to_owned(),
        0 => out,
        omitted => out + &format!("  {omitted} more lines not shown\n"),
    }
}

/// Renders the added and removed lines of one kernel listing, grouped by location, such as a table or chain.
/// Within a location, removed lines come first.
fn listing_lines(lines: impl Iterator<Item = Option<LineChange>>, style: Style) -> String {
    let mut lines: Vec<_> = lines.collect();
    lines.sort_by_cached_key(|line| line.as_ref().map(|line| (line.place.clone(), line.change)));
    let (mut out, mut shown_place) = (String::new(), String::new());
    for line in lines {
        let Some(LineChange { change, place, line }) = line else {
            out += &unreadable();
            continue;
        };
        let place = clean(&place);
        if place != shown_place {
            out += &format!("  {}\n", style.paint(Tone::Faint, &place));
            shown_place = place;
        }
        let (sign, tone) = match change {
            LineFate::Added => ('+', Tone::Good),
            LineFate::Removed => ('-', Tone::Bad),
        };
        let line = format!("{sign} {}", clean(&line));
        out += &format!("    {}\n", style.paint(tone, &line));
    }
    out
}

fn unreadable() -> String {
    format!("  {UNREADABLE}\n")
}
