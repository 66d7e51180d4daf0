//! Test that runs the DNS benchmark at a small size, with all servers, and renders its page. No time is asserted.

use std::time::Duration;

use bench::{
    dns::{self, NameKind, NameSet, Options},
    pages::record::Report as _,
};
use serde_json::Value;

#[test]
fn every_name_server_answers_and_a_change_is_seen() {
    let options = Options {
        rounds: 1,
        slice: Duration::from_millis(100),
        names: NameSet { services: 30, endpoints: 3, cached: 20 },
        per_second: 500,
        changes: 2,
    };
    let mut told = Vec::new();
    let measured = dns::run(&options, &mut |line| {
        told.push(line.to_owned());
        Ok(())
    })
    .unwrap();
    let found: Vec<_> = measured.series.iter().map(|series| (&*series.contestant, series.kind)).collect();
    let mut expected = Vec::new();
    for kind in [NameKind::Service, NameKind::Headless] {
        expected.extend(["tidegate", "knot", "unbound", "dnsmasq"].map(|name| (name, kind)));
    }
    expected.extend(["tidegate", "unbound", "dnsmasq"].map(|name| (name, NameKind::Cached)));
    assert_eq!(found, expected);
    for series in &measured.series {
        let [round] = &series.rounds[..] else { panic!("{series:?}") };
        assert!(round.per_second > 0.0 && round.processor_us > 0.0, "{series:?}");
        assert!(round.lost == 0 || series.contestant != "tidegate", "{series:?}");
    }
    assert!(measured.changes_ms.len() == 2 && measured.resident_kib > 0, "{measured:?}");
    assert_eq!(told.iter().filter(|line| line.contains("answers/s")).count(), expected.len(), "{told:#?}");

    let directory = tempfile::tempdir().unwrap();
    measured.write(directory.path()).unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let json: Value = serde_json::from_str(&read("dns.json")).unwrap();
    assert_eq!(json["names"]["services"], 30);
    let page = read("dns.md");
    for row in ["| tidegate | Service | 1 |", "| knot | headless | 1 |", "| unbound | cached | 1 |"] {
        assert!(page.contains(row), "{row} in\n{page}");
    }
    assert_eq!(read("dns.svg").matches("<circle").count(), expected.len());
}
