//! Output of `history` and `audit`: a row per change, one change field by field, and the audit log.

use model::{kinds::address::address_of, primitives::quantity::Timestamp};
use serde_json::Value;

use crate::{
    age::age,
    lenient_json::{clean, flag, items, number, text, time},
    resource::Resource,
    terminal::{
        style::{Style, Tone},
        table::{Cell, Table},
    },
};

/// Maximum number of objects named in a row; the rest is counted.
const NAMED_IN_ROW: usize = 3;
/// Maximum number of lagging nodes, and of slowest nodes, listed for a change.
const NODES_SHOWN: usize = 5;

/// Renders the table of `history`: one row per change.
#[must_use]
pub fn list(listing: &Value, now: Timestamp, style: Style) -> String {
    let mut table = Table::new(vec!["REVISION", "AGE", "AUTHOR", "CHANGES", "MESSAGE"]);
    for item in items(listing, "/items") {
        let tone = if text(item, "/maker") == "client" { Tone::Plain } else { Tone::Faint };
        let message = text(item, "/message");
        table.push(vec![
            Cell::toned(tone, text(item, "/revision")),
            Cell::toned(tone, since(item, now)),
            Cell::toned(tone, text(item, "/author")),
            Cell::toned(tone, changes(item)),
            Cell::toned(tone, if message.is_empty() { "-".to_owned() } else { message }),
        ]);
    }
    table.render(style)
}

/// Renders the table of `audit`: one row per request.
#[must_use]
pub fn audit(listing: &Value, now: Timestamp, style: Style) -> String {
    let mut table = Table::new(vec!["AGE", "AUTHOR", "FROM", "ASKED", "OBJECTS", "DECISION", "REVISION"]);
    for item in items(listing, "/items") {
        let decision = text(item, "/decision");
        let tone = match decision.as_str() {
            "accepted" => Tone::Good,
            "refused" => Tone::Bad,
            _ => Tone::Waiting,
        };
        let code = text(item, "/code");
        let dry_run = if flag(item, "/dryRun", false) { " (dry run)" } else { "" };
        let decision = if code.is_empty() { decision } else { format!("{decision}: {code}") };
        let named: Vec<_> =
            items(item, "/objects").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        table.push(vec![
            since(item, now).into(),
            text(item, "/author").into(),
            dash(text(item, "/source")).into(),
            format!("{} {}", text(item, "/method"), text(item, "/path")).into(),
            dash(shortened(named, number(item, "/objectsTotal"))).into(),
            Cell::toned(tone, format!("{decision}{dry_run}")),
            dash(text(item, "/revision")).into(),
        ]);
    }
    table.render(style)
}

/// Renders one change: author and reason, then each object with its changed fields.
#[must_use]
pub fn entry(entry: &Value, now: Timestamp, style: Style) -> String {
    let title = format!("revision {}", text(entry, "/revision"));
    let mut who = format!("by {}", text(entry, "/author"));
    let source = text(entry, "/source");
    if !source.is_empty() {
        who.push_str(&format!(" from {source}"));
    }
    let mut lines = vec![format!(
        "{}, {} ({} ago), {}",
        style.paint(Tone::Title, &clean(&title)),
        clean(&text(entry, "/at")),
        since(entry, now),
        clean(&who)
    )];
    let message = text(entry, "/message");
    if !message.is_empty() {
        lines.push(format!("    {}", clean(&message)));
    }
    for object in items(entry, "/objects") {
        lines.push(String::new());
        object_lines(object, style, &mut lines);
    }
    lines.join("\n") + "\n"
}

/// Renders the convergence of a change, with lagging and slowest nodes; empty if it concerns no node.
#[must_use]
pub fn convergence(curve: &Value) -> String {
    if !flag(curve, "/concernsNodes", false) || number(curve, "/total") == 0 {
        return String::new();
    }
    let (verified, total) = (number(curve, "/verified"), number(curve, "/total"));
    let mut lines = vec![String::new(), format!("verified by {verified} of {total} nodes")];
    if verified > 0 {
        let [half, most, all] = ["/p50Ms", "/p99Ms", "/maxMs"].map(|pointer| number(curve, pointer));
        lines[1].push_str(&format!(": 50 % within {half} ms, 99 % within {most} ms, all within {all} ms"));
    }
    let (lagging, done): (Vec<_>, Vec<_>) =
        items(curve, "/nodes").iter().partition(|node| !text(node, "/why").is_empty());
    for nodes in [lagging, done] {
        lines.extend(nodes.into_iter().take(NODES_SHOWN).map(node_steps));
    }
    lines.join("\n") + "\n"
}

