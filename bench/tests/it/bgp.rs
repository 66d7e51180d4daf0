//! Test that runs the BGP benchmark at a small size, with real routers and GoBGP. It completes all parts,
//! including node failures, and writes a page. No time is asserted.

use bench::{
    bgp::{self, Options},
    pages::record::Report as _,
};
use lab::host::kernel;

#[test]
fn routes_come_and_go_in_both_routers_and_the_page_says_how_fast() {
    let before = kernel::host().unwrap();
    let mut told = Vec::new();
    let measured = bgp::run(&Options { rounds: 2, failures: 1, bulk: 200 }, &mut |line| {
        told.push(line.to_owned());
        Ok(())
    })
    .unwrap();
    let contestants: Vec<_> = measured.series.iter().map(|series| &*series.contestant).collect();
    assert_eq!(contestants, ["tidegate", "gobgp"]);
    for series in &measured.series {
        let lengths = [&series.announced_ms, &series.withdrawn_ms, &series.failed_ms].map(Vec::len);
        assert_eq!((lengths, series.command_ms.len()), ([2, 2, 1], 2), "{series:?}");
        let bulk = series.bulk_ms.unwrap();
        assert!(bulk.frr > 0.0 && bulk.bird > 0.0 && series.bulk_memory_kib > Some(0), "{series:?}");
    }
    // Per implementation: its settings, two prefixes, a failure, and the bulk run.
    assert_eq!(told.len(), contestants.len() * 5, "{told:#?}");

    let directory = tempfile::tempdir().unwrap();
    measured.write(directory.path()).unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let page = read("bgp.md");
    for row in
        ["| announced | tidegate | FRR | 2 |", "| node cut off | gobgp | BIRD | 1 |", "200 prefixes in FRR"]
    {
        assert!(page.contains(row), "{row}: {page}");
    }
    for label in ["tidegate, FRR", "gobgp, BIRD"] {
        assert!(read("bgp.svg").contains(label), "{label}");
    }

    let own = |line: &&String| line.starts_with("namespace ");
    let left: Vec<_> = kernel::host().unwrap().difference(&before).filter(own).cloned().collect();
    assert_eq!(left, Vec::<String>::new());
}
