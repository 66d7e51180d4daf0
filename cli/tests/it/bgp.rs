//! Tests of the requests that commands for BGP sessions, routes and events send to a stub server.

use crate::stub::{JSON, PROBLEM, Stub, run, write_answer};

const EMPTY: &str = r#"{"apiVersion":"tidegate/v1","metadata":{},"items":[]}"#;

#[test]
fn filters_travel_to_the_server_and_mistakes_ask_nobody() {
    let stub = Stub::fixed("200 OK", JSON, EMPTY);
    let filtered = [
        &["peers", "--node", "node-1", "--peer", "tor-1", "--state", "openconfirm"][..],
        &["routes", "--prefix", "192.0.2.7/24", "--address", "2001:DB8::7"],
        &["routes", "--prefix", "2001:db8::7", "--peer", "tor-1", "--node", "node-1"],
        &["events", "--node", "node-1", "--peer", "tor-1", "--last", "3"],
    ];
    for words in filtered {
        let (code, out, err) = run(&stub.url, &[&["bgp"], words].concat());
        assert_eq!((code, out.as_str()), (0, ""), "{err}");
        assert!(err.contains("matches the filters"), "{words:?}: {err}");
    }
    assert_eq!(
        stub.first_lines(),
        [
            "GET /v1/bgp/sessions?node=node-1&peer=tor-1&state=OpenConfirm HTTP/1.1",
            "GET /v1/bgp/routes?prefix=192.0.2.0%2F24&address=2001%3Adb8%3A%3A7 HTTP/1.1",
            "GET /v1/bgp/routes?node=node-1&peer=tor-1&prefix=2001%3Adb8%3A%3A7%2F128 HTTP/1.1",
            "GET /v1/bgp/events?node=node-1&peer=tor-1&limit=3 HTTP/1.1",
        ]
    );
    for bad in [
        &["peers", "--state", "up"][..],
        &["peers", "--node", "Node_1"],
        &["routes", "--prefix", "192.0.2.0/33"],
        &["routes", "--address", "web"],
        &["events", "--last", "0"],
        &["routes", "-o", "name"],
        &[],
    ] {
        assert_eq!(run(&stub.url, &[&["bgp"], bad].concat()).0, 2, "{bad:?}");
    }
    assert_eq!(stub.first_lines().len(), 4, "a mistake on the command line asks nobody");
}

#[test]
fn where_there_is_nothing_it_says_what_is_missing() {
    let stub = Stub::fixed("200 OK", JSON, EMPTY);
    for (what, teaches) in
        [("peers", "spec.peerASN"), ("routes", "Advertisement of type BGP"), ("events", "bgp peers")]
    {
        let (code, out, err) = run(&stub.url, &["bgp", what]);
        assert_eq!((code, out.as_str()), (0, ""), "{err}");
        assert!(err.contains(teaches), "{what}: {err}");
        let (code, out, err) = run(&stub.url, &["bgp", what, "-o", "json"]);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.contains("\"items\": []"), "{out}");
    }
}

#[test]
fn pages_are_put_together_hints_go_beside_the_table_and_documents_are_whole() {
    let session = |peer: &str, state: &str| {
        format!(
            r#"{{"node":"node-1","isReporting":true,"asn":64512,"routerId":"10.0.0.9",
                "session":{{"peer":"{peer}","state":"{state}","since":"2026-11-21T08:00:00Z","reason":"because","localASN":64512}},
                "trouble":{{"reason":"WrongPeerAS","hint":"set spec.peerASN"}},"newer":7}}"#
        )
    };
    let pages = [
        format!(r#"{{"metadata":{{"continue":"t"}},"items":[{}]}}"#, session("tor-1", "Idle")),
        format!(r#"{{"metadata":{{}},"items":[{}]}}"#, session("tor-2", "Active")),
    ];
    let stub = Stub::new(move |_, request, stream| {
        let page = &pages[usize::from(request.contains("continue=t"))];
        write_answer(stream, "200 OK", JSON, page);
    });
    let (code, out, err) = run(&stub.url, &["bgp", "peers"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(out.lines().count(), 3, "{out}");
    assert_eq!(err, "hint: node-1 with tor-1 and 1 more: WrongPeerAS: set spec.peerASN\n");
    let (_, out, err) = run(&stub.url, &["bgp", "peers", "-o", "json"]);
    assert!(out.contains("\"newer\": 7") && err.is_empty(), "{out}{err}");
    let (_, out, _) = run(&stub.url, &["bgp", "peers", "-o", "yaml"]);
    assert!(out.contains("newer: 7"), "{out}");
}

#[test]
fn the_last_events_say_that_there_are_more_and_refusals_fail() {
    let stub = Stub::fixed(
        "200 OK",
        JSON,
        r#"{"metadata":{"continue":"t"},"items":[{"id":2,"time":"2026-11-21T09:00:00Z","node":"b","reason":"BgpSessionUp","message":"m","count":1},
            {"id":1,"time":"2026-11-21T08:00:00Z","node":"a","reason":"BgpSessionDown","message":"m","count":1}]}"#,
    );
    let (code, out, err) = run(&stub.url, &["bgp", "events", "--last", "2"]);
    assert_eq!((code, err.as_str()), (0, "showing the last 2 events; use --last N for more\n"));
    assert!(out.find("08:00").unwrap() < out.find("09:00").unwrap(), "the newest is last: {out}");
    let refusing =
        Stub::fixed("400 Bad Request", PROBLEM, r#"{"code":"BadRequest","title":"no","status":400}"#);
    assert_eq!(run(&refusing.url, &["bgp", "routes"]).0, 1);
    assert_eq!(run("http://127.0.0.1:1", &["bgp", "peers"]).0, 4);
}

#[test]
fn a_node_is_described_with_its_sessions_also_by_a_server_that_knows_of_none() {
    let node = r#"{"kind":"Node","metadata":{"name":"node-1"},"spec":{}}"#;
    let unknown = r#"{"code":"NotFound","title":"no","status":404}"#;
    let listing = r#"{"metadata":{},"items":[{"node":"node-1","isReporting":true,"session":{"peer":"tor-1","state":"Idle","reason":"r"}}]}"#;
    for (status, media, answer, shown) in
        [("200 OK", JSON, listing, true), ("404 Not Found", PROBLEM, unknown, false)]
    {
        let stub = Stub::new(move |_, request, stream| {
            if request.starts_with("GET /v1/bgp/sessions?node=node-1 ") {
                write_answer(stream, status, media, answer);
            } else if request.starts_with("GET /v1/blocks") {
                write_answer(stream, "404 Not Found", PROBLEM, unknown);
            } else {
                write_answer(stream, "200 OK", JSON, node);
            }
        });
        let (code, out, err) = run(&stub.url, &["describe", "node", "node-1"]);
        assert_eq!((code, out.contains("BGP sessions")), (0, shown), "{out}{err}");
    }
}
