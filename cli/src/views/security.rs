//! Output of token, role and identity commands. Pure functions.

use serde_json::Value;

use crate::{
    terminal::{
        clean,
        style::Style,
        table::{Cell, Table},
    },
    views::{
        columns::bgp::or_dash,
        typed::{
            certificates::{CertificateRow, JoinTokenRow},
            decode,
            documents::{CallerIdentity, CallerInfo, RoleBinding, RoleRow, TokenRow},
            rows, word,
        },
    },
};

/// Renders the table of `token list`.
#[must_use]
pub fn tokens(answer: &Value, style: Style) -> String {
    let mut table = Table::new(vec!["NAME", "ID", "MAY", "EXPIRES", "LAST USED", "MADE BY"]);
    for token in rows::<TokenRow>(answer, "/items") {
        let Some(token) = token else {
            table.push_unreadable();
            continue;
        };
        let may: Vec<_> = token.bindings.iter().map(binding).collect();
        table.push(vec![
            token.name.into(),
            token.id.into(),
            may.join("; ").into(),
            or_dash(word(&token.expires)).into(),
            or_dash(word(&token.last_used)).into(),
            token.created_by.into(),
        ]);
    }
    if table.is_empty() { "No tokens.\n".to_owned() } else { table.render(style) }
}

/// Renders the table of `node join-tokens`.
#[must_use]
pub fn join_tokens(answer: &Value, style: Style) -> String {
    let mut table = Table::new(vec!["ID", "NODE", "LABELS", "CREATED", "EXPIRES"]);
    for token in rows::<JoinTokenRow>(answer, "/items") {
        let Some(token) = token else {
            table.push_unreadable();
            continue;
        };
        let node = token.node.unwrap_or_else(|| "<any new name>".to_owned());
        let labels: Vec<_> = token.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        table.push(vec![
            token.id.into(),
            node.into(),
            or_dash(labels.join(",")).into(),
            word(&token.created).into(),
            word(&token.expires).into(),
        ]);
    }
    if table.is_empty() { "No join tokens.\n".to_owned() } else { table.render(style) }
}

/// Renders the table of `node certificates`.
#[must_use]
pub fn certificates(answer: &Value, style: Style) -> String {
    let mut table = Table::new(vec!["NODE", "VALID", "ISSUED", "EXPIRES", "SERIAL"]);
    for certificate in rows::<CertificateRow>(answer, "/items") {
        let Some(certificate) = certificate else {
            table.push_unreadable();
            continue;
        };
        let valid = if certificate.is_valid { "yes" } else { "no" };
        table.push(vec![
            certificate.node.into(),
            valid.to_owned().into(),
            or_dash(word(&certificate.issued)).into(),
            or_dash(word(&certificate.expires)).into(),
            or_dash(certificate.serial).into(),
        ]);
    }
    if table.is_empty() { "No certificates.\n".to_owned() } else { table.render(style) }
}

/// Renders the table of `role list`: one row per rule.
#[must_use]
pub fn roles(answer: &Value, style: Style) -> String {
    let mut table = Table::new(vec!["ROLE", "VERBS", "KINDS", "NAMESPACES"]);
    for role in rows::<RoleRow>(answer, "/items") {
        let Some(RoleRow { name, built_in, rules }) = role else {
            table.push_unreadable();
            continue;
        };
        let name = if built_in { format!("{name} (built in)") } else { name };
        for rule in rules {
            let place = if rule.namespaces.is_empty() { "all".to_owned() } else { rule.namespaces.join(",") };
            let cells = [name.clone(), rule.verbs.join(","), rule.kinds.join(","), place];
            table.push(cells.iter().map(Cell::from).collect());
        }
    }
    table.render(style)
}

/// Renders the output of `whoami`.
#[must_use]
pub fn who(answer: &Value) -> String {
    let CallerInfo { identity, bindings } = decode(answer).unwrap_or_default();
    let who = match identity {
        CallerIdentity::Token { id, name } => format!("token {name} ({id})"),
        CallerIdentity::User { name } => format!("user {name}"),
        CallerIdentity::Agent { node } => format!("the agent of node {node}"),
        CallerIdentity::Anyone => {
            "anonymous: this connection needs no authentication, and all requests are allowed".to_owned()
        }
    };
    let bindings = bindings.iter().map(|to| format!("  {}\n", clean(&binding(to))));
    format!("{}\n{}", clean(&who), bindings.collect::<String>())
}

fn binding(binding: &RoleBinding) -> String {
    let RoleBinding { role, namespaces, pools, endpoint_ranges } = binding;
    let mut words = role.clone();
    for (limits, before) in
        [(namespaces, "in"), (pools, "with pools"), (endpoint_ranges, "with endpoints in")]
    {
        if !limits.is_empty() {
            words = format!("{words} {before} {}", limits.join(","));
        }
    }
    words
}
