//! Output of `history` and `audit`: a row per change, one change field by field, and the audit log.

use model::{
    cluster::{
        change::ChangeKind,
        history::{FieldChange, Maker},
    },
    kinds::address::address_of,
    observed::lag::{ChangeConvergence, NodeProgress},
    primitives::quantity::Timestamp,
};
use serde_json::Value;

use crate::{
    age::age,
    resource::Resource,
    terminal::{
        clean,
        style::{Style, Tone},
        table::{Cell, Table},
    },
    views::{
        columns::bgp::or_dash,
        render::field_path,
        typed::{
            Word, decode, decode_or_default,
            documents::{AuditDecision, AuditRow, ChangedObject, HistoryEntry, ObjectName},
            rows, word,
        },
    },
};

/// Maximum number of object names in one row; the row then contains the number of further objects.
const NAMED_IN_ROW: usize = 3;
/// Maximum number of lagging nodes, and of slowest nodes, listed for a change.
const NODES_SHOWN: usize = 5;

/// Renders the table of `history`: one row per change.
#[must_use]
pub fn list(listing: &Value, now: Timestamp, style: Style) -> String {
    let mut table = Table::new(vec!["REVISION", "AGE", "AUTHOR", "CHANGES", "MESSAGE"]);
    for item in rows::<HistoryEntry>(listing, "/items") {
        let Some(item) = item else {
            table.push_unreadable();
            continue;
        };
        let tone = if item.maker == Word::Known(Maker::Client) { Tone::Plain } else { Tone::Faint };
        let changes = changes(&item);
        table.push(vec![
            Cell::toned(tone, word(&item.revision)),
            Cell::toned(tone, since(item.at, now)),
            Cell::toned(tone, item.author),
            Cell::toned(tone, changes),
            Cell::toned(tone, or_dash(item.message)),
        ]);
    }
    table.render(style)
}

/// Renders the table of `audit`: one row per request.
#[must_use]
pub fn audit(listing: &Value, now: Timestamp, style: Style) -> String {
    let mut table = Table::new(vec!["AGE", "AUTHOR", "FROM", "ASKED", "OBJECTS", "DECISION", "REVISION"]);
    for item in rows::<AuditRow>(listing, "/items") {
        let Some(item) = item else {
            table.push_unreadable();
            continue;
        };
        let tone = match item.decision {
            Word::Known(AuditDecision::Accepted) => Tone::Good,
            Word::Known(AuditDecision::Refused) => Tone::Bad,
            Word::Known(AuditDecision::Failed) | Word::Unknown(_) => Tone::Waiting,
        };
        let dry_run = if item.dry_run { " (dry run)" } else { "" };
        let decision = word(&item.decision);
        let decision = if item.code.is_empty() { decision } else { format!("{decision}: {}", item.code) };
        table.push(vec![
            since(item.at, now).into(),
            item.author.into(),
            or_dash(word(&item.source)).into(),
            format!("{} {}", item.method, item.path).into(),
            or_dash(shortened(item.objects, item.objects_total)).into(),
            Cell::toned(tone, format!("{decision}{dry_run}")),
            or_dash(word(&item.revision)).into(),
        ]);
    }
    table.render(style)
}

/// Renders one change: author and reason, then each object with its changed fields.
#[must_use]
pub fn entry(entry: &Value, now: Timestamp, style: Style) -> String {
    let entry: HistoryEntry = decode(entry).unwrap_or_default();
    let title = format!("revision {}", word(&entry.revision));
    let source = entry.source.map(|source| format!(" from {source}")).unwrap_or_default();
    let mut lines = vec![format!(
        "{}, {} ({} ago), by {}{source}",
        style.paint(Tone::Title, &title),
        word(&entry.at),
        since(entry.at, now),
        clean(&entry.author)
    )];
    if !entry.message.is_empty() {
        lines.push(format!("    {}", clean(&entry.message)));
    }
    for object in &entry.objects {
        lines.push(String::new());
        object_lines(object, style, &mut lines);
    }
    lines.join("\n") + "\n"
}

