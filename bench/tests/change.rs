//! The benchmark changes real endpoints under a real client, and writes its page. No time is asserted.

use bench::change::{self, Options};
use serde_json::Value;

#[test]
fn every_change_reaches_the_client_and_the_page_says_what_it_cost() {
    let options = Options {
        rounds: 2,
        groups: 2,
        changes: 4,
        sizes: vec![2, 20],
        endpoints: 3,
        modes: vec!["nftables", "userspace"],
    };
    let measured = change::run(&options, &mut |_| Ok(())).unwrap();
    assert_eq!(measured.points.len(), 4);
    for point in &measured.points {
        assert_eq!((point.first_ms.len(), point.write_ms.len()), (2, 2), "{point:?}");
        let feeds: f64 = point.costs.iter().map(|cost| cost.feed_bytes).sum();
        assert!(feeds > 0.0 && point.agent_kib > 0 && point.control_kib > 0, "{point:?}");
        let messages: f64 = point.costs.iter().map(|cost| cost.kernel_messages).sum();
        assert_eq!(
            messages > 0.0,
            point.mode == "nftables",
            "a relay writes nothing to the kernel: {point:?}"
        );
    }
    let directory = tempfile::tempdir().unwrap();
    measured.write(directory.path()).unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let json: Value = serde_json::from_str(&read("change.json")).unwrap();
    assert_eq!(json["points"].as_array().unwrap().len(), 4);
    let page = read("change.md");
    for row in ["| nftables | 20 | 3 | 2 |", "| userspace | 2 | 3 | 2 |", "| nftables | bytes of the feed |"]
    {
        assert!(page.contains(row), "{row} in\n{page}");
    }
    assert_eq!(read("change.svg").matches("<circle").count(), 8);
}
