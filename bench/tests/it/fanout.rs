//! Test that runs the fan-out benchmark at a small size, with simulated agents and watchers in separate
//! processes, and renders its page. No time is asserted.

use bench::{
    fanout::{self, Options, ReceiverKind},
    pages::record::Report as _,
};

#[test]
fn every_change_reaches_every_agent_and_every_watcher_and_all_come_back_after_a_cut() {
    let options = Options {
        program: env!("CARGO_BIN_EXE_bench").into(),
        rounds: 1,
        agents: vec![12],
        watchers: vec![8],
        services: 40,
        endpoints: 3,
        per_second: 50,
        changes: 30,
        herds: 1,
    };
    let record = fanout::run(&options, &mut |_| Ok(())).unwrap();
    for (told, count) in
        [(ReceiverKind::Agents, 12), (ReceiverKind::Sockets, 12), (ReceiverKind::Watchers, 8)]
    {
        let point = record.points.iter().find(|point| (point.told, point.count) == (told, count)).unwrap();
        assert_eq!((point.last_ms.len(), point.lost), (30, 0), "{told:?}: all had all changes");
        let deliveries = point.deliveries[0];
        assert!((u64::from(count)..=31 * u64::from(count)).contains(&deliveries), "{told:?}: {deliveries}");
        assert_eq!(point.herd_ms.len(), usize::from(told != ReceiverKind::Sockets), "{told:?}");
        assert_eq!(point.peak_kib.iter().any(|kib| *kib > 0), told != ReceiverKind::Sockets);
    }
    let agents = record.points.iter().find(|point| point.told == ReceiverKind::Agents).unwrap();
    assert!(agents.bytes_per_change[0] > 1.0, "a change is bytes on the wire");
    let directory = tempfile::tempdir().unwrap();
    record.write(directory.path()).unwrap();
    let page = std::fs::read_to_string(directory.path().join("fanout.md")).unwrap();
    assert!(page.contains("| agents | 12 | 40 | 50 | 30 |") && page.contains("| watchers | 8 |"), "{page}");
}