/// Renders the number of nodes that have verified a change, percentiles of the time until then, and the nodes
/// that lag or were slowest. Empty if the change concerns no node.
#[must_use]
pub fn convergence(curve: &Value) -> String {
    let ChangeConvergence { concerns_nodes, verified, total, p50_ms, p99_ms, max_ms, nodes, .. } =
        decode_or_default(Some(curve));
    if !concerns_nodes || total == 0 {
        return String::new();
    }
    let mut lines = vec![String::new(), format!("verified by {verified} of {total} nodes")];
    if let (Some(p50_ms), Some(p99_ms), Some(max_ms)) = (p50_ms, p99_ms, max_ms) {
        lines[1]
            .push_str(&format!(": 50 % within {p50_ms} ms, 99 % within {p99_ms} ms, all within {max_ms} ms"));
    }
    let (lagging, done): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.why.is_some());
    for nodes in [lagging, done] {
        lines.extend(nodes.into_iter().take(NODES_SHOWN).map(node_steps));
    }
    lines.join("\n") + "\n"
}

/// Renders the progress of one node for a change: the time until each step (received, applied, verified), and
/// the reason if a step is missing.
fn node_steps(steps: &NodeProgress) -> String {
    let NodeProgress { node, received_ms, applied_ms, verified_ms, why } = steps;
    let times = [("received", received_ms), ("applied", applied_ms), ("verified", verified_ms)];
    let took = |(step, took): (&str, &Option<u64>)| took.map(|took| format!("{step} after {took} ms"));
    let why = why.as_ref().map(|why| clean(why));
    let words: Vec<_> = times.into_iter().filter_map(took).chain(why).collect();
    format!("  {node}: {}", words.join(", "))
}

fn object_lines(object: &ChangedObject, style: Style, lines: &mut Vec<String>) {
    let (mark, tone) = mark(&object.kind);
    lines.push(style.paint(tone, &format!("{mark} {}", name(&object.object))));
    for FieldChange { pointer, before, after } in &object.fields {
        let sides = [(before, Tone::Bad, '-'), (after, Tone::Good, '+')];
        if pointer.is_empty() {
            // The whole object was added or removed.
            for (object, tone, sign) in sides {
                let spec = object.as_ref().and_then(|object| object.get("spec"));
                lines.extend(
                    spec.into_iter()
                        .flat_map(yaml_lines)
                        .map(|line| style.paint(tone, &format!("    {sign} {line}"))),
                );
            }
            continue;
        }
        lines.push(format!("    {}", clean(&field_path(pointer))));
        for (value, tone, sign) in sides {
            lines.extend(
                value
                    .as_ref()
                    .map(|value| style.paint(tone, &format!("      {sign} {}", clean(&value.to_string())))),
            );
        }
    }
    let omitted = object.fields_omitted;
    if omitted > 0 {
        lines.push(format!("    and {omitted} more fields; use -o json for complete objects"));
    }
}

fn yaml_lines(value: &Value) -> Vec<String> {
    // Values parsed from JSON serialize to YAML; otherwise JSON is printed.
    let yaml = serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value:#}"));
    yaml.lines().map(clean).collect()
}

fn since(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map(|at| age(at, now)).unwrap_or_default()
}

fn changes(item: &HistoryEntry) -> String {
    let named = item.changes.iter().map(|change| {
        let (mark, _) = mark(&change.kind);
        format!("{mark}{}", name(&change.object))
    });
    shortened(named.collect(), item.changes_total)
}

/// Joins the first `NAMED_IN_ROW` names, followed by the number of further ones out of `total`.
fn shortened(mut named: Vec<String>, total: u64) -> String {
    named.truncate(NAMED_IN_ROW);
    let more = total.saturating_sub(named.len() as u64);
    let more = (more > 0).then(|| format!("and {more} more"));
    named.into_iter().chain(more).collect::<Vec<_>>().join(" ")
}

const fn mark(kind: &Word<ChangeKind>) -> (char, Tone) {
    match kind {
        Word::Known(ChangeKind::Added) => ('+', Tone::Good),
        Word::Known(ChangeKind::Deleted) => ('-', Tone::Bad),
        Word::Known(ChangeKind::Modified) | Word::Unknown(_) => ('~', Tone::Waiting),
    }
}

/// Formats the object's name as `service/web`, with the namespace unless it is the default one.
fn name(object: &ObjectName) -> String {
    let ObjectName { kind, namespace, name } = object;
    let word = kind
        .parse::<Resource>()
        .map_or_else(|_| kind.to_ascii_lowercase(), |kind| kind.singular().to_owned());
    let name = match address_of(name).filter(|_| word == "address") {
        Some(address) => address.to_string(),
        None => name.clone(),
    };
    let place =
        if matches!(namespace.as_str(), "" | "default") { String::new() } else { format!(" in {namespace}") };
    clean(&format!("{word}/{name}{place}"))
}
