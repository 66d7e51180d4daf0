//! Test that runs the agent start benchmark at a small size, with real agents. A restart without changes writes
//! nothing to the kernel. No time is asserted.

use bench::{
    cold::{self, Options},
    pages::record::Report as _,
};

#[test]
fn an_agent_that_starts_again_writes_nothing_and_the_page_says_so() {
    let options = Options {
        rounds: 2,
        sizes: vec![3, 30, 300],
        endpoints: vec![2],
        most: 60,
        modes: vec!["nftables", "iptables", "userspace"],
    };
    let measured = cold::run(&options, &mut |_| Ok(())).unwrap();
    assert_eq!(measured.points.len(), 6, "300 Services have more endpoints than are asked for");
    for point in &measured.points {
        // There is no tool to save and load the state of a relay.
        let bounds = if point.mode == "userspace" { 0 } else { 2 };
        assert_eq!(
            (point.cold_ms.len(), point.restart_ms.len(), point.bound_ms.len()),
            (2, 2, bounds),
            "{point:?}"
        );
        assert_eq!(point.restart_writes, [0, 0], "{point:?}");
        assert!(point.transactions > 0 && point.messages > 0, "a start with nothing writes: {point:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    measured.write(directory.path()).unwrap();
    let page = std::fs::read_to_string(directory.path().join("cold.md")).unwrap();
    assert!(page.contains("| nftables | 30 × 2 |") && page.contains("| iptables | 3 × 2 |"), "{page}");
}
