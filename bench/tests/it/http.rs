//! Test that runs the HTTP benchmark at a small size, with all proxies, and renders its page. No time is asserted.

use std::time::Duration;

use bench::{
    http::{self, HttpLoad, HttpProxy, Options, RouteCounts},
    pages::record::Report as _,
};
use serde_json::Value;

#[test]
fn every_proxy_answers_and_a_change_is_seen() {
    let options = Options {
        rounds: 1,
        slice: Duration::from_millis(200),
        routes: RouteCounts { few: 2, many: 20 },
        clients: 4,
        idle: 20,
        changes: 2,
    };
    let mut printed = Vec::new();
    let measured = http::run(&options, &mut |line| {
        printed.push(line.to_owned());
        Ok(())
    })
    .unwrap();
    let found: Vec<_> = measured.series.iter().map(|series| (series.contestant, series.load)).collect();
    let peers = [HttpProxy::Tidegate, HttpProxy::Haproxy, HttpProxy::Nginx, HttpProxy::Caddy];
    let mut expected: Vec<_> =
        HttpLoad::ALL.into_iter().flat_map(|load| peers.map(|proxy| (proxy, load))).collect();
    expected.insert(peers.len(), (HttpProxy::TidegateMany, HttpLoad::Http1));
    assert_eq!(found, expected);
    for series in &measured.series {
        let [round] = &series.rounds[..] else { panic!("{series:?}") };
        assert!(round.per_second > 0.0 && round.processor_us > 0.0, "{series:?}");
        assert!(round.failed == 0 || series.contestant != HttpProxy::Tidegate, "{series:?}");
    }
    assert!(measured.changes_ms.len() == 2 && measured.idle.len() == peers.len(), "{measured:?}");
    assert_eq!(
        printed.iter().filter(|line| line.contains("requests/s")).count(),
        expected.len(),
        "{printed:#?}"
    );

    let directory = tempfile::tempdir().unwrap();
    measured.write(directory.path()).unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let json: Value = serde_json::from_str(&read("http.json")).unwrap();
    assert_eq!(json["routes"]["many"], 20);
    let page = read("http.md");
    for row in [
        "| tidegate | HTTP/1.1 | 1 |",
        "| tidegate, many routes | HTTP/1.1 | 1 |",
        "| haproxy | HTTP/2 with TLS | 1 |",
        "| nginx | full handshakes | 1 |",
        "| caddy | resumed sessions | 1 |",
        "| nginx | 20 |",
    ] {
        assert!(page.contains(row), "{row} in\n{page}");
    }
    assert_eq!(read("http.svg").matches("<circle").count(), expected.len());
}
