//! Test that runs the connection benchmark at a small size, with real relays and Services, and renders its
//! page. No time is asserted.

use std::time::Duration;

use bench::{
    connections::{self, Options, PEERS},
    pages::record::Report as _,
};
use lab::host::kernel;
use serde_json::Value;

#[test]
fn every_contestant_carries_connections_and_a_flow_and_the_page_says_how_many() {
    let before = kernel::host().unwrap();
    let sizes = vec![1, 12];
    let options = Options {
        rounds: 2,
        slice: Duration::from_millis(100),
        sizes: sizes.clone(),
        modes: vec!["nftables"],
        clients: 3,
    };
    let mut told = Vec::new();
    let measured = connections::run(&options, &mut |line| {
        told.push(line.to_owned());
        Ok(())
    })
    .unwrap();
    let modes = sizes.iter().map(|&services| ("tidegate-nftables", services));
    let contestants: Vec<_> = PEERS.iter().map(|&peer| (peer, 0)).chain(modes).collect();
    for &(contestant, services) in &contestants {
        let series = measured.find(contestant, services).unwrap();
        assert_eq!(series.rounds.len(), 2, "{contestant}");
        for round in &series.rounds {
            assert!(round.per_second > 0.0 && round.latency_us.median > 0.0, "{contestant}: {round:?}");
            assert!(round.flow_gbit_per_second > 0.0 && round.failed == 0, "{contestant}: {round:?}");
        }
    }
    assert_eq!(measured.series.len(), contestants.len());
    assert_eq!(
        told.iter().filter(|line| line.contains("connections/s")).count(),
        2 * contestants.len(),
        "{told:#?}"
    );

    let directory = tempfile::tempdir().unwrap();
    measured.write(directory.path()).unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let json: Value = serde_json::from_str(&read("connections.json")).unwrap();
    assert_eq!(json["series"][0]["rounds"].as_array().unwrap().len(), 2);
    let page = read("connections.md");
    for row in
        ["| direct | 2 |", "| haproxy | 2 |", "| nginx | 2 |", "| tidegate-nftables, 12 Services | 2 |"]
    {
        assert!(page.contains(row), "{row} in\n{page}");
    }
    assert_eq!(read("connections.svg").matches("<circle").count(), 2 * contestants.len());

    let own = |line: &&String| line.starts_with("namespace ");
    let left: Vec<_> = kernel::host().unwrap().difference(&before).filter(own).cloned().collect();
    assert_eq!(left, Vec::<String>::new());
}
