//! Output of `rebalance`. Pure functions.

use model::observed::rollup::rebalance::{NodeLoad, PlannedMove, RebalancePlan};
use serde_json::Value;

use crate::{
    terminal::{
        clean,
        style::{Style, Tone},
        table::Table,
    },
    views::typed::{decode_or_default, rows},
};

/// Formats a move that was made, or would be made if `is_dry_run` is set.
#[must_use]
pub fn move_line(planned: &PlannedMove, is_dry_run: bool, style: Style) -> String {
    let PlannedMove { address, from, to, services: _ } = planned;
    let suffix = if is_dry_run { " (dry run)" } else { "" };
    let (from, to) = (clean(from.as_str()), clean(to.as_str()));
    format!("address/{address} {} from {from} to {to}{suffix}\n", style.paint(Tone::Good, "moved"))
}

/// Formats the number of addresses of each node before and after the moves of a plan.
#[must_use]
pub fn loads(plan: &Value, style: Style) -> String {
    let mut table = Table::new(vec!["NODE", "ADDRESSES", "AFTER"]);
    for load in rows::<NodeLoad>(plan, "/nodes") {
        match load {
            Some(NodeLoad { node, addresses, after }) => {
                table.push(vec![
                    clean(node.as_str()).into(),
                    addresses.to_string().into(),
                    after.to_string().into(),
                ]);
            }
            None => table.push_unreadable(),
        }
    }
    table.render(style)
}

/// Returns a note on the addresses that a plan does not move; `None` if there are none.
#[must_use]
pub fn unsettled(plan: &Value) -> Option<String> {
    let RebalancePlan { unsettled, .. } = decode_or_default(Some(plan));
    match unsettled {
        0 => None,
        1 => Some("1 address stays, because its recorded owner does not announce it".to_owned()),
        more => Some(format!("{more} addresses stay, because their recorded owners do not announce them")),
    }
}
