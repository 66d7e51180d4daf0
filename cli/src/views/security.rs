//! Output of token, role and identity commands. Pure.

use serde_json::Value;

use crate::{
    lenient_json::{clean, flag, items, text},
    terminal::{
        style::Style,
        table::{Cell, Table},
    },
};

/// Renders the table of `token list`.
#[must_use]
pub fn tokens(answer: &Value, style: Style) -> String {
    let mut table = Table::new(vec!["NAME", "ID", "MAY", "EXPIRES", "LAST USED", "MADE BY"]);
    for token in items(answer, "/items") {
        let may: Vec<_> = items(token, "/bindings").iter().map(binding).collect();
        let cells = [
            text(token, "/name"),
            text(token, "/id"),
            may.join("; "),
            or_dash(text(token, "/expires")),
            or_dash(text(token, "/lastUsed")),
            text(token, "/createdBy"),
        ];
        table.push(cells.iter().map(Cell::from).collect());
    }
    if table.is_empty() { "No tokens.\n".to_owned() } else { table.render(style) }
}

/// Renders the table of `role list`: one row per rule.
#[must_use]
pub fn roles(answer: &Value, style: Style) -> String {
    let mut table = Table::new(vec!["ROLE", "VERBS", "KINDS", "NAMESPACES"]);
    for role in items(answer, "/items") {
        let mut name = text(role, "/name");
        if flag(role, "/builtIn", false) {
            name += " (built in)";
        }
        for rule in items(role, "/rules") {
            let namespaces = words(rule, "/namespaces");
            let place = if namespaces.is_empty() { "all".to_owned() } else { namespaces };
            let cells = [name.clone(), words(rule, "/verbs"), words(rule, "/kinds"), place];
            table.push(cells.iter().map(Cell::from).collect());
        }
    }
    table.render(style)
}

/// Renders the output of `whoami`.
#[must_use]
pub fn who(answer: &Value) -> String {
    let who = match text(answer, "/identity/type").as_str() {
        "token" => format!("token {} ({})", text(answer, "/identity/name"), text(answer, "/identity/id")),
        "agent" => format!("the agent of node {}", text(answer, "/identity/node")),
        _ => "anonymous: authentication is disabled, and all requests are allowed".to_owned(),
    };
    let bindings = items(answer, "/bindings").iter().map(|to| format!("  {}\n", clean(&binding(to))));
    format!("{}\n{}", clean(&who), bindings.collect::<String>())
}

fn binding(binding: &Value) -> String {
    let mut said = text(binding, "/role");
    for (pointer, before) in
        [("/namespaces", "in"), ("/pools", "with pools"), ("/endpointRanges", "with endpoints in")]
    {
        let words = words(binding, pointer);
        if !words.is_empty() {
            said = format!("{said} {before} {words}");
        }
    }
    said
}

fn words(value: &Value, pointer: &str) -> String {
    let words: Vec<_> = items(value, pointer).iter().filter_map(Value::as_str).collect();
    words.join(",")
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}
