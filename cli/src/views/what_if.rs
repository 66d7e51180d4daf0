//! Tables of the predicted effect of node failures. Pure functions.

use model::observed::rollup::what_if::{AddressMove, ServiceLoss, SinglePoint, WhatIf};
use serde::Serialize;
use serde_json::Value;

use crate::{
    terminal::{
        clean,
        style::{Style, Tone},
        table::{Cell, Table},
    },
    views::typed::{decode_items, decode_or_default, rows, word},
};

/// Maximum number of names in one cell, followed by the number of further ones.
const NAMES_MAX: usize = 5;

/// Returns true if a Service or an address would become unavailable.
#[must_use]
pub fn is_harmful(answer: &Value) -> bool {
    let is_lost = |address: &AddressMove| address.is_lost;
    let is_down = |service: &ServiceLoss| service.is_down;
    decode_items(answer, "/addresses").iter().any(is_lost)
        || decode_items(answer, "/services").iter().any(is_down)
}

/// Renders the output of `what-if`.
#[must_use]
pub fn tables(answer: &Value, style: Style) -> String {
    let whole: WhatIf = decode_or_default(Some(answer));
    let sections = [
        (addresses(answer), "ADDRESSES", "No address would move."),
        (services(answer), "SERVICES", "No Service would lose an endpoint."),
        (single_points(answer), "SINGLE POINTS OF FAILURE", "Nothing depends on a single node."),
    ];
    let failed = names(&whole.failed);
    let mut out = match failed.as_str() {
        "" => "Nothing fails.\n".to_owned(),
        failed => format!("If {failed} failed:\n"),
    };
    for (table, title, otherwise) in sections {
        let body = if table.is_empty() {
            format!("{otherwise}\n")
        } else {
            format!("{title}\n{}", table.render(style))
        };
        out = out + "\n" + &body;
    }
    match whole.omitted {
        0 => out,
        omitted => out + &format!("\n{omitted} more not shown.\n"),
    }
}

fn addresses(answer: &Value) -> Table {
    let mut table = Table::new(vec!["ADDRESS", "SERVICES", "ANNOUNCED BY", "THEN BY", "BGP PATHS"]);
    for address in rows::<AddressMove>(answer, "/addresses") {
        let Some(address) = address else {
            table.push_unreadable();
            continue;
        };
        let node = |node| Some(word(node)).filter(|node| !node.is_empty()).unwrap_or_else(|| "-".to_owned());
        let next =
            if address.is_lost { Cell::toned(Tone::Bad, "nobody") } else { node(&address.next_owner).into() };
        table.push(vec![
            address.address.to_string().into(),
            names(&address.services).into(),
            node(&address.owner).into(),
            next,
            format!("{} of {}", address.paths_left, address.paths).into(),
        ]);
    }
    table
}

fn services(answer: &Value) -> Table {
    let mut table = Table::new(vec!["SERVICE", "ENDPOINTS LEFT", "CAPACITY LEFT"]);
    for service in rows::<ServiceLoss>(answer, "/services") {
        let Some(service) = service else {
            table.push_unreadable();
            continue;
        };
        let tone = if service.is_down { Tone::Bad } else { Tone::Waiting };
        table.push(vec![
            word(&service.service).into(),
            format!("{} of {}", service.endpoints_left, service.endpoints).into(),
            Cell::toned(tone, format!("{} %", service.capacity_left)),
        ]);
    }
    table
}

fn single_points(answer: &Value) -> Table {
    let mut table = Table::new(vec!["NODE", "SERVICES", "ADDRESSES"]);
    for point in rows::<SinglePoint>(answer, "/singlePoints") {
        let Some(point) = point else {
            table.push_unreadable();
            continue;
        };
        table.push(vec![
            word(&point.node).into(),
            names(&point.services).into(),
            names(&point.addresses).into(),
        ]);
    }
    table
}

fn names<'a, T: Serialize + 'a>(all: impl IntoIterator<Item = &'a T, IntoIter: ExactSizeIterator>) -> String {
    let all = all.into_iter();
    let more = all.len().saturating_sub(NAMES_MAX);
    let some: Vec<String> = all.take(NAMES_MAX).map(|name| clean(&word(name))).collect();
    match more {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}
