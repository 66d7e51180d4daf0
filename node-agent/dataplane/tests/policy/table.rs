//! Table in the kernel: its existence, repair, restart and removal.

use dataplane::policy::keeper::{PolicyKeeper, cleanup};
use model::primitives::net::IpFamily;

use crate::site::{Selected, Site, accept, isolated, peers};

fn listing(site: &Site) -> String {
    site.node.exec("nft list ruleset")
}

/// Input: changes of the policy, of the table by other programs, and restarts. Output: a change writes only its elements, a
/// restart nothing; a changed table is repaired; without a set there is no table, and foreign tables stay.
#[test]
fn the_table_is_repaired_and_removed_and_foreign_tables_stay() {
    let mut site = Site::new(3);
    site.node.exec("nft add table inet foreign");
    site.node.exec("nft add chain inet foreign own");
    let foreign = listing(&site);
    site.select(1, Selected { peers: vec![1, 2], ..Selected::default() });
    assert_eq!(site.program(), 0);
    assert_eq!(listing(&site), foreign, "no workload has a set");

    site.select(
        0,
        Selected { ingress: Some(isolated(vec![accept(peers(1), Some(80))])), ..Selected::default() },
    );
    assert!(site.program() > 0);
    assert_eq!(site.program(), 0);
    let present = listing(&site);
    assert!(present.contains("table inet tidegate-policy"));
    let restart = |site: &mut Site| {
        site.keeper = PolicyKeeper::default();
        site.program()
    };
    assert_eq!(restart(&mut site), 0, "a new process writes nothing");
    // A peer more: an identity, whose decisions exist, for each of its two addresses, which are local as well.
    site.select(2, Selected { peers: vec![1], ..Selected::default() });
    assert_eq!(site.program(), 4);
    site.assert_matrix(IpFamily::V4, 80, |_, _| true);
    site.assert_matrix(IpFamily::V4, 81, |_, to| to != 0);

    let before = listing(&site);
    let is_disturbed = |site: &mut Site| {
        let (node, keeper) = (&site.node, &mut site.keeper);
        node.inside(|| keeper.is_disturbed().unwrap())
    };
    assert!(!is_disturbed(&mut site));
    for (line, at_least) in [
        ("flush chain inet tidegate-policy forward", 1),
        ("flush map inet tidegate-policy decisions", 1),
        ("flush map inet tidegate-policy ports", 3),
        ("add element inet tidegate-policy locals4 { 192.0.2.1 }", 1),
        ("add chain inet tidegate-policy another", 1),
        ("delete table inet tidegate-policy", 1),
    ] {
        site.node.exec(&format!("nft {line}"));
        assert!(is_disturbed(&mut site), "{line}");
        assert!(site.program() >= at_least, "{line}");
        assert!(!is_disturbed(&mut site), "{line}");
        let counted = |text: &str| {
            let words = text.split_whitespace();
            // Counters may differ, and the order of elements.
            let mut words: Vec<_> = words.filter(|word| word.parse::<u64>().is_err()).collect();
            words.sort_unstable();
            words.join(" ")
        };
        assert_eq!(counted(&listing(&site)), counted(&before), "{line}");
    }
    site.assert_matrix(IpFamily::V6, 81, |_, to| to != 0);

    site.select(0, Selected::default());
    assert_eq!(site.program(), 1);
    assert_eq!(listing(&site), foreign, "the last set is gone");
    site.select(0, Selected { egress: Some(isolated(Vec::new())), ..Selected::default() });
    assert!(site.program() > 0);
    assert!(site.node.inside(|| cleanup().unwrap()));
    assert!(!site.node.inside(|| cleanup().unwrap()));
    assert_eq!(listing(&site), foreign);
}
