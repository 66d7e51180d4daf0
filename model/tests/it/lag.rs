//! Propagation time of changes to nodes: the order in which nodes are listed, and the reason of each node's
//! delay.

use std::collections::BTreeMap;

use model::{
    observed::{
        lag::{ChangeProgress, LagOverview, LagReason, Steps, overview, percentile},
        rollup::NodeView,
    },
    primitives::{
        name::Name,
        quantity::{Epoch, Position, Revision},
    },
    wire::report::Report,
};
use serde_json::json;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn told(received: u64, applied: u64, verified: u64) -> Steps {
    Steps {
        received: Some(received),
        applied: Some(applied),
        verified: Some(verified),
        is_after_silence: false,
    }
}

fn change(revision: u64, age_ms: u64, nodes: &[(&str, Steps)]) -> ChangeProgress {
    let nodes = nodes.iter().map(|(node, steps)| (name(node), *steps)).collect();
    ChangeProgress { revision: Revision(revision), age_ms, nodes }
}

/// Computes the propagation times of `changes`. `nodes` contains for each node the revisions that it has
/// received, applied and verified according to its last report, or `None` for a silent node.
fn look(changes: &[ChangeProgress], nodes: &[(&str, Option<[u64; 3]>)]) -> LagOverview {
    let parts: BTreeMap<Name, Option<Report>> = nodes
        .iter()
        .map(|(node, at)| {
            let report = at.map(|[received, applied, verified]| {
                serde_json::from_value(json!({
                    "bootId": "a", "agentVersion": "0", "mode": "nftables", "received": format!("1-{received}"),
                    "applied": format!("1-{applied}"), "verified": format!("1-{verified}"),
                }))
                .unwrap()
            });
            (name(node), report)
        })
        .collect();
    let view = |(name, report)| -> NodeView<'_> {
        let report: &Option<Report> = report;
        NodeView {
            name,
            is_connected: report.is_some(),
            has_left: false,
            is_contested: false,
            is_lost: false,
            last_report: None,
            report: report.as_ref(),
        }
    };
    let views: Vec<_> = parts.iter().map(view).collect();
    overview(changes, &views, Position { epoch: Epoch(1), revision: Revision(9) })
}

#[test]
fn percentiles_are_by_nearest_rank() {
    let values: Vec<u64> = (1..=100).collect();
    assert_eq!((percentile(&values, 50), percentile(&values, 99)), (Some(50), Some(99)));
    assert_eq!((percentile(&[7], 50), percentile(&[7], 99), percentile(&[], 50)), (Some(7), Some(7), None));
    assert_eq!(percentile(&[1, 2, 3], 99), Some(3));
}

/// The nodes are listed by the age of the oldest change that they have not verified, then by propagation
/// time, slowest first, each with the reason of its delay.
#[test]
fn the_slowest_node_comes_first_with_its_reason() {
    let changes = [
        change(5, 9000, &[("a", told(10, 20, 30)), ("b", told(10, 200, 210)), ("c", told(40, 40, 40))]),
        change(6, 3000, &[("a", told(5, 10, 100)), ("b", told(10, 50, 60))]),
    ];
    let all = [6; 3];
    let lag = look(&changes, &[("a", Some(all)), ("b", Some(all)), ("c", Some([6, 5, 5])), ("d", None)]);
    let found: Vec<_> = lag.nodes.iter().map(|lag| (lag.node.as_str(), lag.reason, lag.waiting)).collect();
    assert_eq!(
        found,
        [
            ("d", LagReason::AgentSilent, 2),
            ("c", LagReason::NotApplied, 1),
            ("b", LagReason::Programming, 0),
            ("a", LagReason::ReadingBack, 0),
        ]
    );
    assert_eq!(lag.slowest.as_ref(), lag.nodes.first());
    assert_eq!((lag.nodes[0].waiting_ms, lag.nodes[1].waiting_ms), (Some(9000), Some(3000)));
    assert_eq!((lag.changes, lag.p50_ms, lag.p99_ms), (2, Some(60), Some(210)));
    assert_eq!((lag.nodes[2].p50_ms, lag.nodes[2].p99_ms, lag.nodes[2].measured), (Some(60), Some(210), 2));

    let lag = look(&changes[..1], &[("a", Some([5; 3])), ("c", Some([5; 3]))]);
    let slowest = lag.slowest.unwrap();
    assert_eq!((slowest.node.as_str(), slowest.reason), ("c", LagReason::OneReport));
}

/// If already the first report of a node confirms a change, no propagation time is measured for this change.
#[test]
fn changes_in_a_first_report_are_not_measured() {
    let steps = Steps { is_after_silence: true, ..told(50_000, 50_000, 50_000) };
    let lag = look(&[change(5, 60_000, &[("a", steps)])], &[("a", Some([5; 3]))]);
    assert_eq!((lag.slowest, lag.p99_ms, lag.changes), (None, None, 1));
    assert_eq!((lag.nodes[0].reason, lag.nodes[0].measured), (LagReason::NothingMeasured, 0));
}
