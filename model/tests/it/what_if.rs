//! Simulated node failures: the nodes that would announce each address afterwards, and the remaining single points
//! of failure.

use std::{collections::BTreeSet, sync::Arc};

use model::{
    bgp::book::{BgpBook, BgpReportUpdate},
    cluster::snapshot::Snapshot,
    kinds::{
        address::{AddressSpec, Candidate, name_of},
        metadata::Metadata,
        resource::{Object, Spec},
    },
    observed::{
        announcements::AnnouncementBook,
        assign::ClusterView,
        rollup::{AnnouncementInputs, NodeView, what_if::what_if},
    },
    primitives::{
        name::Name,
        quantity::{Epoch, Revision, Timestamp},
    },
};
use serde_json::json;

use crate::support::{key, object, of_kind};

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn record(address: &str, candidates: &[&str]) -> Object {
    let mut record = AddressSpec::new(address.parse().unwrap(), None);
    record.services.insert(key("web"));
    let candidate = |node: &&str| Candidate {
        node: name(node),
        address: "172.17.8.1".parse().unwrap(),
        interfaces: BTreeSet::new(),
        peer_public_key: None,
    };
    record.announcement.candidates = candidates.iter().map(candidate).collect();
    Object { metadata: Metadata::named(name_of(record.address), None), spec: Spec::Address(Box::new(record)) }
}

/// Returns a line for each address that would move if the nodes `failed` went down, and for each single point
/// of failure that would remain. Nodes a, d (silent) and b are candidates for 192.0.2.1; only b is a
/// candidate for 192.0.2.2; nodes a and c announce 192.0.2.3 by BGP.
fn ask(failed: &[&str]) -> Vec<String> {
    let nodes = ["a", "b", "c", "d"];
    let mut objects: Vec<_> =
        nodes.iter().map(|node| object(&of_kind("Node", node, json!({}), json!({})))).collect();
    objects.extend([
        record("192.0.2.1", &["a", "d", "b"]),
        record("192.0.2.2", &["b"]),
        record("192.0.2.3", &[]),
    ]);
    let snapshot = Snapshot::from_objects(Revision(1), objects.into_iter().map(Arc::new));
    let mut bgp = BgpBook::default();
    for node in ["a", "c"] {
        let route = json!({ "addresses": ["192.0.2.3"], "peers": { "tor": { "since": "2026-11-21T09:00:00Z", "text": "next hop self" } } });
        let routes = [("192.0.2.3/32".parse().unwrap(), serde_json::from_value(route).unwrap())].into();
        bgp.apply(
            &name(node),
            BgpReportUpdate { routes, is_complete: true, ..BgpReportUpdate::default() },
            Timestamp::from_unix_seconds(0),
        );
    }
    let names = nodes.map(name);
    let view = |name| NodeView {
        name,
        is_connected: *name != self::name("d"),
        has_left: false,
        is_contested: false,
        is_lost: false,
        last_report: None,
        report: None,
    };
    let views: Vec<_> = names.iter().map(view).collect();
    let scene = ClusterView { snapshot: &snapshot, epoch: Epoch(1), nodes: &views, compiled: &|_| None };
    let of = AnnouncementInputs { scene, book: &AnnouncementBook::default(), bgp: &bgp };
    let found = what_if(&of, std::iter::empty(), failed.iter().map(|node| name(node)).collect());
    let node = |node: &Option<Name>| node.as_ref().map_or("-".to_owned(), ToString::to_string);
    let moves = found.addresses.iter().map(|one| {
        let lost = if one.is_lost { " lost" } else { "" };
        format!(
            "{} {} > {}, {}/{}{lost}",
            one.address,
            node(&one.owner),
            node(&one.next_owner),
            one.paths_left,
            one.paths
        )
    });
    let single =
        found.single_points.iter().map(|point| format!("only {}: {:?}", point.node, point.addresses));
    moves.chain(single).collect()
}

#[test]
fn an_address_moves_to_the_next_reporting_candidate_and_the_remaining_paths() {
    assert_eq!(ask(&[]), ["only b: {192.0.2.2}"]);
    assert_eq!(
        ask(&["a"]),
        [
            "192.0.2.1 a > b, 0/0",
            "192.0.2.3 - > -, 1/2",
            "only b: {192.0.2.1, 192.0.2.2}",
            "only c: {192.0.2.3}"
        ]
    );
    assert_eq!(
        ask(&["a", "b", "c"]),
        ["192.0.2.1 a > -, 0/0 lost", "192.0.2.2 b > -, 0/0 lost", "192.0.2.3 - > -, 0/2 lost"]
    );
}
