//! That the measurement of the modes measures: a small run of `examples/mode_cost.rs`. Figures are printed by the example;
//! no test judges them.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

mod support;

use model::node::ProxyMode;
use support::cost::{Size, measure, table};

#[test]
fn f058_the_cost_of_each_mode_is_measured_beside_the_direct_way() {
    let costs = measure("costtest", Size { bytes: 4 << 20, connections: 20, rounds: 1 });
    let modes: Vec<_> = costs.iter().map(|cost| cost.mode).collect();
    assert_eq!(modes[0], None);
    assert_eq!(modes[1..], ProxyMode::ALL.map(Some));
    for cost in &costs {
        let is_everywhere =
            [None, Some(ProxyMode::Nftables), Some(ProxyMode::Userspace)].contains(&cost.mode);
        assert!(cost.figures.is_ok() || !is_everywhere, "{cost:?}");
    }
    let table = table(&costs);
    assert_eq!(table.lines().count(), 2 + costs.len());
    assert!(table.contains("| direct |") && table.contains("| userspace |"), "{table}");
}
