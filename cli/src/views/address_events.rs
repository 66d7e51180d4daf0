//! Table of changes of the nodes that announce load balancer addresses. Pure functions.

use model::observed::announcements::{AddressEvent, AddressEventReason};
use serde_json::Value;

use super::bgp::or_nothing;
use crate::{
    terminal::{
        style::{Style, Tone},
        table::{Cell, Table},
    },
    views::typed::{rows, word},
};

/// Renders the table of `addresses events`: one row per event, newest last as in a log, although the server lists
/// the newest first. Returns `None` if there are no events.
#[must_use]
pub fn events(listing: &Value, style: Style) -> Option<String> {
    let mut table = Table::new(vec!["TIME", "ADDRESS", "NODE", "EVENT", "PREVIOUS", "MESSAGE"]);
    for event in rows::<AddressEvent>(listing, "/items").rev() {
        let Some(event) = event else {
            table.push_unreadable();
            continue;
        };
        let tone = match event.reason {
            AddressEventReason::Announced => Tone::Good,
            AddressEventReason::Withdrawn => Tone::Bad,
        };
        table.push(vec![
            word(&event.time).into(),
            word(&event.address).into(),
            word(&event.node).into(),
            Cell::toned(tone, word(&event.reason)),
            or_nothing(&event.previous).into(),
            event.message.into(),
        ]);
    }
    (!table.is_empty()).then(|| table.render(style))
}
