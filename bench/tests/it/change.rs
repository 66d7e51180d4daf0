//! Test that runs the change benchmark at a small size, with real endpoints, Services and a client, and renders
//! its page. No time is asserted.

#![allow(
    clippy::print_stdout,
    reason = "what was done is printed, with its times, for whoever wonders where a run spent its own"
)]

use std::time::Duration;

use bench::{
    change::{self, Cost, Options},
    pages::record::Report as _,
};
use serde_json::Value;

#[test]
fn every_change_reaches_the_client_and_the_page_says_what_it_cost() {
    let options = Options {
        rounds: 2,
        groups: 2,
        changes: 12,
        sizes: vec![2, 20],
        endpoints: 3,
        quiet: Duration::from_millis(500),
        // Only counts are checked, not times, so the machine need not be idle.
        quiet_share: 2.0,
        modes: vec!["nftables", "userspace"],
    };
    // The guest VM is slow, and one size and one group suffice there.
    let elsewhere = Options { groups: 1, sizes: vec![20], modes: vec!["ipvs"], ..options.clone() };
    let mut say = |line: &str| {
        println!("{line}");
        Ok(())
    };
    let mut measured = change::run(&options, &mut say).unwrap();
    let there = change::run(&elsewhere, &mut say).unwrap();
    measured.points.extend(there.points);
    assert_eq!(measured.points.len(), 5);
    for point in &measured.points {
        let lengths = [&point.first_ms, &point.write_ms, &point.service_first_ms].map(Vec::len);
        assert_eq!(lengths, [2, 2, 2], "{point:?}");
        assert!(point.agent_kib > 0 && point.control_kib > 0, "{point:?}");
        for costs in [&point.costs, &point.service_costs] {
            assert_eq!(costs.len(), if point.mode == "ipvs" { 1 } else { 2 }, "{point:?}");
            assert!(sum(costs, |cost| cost.feed_bytes) > 0.0, "{point:?}");
        }
        let written = |costs: &[Cost]| sum(costs, |cost| cost.kernel_messages) > 0.0;
        // A relay writes nothing to the kernel when endpoints change.
        assert_eq!(written(&point.costs), point.mode != "userspace", "{point:?}");
        assert!(written(&point.service_costs), "{point:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    measured.write(directory.path()).unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let json: Value = serde_json::from_str(&read("change.json")).unwrap();
    assert_eq!(json["points"].as_array().unwrap().len(), 5);
    let page = read("change.md");
    for row in [
        "| nftables | 20 | 3 | 2 |",
        "| userspace | 2 | 3 | 2 |",
        "| nftables | an endpoint change | feed bytes |",
        "| ipvs",
    ] {
        assert!(page.contains(row), "{row} in\n{page}");
    }
    let at_home: Vec<_> = measured.points.iter().filter(|point| !point.is_guest).collect();
    assert_eq!(read("change.svg").matches("<circle").count(), 2 * at_home.len());
}

fn sum(costs: &[Cost], of: fn(&Cost) -> f64) -> f64 {
    costs.iter().map(of).sum()
}