/// Renders the progress of a node for a change, with times and the pending reason.
fn node_steps(node: &Value) -> String {
    let steps = [("received", "/receivedMs"), ("applied", "/appliedMs"), ("verified", "/verifiedMs")];
    let took = |(word, pointer): (&str, &str)| {
        let took = node.pointer(pointer).and_then(Value::as_u64)?;
        Some(format!("{word} after {took} ms"))
    };
    let why = Some(clean(&text(node, "/why"))).filter(|why| !why.is_empty());
    let words: Vec<_> = steps.into_iter().filter_map(took).chain(why).collect();
    format!("  {}: {}", clean(&text(node, "/node")), words.join(", "))
}

fn object_lines(object: &Value, style: Style, lines: &mut Vec<String>) {
    let (mark, tone) = mark(&text(object, "/kind"));
    lines.push(style.paint(tone, &format!("{mark} {}", name(object.get("object").unwrap_or(&Value::Null)))));
    for field in items(object, "/fields") {
        let pointer = text(field, "/pointer");
        if pointer.is_empty() {
            // The whole object was added or removed.
            for (at, tone, sign) in [("/before/spec", Tone::Bad, '-'), ("/after/spec", Tone::Good, '+')] {
                let spec = field.pointer(at);
                lines.extend(
                    spec.into_iter()
                        .flat_map(yaml_lines)
                        .map(|line| style.paint(tone, &format!("    {sign} {line}"))),
                );
            }
            continue;
        }
        lines.push(format!("    {}", clean(crate::views::render::field_path(&pointer).as_str())));
        for (at, tone, sign) in [("/before", Tone::Bad, '-'), ("/after", Tone::Good, '+')] {
            let value = field.pointer(at);
            lines.extend(
                value.map(|value| style.paint(tone, &format!("      {sign} {}", clean(&value.to_string())))),
            );
        }
    }
    let omitted = number(object, "/fieldsOmitted");
    if omitted > 0 {
        lines.push(format!("    and {omitted} more fields; use -o json for complete objects"));
    }
}

fn yaml_lines(value: &Value) -> Vec<String> {
    // Values parsed from JSON serialize to YAML; otherwise JSON is printed.
    let yaml = serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value:#}"));
    yaml.lines().map(clean).collect()
}

fn since(item: &Value, now: Timestamp) -> String {
    time(item, "/at").map(|at| age(at, now)).unwrap_or_default()
}

fn changes(item: &Value) -> String {
    let named = items(item, "/changes").iter().map(|change| {
        let (mark, _) = mark(&text(change, "/kind"));
        format!("{mark}{}", name(change.get("object").unwrap_or(&Value::Null)))
    });
    shortened(named.collect(), number(item, "/changesTotal"))
}

/// Returns the first names and the number of remaining ones.
fn shortened(mut named: Vec<String>, total: u64) -> String {
    named.truncate(NAMED_IN_ROW);
    let more = total.saturating_sub(named.len() as u64);
    let more = (more > 0).then(|| format!("and {more} more"));
    named.into_iter().chain(more).collect::<Vec<_>>().join(" ")
}

fn mark(kind: &str) -> (char, Tone) {
    match kind {
        "ADDED" => ('+', Tone::Good),
        "DELETED" => ('-', Tone::Bad),
        _ => ('~', Tone::Waiting),
    }
}

/// Formats the object's name as `service/web`, with the namespace unless it is the default one.
fn name(object: &Value) -> String {
    let kind = text(object, "/kind");
    let word = kind
        .parse::<Resource>()
        .map_or_else(|_| kind.to_ascii_lowercase(), |kind| kind.singular().to_owned());
    let name = text(object, "/name");
    let name = match address_of(&name).filter(|_| word == "address") {
        Some(address) => address.to_string(),
        None => name,
    };
    let namespace = text(object, "/namespace");
    let place =
        if matches!(namespace.as_str(), "" | "default") { String::new() } else { format!(" in {namespace}") };
    clean(&format!("{word}/{name}{place}"))
}

fn dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}
